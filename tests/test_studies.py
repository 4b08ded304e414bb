"""The studies behind docs/results: which runs they are, that none is lost or repeated, and what they need."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.studies.__main__ import main
from benchmarks.studies.carrying_out import carry_out
from benchmarks.studies.definitions import STUDIES
from fedsac import FedsacError
from fedsac.paper.printed import TABLES
from fedsac.runs.watcher import Watcher
from tests.data.made import cifar_content, put
from tests.tiny_studies import carried_out, made_in, tiny

ROOT = Path(__file__).resolve().parents[1]


class Counting(Watcher):
    def __init__(self, stop=0):
        self.rounds, self.stop = 0, stop

    def round(self, run, record):
        self.rounds += 1
        if self.rounds == self.stop:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of three tiny studies and their pages."""
    return made_in(tmp_path_factory.mktemp("studies"))


def without_time(path):
    raw = json.loads(path.read_text())
    assert raw["made"].pop("seconds") > 0
    return raw


def test_interrupted_and_resumed_it_leaves_the_same_raw_file(made, tmp_path):
    study = tiny("long")
    with pytest.raises(KeyboardInterrupt):
        carried_out(study, tmp_path, Counting(stop=11))
    assert not list(tmp_path.glob("long/*.json"))
    again = Counting()
    assert carried_out(study, tmp_path, again)
    assert 0 < again.rounds < 2 * 8  # of eight runs with two rounds each
    assert without_time(tmp_path / "long/long.json") == without_time(made / "long/long.json")


def test_a_finished_part_is_not_repeated_even_without_its_runs(made, tmp_path):
    (tmp_path / "judge").mkdir()
    study = tiny("judge")
    for path in (made / "judge").glob("*.json"):
        (tmp_path / "judge" / path.name).write_bytes(path.read_bytes())
    watcher = Counting()
    assert carried_out(study, tmp_path, watcher) and watcher.rounds == 0
    with pytest.raises(FedsacError, match="holds other runs"):
        carried_out(replace(study, rounds=3), tmp_path)
    with pytest.raises(FedsacError, match="holds other runs"):
        carried_out(replace(study, seeds=3), tmp_path)


def test_cells_side_by_side_leave_the_same_raw_files(made, tmp_path):
    assert carried_out(tiny("judge"), tmp_path, workers=2)
    files = sorted(path.name for path in (made / "judge").glob("*.json"))
    assert files == sorted(path.name for path in (tmp_path / "judge").glob("*.json"))
    for name in files:
        assert without_time(tmp_path / "judge" / name) == without_time(made / "judge" / name)


@pytest.mark.parametrize("workers", [1, 2])
def test_when_the_minutes_are_over_no_part_is_begun(workers, tmp_path):
    watcher = Counting()
    assert not carried_out(tiny("judge"), tmp_path, watcher, minutes=-1, workers=workers)
    assert watcher.rounds == 0 and not list(tmp_path.rglob("*.json"))


def test_a_part_that_is_whole_has_its_raw_file_before_the_others_are(tmp_path):
    """And one whose raw file is gone, but not its runs, has it again."""
    seen = []

    class Looking(Watcher):
        def note(self, text):
            if text.endswith("whole"):
                seen.append(sorted(path.stem for path in tmp_path.glob("judge/*.json")))

    study = tiny("judge")
    assert carried_out(study, tmp_path, Looking(), workers=2)
    assert [len(names) for names in seen] == list(range(1, len(study.cells) + 1)) and len(study.cells) > 1
    lost = tmp_path / "judge" / f"{seen[-1][0]}.json"
    before = without_time(lost)
    lost.unlink()
    watcher = Counting()
    assert carried_out(study, tmp_path, watcher, workers=2) and watcher.rounds == 0
    assert without_time(lost) == before


