"""`fedsac paper`: which runs a table needs, that none is run twice, and what the command says."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fedsac import Config, FedsacError
from fedsac.cli import main
from fedsac.paper import experiments, job
from fedsac.paper.experiments import FULL, TARGETS, Scale, parse_targets, runs
from fedsac.paper.page import how_made
from fedsac.paper.results import Results
from fedsac.runs.watcher import Watcher
from tests.data.made import cifar_content, idx_content, put, put_svhn
from tests.test_store import contents

TINY = Scale(seeds=1, rounds=3, eval_every=1, samples=20)


@pytest.fixture(scope="module")
def made_data(tmp_path_factory) -> Path:
    """Noise in the published formats: enough to run, nothing to learn."""
    root = tmp_path_factory.mktemp("data")
    put(root / "cifar-10-batches-bin", cifar_content(80))
    put(root / "fashion-mnist", idx_content(400, 40))
    put_svhn(root / "svhn", 400, 40)
    return root


@pytest.fixture
def tiny(made_data, monkeypatch) -> list[str]:
    monkeypatch.setattr(experiments, "QUICK", TINY)
    return ["--quick", "--device", "cpu", "--data-dir", str(made_data)]


@pytest.fixture(scope="module")
def finished(made_data, tmp_path_factory) -> Path:
    """The folder of Figure 5's four runs."""
    out = tmp_path_factory.mktemp("paper") / "out"
    watcher = Counting()
    job.carry_out(figure5(made_data), out, watcher)
    assert watcher.rounds == 4 * 3
    return out


def figure5(data: Path, scale: Scale = TINY) -> list[Config]:
    return runs(["figure5"], scale, device="cpu", data_dir=str(data))


class Counting(Watcher):
    def __init__(self, stop: int = 0) -> None:
        self.rounds, self.stop = 0, stop

    def round(self, run, record):
        self.rounds += 1
        if self.rounds == self.stop:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "targets, number",
    [
        # Table 1: 15 scenes x 6 methods x 5 seeds; in 3 scenes FedSAC once more, with the beta of Tables 2 and 7.
        (["table1"], 15 * 6 * 5 + 3 * 5),
        (["table1", "table2", "figure3", "figure4", "figure6", "table8"], 15 * 6 * 5 + 3 * 5),
        (["table3", "table4"], 15 * 3 * 5 + 3 * 3 * 5),
        (["table7"], 4 * 4 * 5),
        (["table8"], 15 * 5 + 3 * 5),
        (["figure5"], 4 * 5),
        (["table9", "figure1", "theorems"], 0),
        # 14 columns; of CIFAR-10's nine, POW and DIR(3.0) once and DIR(2.0) three times have another beta.
        (["table5"], 14 * 6 * 5 + 5 * 5),
    ],
)
def test_the_runs_that_a_target_needs(targets, number):
    assert len(runs(parse_targets(targets), FULL)) == number


def test_the_other_reading_comes_beside_the_first():
    literal, both = (runs(["table1", "table7"], FULL, both_readings=both) for both in (False, True))
    more = [config for config in both if config not in literal]
    assert {config.method for config in more} == {"fedsac-over-n"}
    literal_of_table1 = [config for config in runs(["table1"], FULL) if config.method == "fedsac"]
    assert [config.replace(method="fedsac") for config in more] == literal_of_table1


def test_the_settings_are_the_papers():
    found = [c for c in runs(["table1"], FULL) if (c.data, c.scene, c.method, c.seed) == ("svhn", "cla", "fedsac", 0)]
    assert len(found) == 1
    config = found[0]
    assert (config.lr, config.local_steps, config.beta, config.batch) == (0.05, 20, 3.0, 64)
    assert (config.contribution_on, config.rounds, config.clients, config.importance_every) == ("test", 300, 10, 1)
    betas = {c.beta for c in runs(["table1"], FULL) if (c.data, c.scene, c.method) == ("cifar10", "pow", "fedsac")}
    assert betas == {5.0, 10.0}  # Table 9's, and that of Tables 2 and 7


def test_all_is_everything():
    assert parse_targets(["all"]) == list(TARGETS)
    assert parse_targets(["theorems", "table2", "table1"]) == ["table1", "table2", "theorems"]


def test_a_finished_run_is_never_run_again(made_data, finished):
    before, again = contents(finished), Counting()
    job.carry_out(figure5(made_data), finished, again)
    assert again.rounds == 0
    assert contents(finished) == before


def test_interrupted_and_taken_up_it_ends_with_the_same_results(made_data, finished, tmp_path):
    wanted = figure5(made_data)
    for stop in (1, 4, 2):
        with pytest.raises(KeyboardInterrupt):
            job.carry_out(wanted, tmp_path, Counting(stop))
    last = Counting()
    job.carry_out(wanted, tmp_path, last)
    # A run's round is whole once the watcher hears of it: of 12, interruptions cost nothing but what was in progress.
    assert last.rounds == 12 - (1 + 4 + 2)
    assert job.collected(wanted, tmp_path, quick=True).runs == job.collected(wanted, finished, quick=True).runs


def test_a_folder_begun_on_one_machine_goes_on_on_another(made_data, finished, tmp_path):
    """Another place for the folder, another for the data, whose files are the same; the first machine is gone."""
    first, second = tmp_path / "first", tmp_path / "second"
    shutil.copytree(made_data, first / "data")
    with pytest.raises(KeyboardInterrupt):
        job.carry_out(figure5(first / "data"), first / "out", Counting(7))
    first.rename(second)
    last, wanted = Counting(), figure5(second / "data")
    job.carry_out(wanted, second / "out", last)
    assert last.rounds == 12 - 7
    assert job.collected(wanted, second / "out", quick=True).runs == (
        job.collected(figure5(made_data), finished, quick=True).runs
    )


def test_runs_keep_numbers_and_no_models(finished):
    for folder in (finished / "runs").iterdir():
        assert {path.name for path in folder.iterdir()} >= {"config.toml", "rounds.jsonl", "summary.json", "README.md"}
        assert len((folder / "rounds.jsonl").read_text().splitlines()) == 3
        explained = (folder / "README.md").read_text()
        assert "numbers alone are kept, and no models" in explained
        listed = re.findall(r"^- `([\w.]+)", explained, re.MULTILINE)
        assert listed == ["config.toml", "rounds.jsonl", "summary.json", "timing.json"]
        assert all((folder / name).exists() for name in listed)
    assert not list(finished.rglob("*.safetensors"))


def test_other_settings_in_the_folder_are_refused(made_data, finished):
    longer = figure5(made_data, replace(TINY, rounds=4))
    with pytest.raises(FedsacError, match="other settings"):
        job.carry_out(longer, finished, Watcher())


def test_bytes_as_counted_and_as_files(made_data, finished):
    found = job.collected(figure5(made_data), finished, quick=True).runs
    assert len(found) == 4
    for run in found:
        assert 0 < run.counted <= 10 * 4 * 656_810 / 1e6
        # A file's header names six tensors: some hundred bytes for each of ten submodels.
        assert 10 * 300 / 1e6 < run.serialised - run.counted < 10 * 600 / 1e6