def test_the_runs_of_the_studies():
    configs = {name: [c for cell in study.cells for c in study.configs(cell)] for name, study in STUDIES.items()}
    networks = {"networks-cnn": 60, "networks-resnet18": 60}
    expected = {"methods": 3150, "judge": 2000, "long": 36} | networks
    assert {name: len(runs) for name, runs in configs.items()} == expected
    assert {name: {c.contribution_on for c in runs} for name, runs in configs.items()} == {
        "methods": {"validation"},
        "judge": {"validation"},
        "long": {"test"},
        **{name: {"validation"} for name in networks},
    }
    assert {(c.network, c.rounds, c.local_steps) for name in networks for c in configs[name]} == {
        ("cnn", 200, 20),
        ("resnet18:16", 100, 20),
    }
    used = {0, 1, 2, 3, 4, 100, 101}  # by the paper's tables and while FedSAC+ was designed
    seeds = {name: {c.seed for c in configs[name]} for name in ("methods", "judge")}
    assert not seeds["methods"] & used and not seeds["judge"] & (used | seeds["methods"])
    twenty = {(cell.data, 20, cell.scene) for cell in STUDIES["judge"].cells if cell.clients == 20}
    assert twenty == {column for column in TABLES["table5"] if column.clients == 20 and column.data != "svhn"}
    one = next(c for c in configs["methods"] if (c.data, c.scene, c.method) == ("fashion-mnist", "dir:3.0", "aequa"))
    assert (one.beta, one.local_steps, one.lr, one.rounds, one.seed) == (25, 15, 0.05, 100, 200)


def test_a_study_of_networks_and_its_page(tmp_path):
    """Carried out with a small network in place of theirs; the page has a table for each cell, with its numbers."""
    whole = STUDIES["networks-resnet18"]
    settings = tuple((name, "tests.networks:tiny" if name == "network" else value) for name, value in whole.settings)
    small = replace(
        whole, columns=(("digits", 3),), scenes=("pow",), seeds=2, rounds=2, eval_every=1, settings=settings
    )
    small = replace(small, methods=("fedsac", "standalone"))
    assert carry_out(small, small.cells, tmp_path, Watcher(), None, local_steps=3, threads=1)
    raw_file = json.loads((tmp_path / "networks-resnet18/digits-pow-3.json").read_text())
    assert raw_file["networks"] == ["tests.networks:tiny"] and len(raw_file["runs"]) == 4
    main(["page", "networks-resnet18", "--docs", str(tmp_path)])
    page = (tmp_path / "networks.md").read_text()
    best = np.mean([max(run["labels"]["last"]["rewards"]) for run in raw_file["runs"] if run["method"] == "fedsac"])
    assert "### resnet18, width 16: digits POW, 3 clients" in page and f"{best:.4f}" in page


def test_it_runs_where_only_torch_numpy_scipy_and_safetensors_are(tmp_path):
    """As a command, on CIFAR-10's own file format, with everything else that fedsac can import forbidden."""
    put(tmp_path / "cifar-10-batches-bin", cifar_content(80))
    script = f"""
import sys
for name in ("rich", "platformdirs", "pooch", "sklearn", "pyarrow", "onnx", "flwr", "tqdm", "requests", "matplotlib"):
    sys.modules[name] = None  # importing it raises ImportError
from benchmarks.studies.__main__ import main
main(["long", {str(tmp_path / "out")!r}, "--data-dir", {str(tmp_path)!r}, "--scenes", "dir:1.0", "--seeds", "1",
      "--clients", "2", "--rounds", "1", "--methods", "fedavg"])
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(json.loads((tmp_path / "out/long/long.json").read_text())["runs"]) == 1


def test_the_command_writes_a_page_and_says_what_is_wrong(made, tmp_path, capsys):
    (tmp_path / "long").mkdir()
    (tmp_path / "long/long.json").write_bytes((made / "long/long.json").read_bytes())
    main(["page", "long", "--docs", str(tmp_path)])
    assert str(tmp_path / "long.md") in capsys.readouterr().out
    assert (tmp_path / "long.md").read_bytes() == (made / "long.md").read_bytes()
    (tmp_path / "judge").mkdir()
    (tmp_path / "judge/old.json").write_text('{"format_version": 1, "rows": []}')
    with pytest.raises(SystemExit, match="holds no results of a study"):
        main(["page", "judge", "--docs", str(tmp_path)])
    with pytest.raises(SystemExit, match="no cell of methods"):
        main(["methods", str(tmp_path), "--only", "mnist cla 99"])