def test_a_table_on_the_terminal_and_in_the_folder(tiny, tmp_path, capsys):
    out = tmp_path / "paper"
    tiny += ["--rounds", "1"]
    assert main(["paper", "table8", *tiny, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "Table 8 (quick)" in said and "23.57" in said  # the printed value stands beside ours
    assert {"README.md", "results.json", "table8.csv", "figures", "runs"} <= {path.name for path in out.iterdir()}
    results = Results.load(out / "results.json")
    assert len(results.runs) == 18 and results.made["quick"] is True
    # Shown again from the file alone: the same table.
    assert main(["paper", "table8", "--from", str(out / "results.json")]) == 0
    assert capsys.readouterr().out.split("The paper's claims")[0] == said.split("The paper's claims")[0]


def test_one_split_for_all_seeds(tiny, tmp_path, capsys):
    """The printed deviations are those of one split: with the split's own seed, contributions differ by training."""
    out = tmp_path / "paper"
    common = [*tiny, "--rounds", "1", "--seeds", "2"]
    assert main(["paper", "figure5", *common, "--split-seed", "7", "--out", str(out)]) == 0
    folders = sorted((out / "runs").glob("cifar10-pow-*"))
    logged = [json.loads((folder / "summary.json").read_text()) for folder in folders]
    assert all("split_seed = 7" in (folder / "config.toml").read_text() for folder in folders)
    assert len(logged) == 2 and logged[0]["samples"] == logged[1]["samples"]
    assert Results.load(out / "results.json").made["split seed"] == 7
    assert "- split seed: 7" in (out / "README.md").read_text()
    # Runs with splits of their own do not belong into this folder, nor on this page.
    assert main(["paper", "figure5", *common, "--out", str(out)]) == 2
    assert "other settings" in capsys.readouterr().err
    assert main(["paper", "figure5", *common, "--out", str(tmp_path / "own")]) == 0
    both = [str(folder / "results.json") for folder in (out, tmp_path / "own")]
    assert main(["paper", "figure5", "--from", both[0], "--from", both[1]]) == 2
    assert "different splits" in capsys.readouterr().err


def test_what_needs_no_runs(capsys, tmp_path):
    assert main(["paper", "table9", "figure1", "--quick", "--out", str(tmp_path / "out")]) == 0
    assert "beta" in capsys.readouterr().out
    assert (tmp_path / "out" / "figures" / "figure1a.svg").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["table10"], "the paper has no 'table10' here"),
        (["table1", "--seeds", "0"], "seeds must be at least 1"),
        (["table1", "--rounds", "-3"], "rounds must be at least 1"),
        (["table1", "--from", "nowhere.json"], "nowhere.json: there is no such file"),
        (["table1", "--from", "nowhere.json", "--quick"], "--from runs nothing; leave --quick out"),
        (["table1", "--device", "tpu"], "device must be cpu or cuda or auto"),
    ],
)
def test_bad_usage_is_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["paper", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_file_that_holds_no_results(tmp_path, capsys):
    (tmp_path / "x.json").write_text(json.dumps({"format_version": 1, "runs": 3}))
    assert main(["paper", "table1", "--from", str(tmp_path / "x.json")]) == 2
    assert "holds no results" in capsys.readouterr().err


def test_results_made_in_parts_are_joined(made_data, finished, tmp_path, capsys):
    job.collected(figure5(made_data), finished, quick=False).save(tmp_path / "whole.json")
    whole = Results.load(tmp_path / "whole.json")
    made = {"fedsac": "0.1", "commit": "a", "seconds": 1.5, "quick": False}
    first, second, longer = (tmp_path / name for name in ("first.json", "second.json", "longer.json"))
    Results(made, whole.runs[:3]).save(first)
    # The second has one of the first's runs, too, with another number in it: the later file's counts.
    again = replace(whole.runs[2], megabytes=1.25)
    Results(made | {"commit": "b"}, (again, whole.runs[3])).save(second)
    joined = Results.joined([first, second])
    assert joined.runs == (*whole.runs[:2], again, whole.runs[3])
    assert joined.made == {"rules": 1, "fedsac": "0.1", "commit": "a, b", "seconds": 3.0, "quick": False}
    assert main(["paper", "figure5", "--from", str(first), "--from", str(second), "--out", str(tmp_path / "out")]) == 0
    assert Results.load(tmp_path / "out" / "results.json") == joined

    Results(made, (replace(whole.runs[0], rounds=99),)).save(longer)
    capsys.readouterr()
    assert main(["paper", "figure5", "--from", str(first), "--from", str(longer)]) == 2
    assert "runs of different lengths do not belong on one page" in capsys.readouterr().err

    Results(made | {"rules": 2}, whole.runs[:1]).save(longer)
    assert main(["paper", "figure5", "--from", str(first), "--from", str(longer)]) == 2
    assert "runs under different rules do not belong on one page" in capsys.readouterr().err
    assert "runs under rules 1, where this fedsac has rules" in (tmp_path / "out" / "README.md").read_text()
    assert whole.made["rules"] == 2 and "runs under rules" not in how_made(whole)


def test_one_cell_of_a_table(tiny, tmp_path, capsys):
    """One data set is enough, and one scene of it."""
    out = tmp_path / "out"
    data = tmp_path / "data"
    put_svhn(data / "svhn", 400, 40)
    cell = ["--data", "svhn", "--scene", "dir:1", "--data-dir", str(data)]
    assert main(["paper", "table8", *tiny, *cell, "--out", str(out)]) == 0
    made = [path.name for path in (out / "runs").iterdir()]
    assert {name.partition("-10-")[0] for name in made} == {"svhn-dir1.0"}
    assert len(made) == len([c for c in runs(["table8"], TINY) if (c.data, c.scene) == ("svhn", "dir:1.0")])
    assert "DIR(1.0)" in (out / "README.md").read_text()
    capsys.readouterr()
    assert main(["paper", "table7", *tiny, "--data", "svhn", "--scene", "iid", "--out", str(out)]) == 2
    assert "no runs on svhn iid; they have" in capsys.readouterr().err
