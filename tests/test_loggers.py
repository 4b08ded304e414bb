"""Logs and trackers: what they wrote, read back."""

import csv
import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import fedsac
from fedsac import Config, FedsacError, RunInfo
from fedsac.cli import main
from fedsac.runs.loggers import make
from fedsac.runs.loggers.csvfile import CsvLogger
from fedsac.runs.loggers.mlflow import LAST
from fedsac.runs.loggers.numbers import tracked
from fedsac.runs.watcher import Watchers
from tests.test_methods import StopAfter

SMALL = Config(rounds=4, clients=3, hidden=(12,), local_steps=3, standalone_steps=5, eval_every=2)
QUICK = shlex.split("--rounds 4 --clients 3 --hidden 12 --local-steps 3 --standalone-steps 5 --eval-every 2")
CLIENTS = ("client-01", "client-02", "client-03")


def installed(package: str, extra: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"needs {package}: pip install 'fedsac[{extra}]'")


needs_tensorboard = installed("tensorboard", "tensorboard")
needs_mlflow = installed("mlflow", "mlflow")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A current folder of one's own, on the path, for logs of one's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("mylogs", "broken"):
        sys.modules.pop(name, None)


def rounds(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def number(cell: str) -> float | None:
    return float(cell) if cell else None


# -- CSV


def check_csv(folder: Path, metric: str = "accuracy") -> None:
    """Both files say what rounds.jsonl says, to the last digit."""
    records = rounds(folder)
    for row, record in zip(table(folder / "rounds.csv"), records, strict=True):
        score = record["accuracy"] or {}
        told = {
            **{name: record[name] for name in ("round", "gamma", "gamma_limit", "gamma_attainable")},
            **{name: record[name] for name in ("bcf", "alpha_bcf", "mcg", "cgs")},
            **{f"{name}_reward": score.get(name) for name in ("max", "mean", "min")},
            **{"global_model": record["global_accuracy"]},
            **{"bytes_down": record["bytes"]["down"], "bytes_up": record["bytes"]["up"]},
        }
        assert row.pop("metric") == metric
        assert {name: number(cell) for name, cell in row.items()} == told
    expected = [
        (str(r["round"]), client, client in r["answered"], r["neurons"][i], (r["rewards"] or [None] * 3)[i])
        for r in records
        for i, client in enumerate(CLIENTS)
    ]
    found = [
        (row["round"], row["client"], row["answered"] == "1", int(row["neurons"]), number(row["reward"]))
        for row in table(folder / "clients.csv")
    ]
    assert found == expected


def both(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "rounds.csv").read_bytes(), (folder / "clients.csv").read_bytes()


@pytest.fixture(scope="module")
def logged(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("logged") / "run"
    fedsac.run(SMALL, folder, watcher=CsvLogger())
    return folder


def test_the_tables_say_what_the_records_say(logged):
    check_csv(logged)
    assert [row["max_reward"] == "" for row in table(logged / "rounds.csv")] == [True, False, True, False]


def test_absent_clients_and_other_metrics():
    config = SMALL.replace(metric="balanced-accuracy", behaviour="absent:0.5")
    fedsac.run(config, "run", watcher=CsvLogger())
    check_csv(Path("run"), "balanced-accuracy")
    assert {row["answered"] for row in table(Path("run/clients.csv"))} == {"0", "1"}


@pytest.mark.parametrize("round", [1, 2, 3])
def test_a_resumed_run_has_the_same_tables(round, logged):
    with pytest.raises(KeyboardInterrupt):
        fedsac.run(SMALL, "run", watcher=Watchers(CsvLogger(), StopAfter(round)))
    assert len(table(Path("run/rounds.csv"))) == round
    fedsac.resume("run", watcher=CsvLogger())
    assert both(Path("run")) == both(logged)


def test_a_log_named_only_when_a_run_is_resumed_has_all_of_it(logged):
    with pytest.raises(KeyboardInterrupt):
        fedsac.run(SMALL, "run", watcher=StopAfter(3))
    fedsac.resume("run", watcher=CsvLogger())
    assert both(Path("run")) == both(logged)


def test_a_kill_leaves_whole_lines(logged):
    """Killed when round 3 is logged and not yet committed: it is logged again, once."""
    script = textwrap.dedent("""
        import os, signal, fedsac
        from fedsac.runs.loggers.csvfile import CsvLogger
        from fedsac.runs.watcher import Watchers

        class Kill(fedsac.Watcher):
            def round(self, run, record):
                if record["round"] == 3:
                    os.kill(os.getpid(), signal.SIGKILL)

        config = fedsac.Config(rounds=4, clients=3, hidden=(12,), local_steps=3, standalone_steps=5, eval_every=2)
        fedsac.run(config, "run", watcher=Watchers(CsvLogger(), Kill()))
    """)
    ended = subprocess.run([sys.executable, "-c", script], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(rounds(Path("run"))) == 2
    for left, whole in zip(both(Path("run")), both(logged), strict=True):
        assert left and whole.startswith(left) and left.endswith(b"\n")
    assert len(table(Path("run/rounds.csv"))) == 3
    fedsac.resume("run", watcher=CsvLogger())
    assert both(Path("run")) == both(logged)


def test_runs_side_by_side_do_not_mix():
    configs = [SMALL, SMALL.replace(method="fedavg", rounds=6), SMALL.replace(seed=1)]
    folders = [Path("one"), Path("two"), Path("three")]
    fedsac.run_together(configs, folders, CsvLogger())
    for folder in folders:
        check_csv(folder)
    assert [len(table(folder / "rounds.csv")) for folder in folders] == [4, 6, 4]
    assert len({both(folder) for folder in folders}) == 3


def test_clients_that_come_and_go(tmp_path):
    """A federation's records name their clients; columns stay what they are."""
    blank = dict.fromkeys(("gamma", "gamma_limit", "bcf", "alpha_bcf", "accuracy", "rewards", "rewards_validation"))
    blank |= {"global_accuracy": None, "reputations": None, "bytes": {"down": 8, "up": 4}}
    first = {**blank, "round": 1, "clients": ["a", "b"], "answered": ["b"], "neurons": [5, 6]}
    second = {**blank, "round": 2, "clients": ["b", "c"], "answered": [], "neurons": [7, 8]}
    unnamed = {**blank, "round": 3, "answered": [], "neurons": [7, 8, 9]}  # by a version that did not name them
    log, run = CsvLogger(), RunInfo(SMALL, tmp_path, ("b", "c"))
    log.begin(run, [first])
    log.round(run, second)
    log.round(run, unnamed)
    rows = [(row["round"], row["client"], row["answered"], row["neurons"]) for row in table(tmp_path / "clients.csv")]
    assert rows == [("1", "a", "0", "5"), ("1", "b", "1", "6"), ("2", "b", "0", "7"), ("2", "c", "0", "8")]
    assert [row["bytes_down"] for row in table(tmp_path / "rounds.csv")] == ["8", "8", "8"]


def test_a_run_without_a_folder_has_no_tables():
    with pytest.raises(FedsacError, match="the log csv is written into the run's folder; name one"):
        fedsac.run(SMALL, watcher=CsvLogger())


# -- the command line


def test_run_and_resume_with_a_log(logged, capsys):
    assert main(["run", *QUICK, "--out", "run", "--log", "csv", "--log", "csv"]) == 0  # named twice: written once
    assert both(Path("run")) == both(logged)
    for name in ("rounds.csv", "clients.csv"):
        Path("run", name).unlink()
    assert main(["run", "--resume", "run", "--log", "csv"]) == 0
    assert both(Path("run")) == both(logged)
    assert main(["run", *QUICK, "--out", "run", "--overwrite"]) == 0
    assert not Path("run/rounds.csv").exists() and not Path("run/clients.csv").exists()


def test_compare_with_a_log():
    command = ["compare", *QUICK, "--methods", "fedavg,fedsac", "--seeds", "2", "--out", "all"]
    assert main([*command, "--log", "csv"]) == 0
    folders = [path.parent for path in Path("all").glob("*/rounds.csv")]
    assert sorted(path.name for path in folders) == ["fedavg-seed0", "fedavg-seed1", "fedsac-seed0", "fedsac-seed1"]
    for folder in folders:
        check_csv(folder)


OWN = """
from fedsac import FedsacError, Watcher

class Fails(Watcher):
    def round(self, run, record):
        if record["round"] > 1:
            raise RuntimeError("the disk of the\\nchart recorder is full")

class Stops(Watcher):
    def round(self, run, record):
        if record["round"] == 2:
            raise KeyboardInterrupt

class Picky(Watcher):
    def __init__(self, server):
        pass

class NoLog:
    pass
"""


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["csw"], "no log 'csw' (did you mean csv?); there are csv, tensorboard, mlflow, or module:attribute"),
        (["csv", "mylogs:Log"], "log 'mylogs:Log' cannot be imported"),
        (["broken:NoLog"], "log 'broken:NoLog' is no class derived from fedsac.Watcher"),
        (["broken:OWN"], "log 'broken:OWN'"),
        (["broken:Picky"], "log 'broken:Picky' cannot be begun: TypeError"),
        (["broken:Fails:3"], "takes no parameter"),
        (["csv:3"], "log csv takes no parameter"),
    ],
)
@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_log_that_cannot_be_had_is_one_line_before_any_work(command, names, says, capsys):
    Path("broken.py").write_text(OWN)
    assert main([command, *QUICK, *(part for name in names for part in ("--log", name))]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and says in err
    assert not Path("runs").exists()


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboard"), ("mlflow", "mlflow")])
def test_a_missing_package_is_one_line_that_names_the_extra(name, package, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    assert main(["run", *QUICK, "--log", name]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err == f"fedsac: the log {name} needs {package}: pip install 'fedsac[{name}]'\n"
    assert not Path("runs").exists()


def test_no_logs_on_flowers_engine(capsys):
    assert main(["run", *QUICK, "--engine", "flower-simulation", "--log", "csv"]) == 2
    assert "leave --log out" in capsys.readouterr().err


def test_a_log_that_fails_does_not_lose_the_run(logged, capsys):
    Path("broken.py").write_text(OWN)
    assert main(["run", *QUICK, "--out", "run", "--log", "broken:Fails", "--log", "csv"]) == 0
    said = capsys.readouterr().err
    line = "the log broken:Fails failed: RuntimeError: the disk of the chart recorder is full; it is switched off"
    assert said.count(line) == 1
    assert both(Path("run")) == both(logged)
    for name in ("rounds.jsonl", "summary.json"):
        assert Path("run", name).read_bytes() == (logged / name).read_bytes()


def test_an_interruption_in_a_log_is_an_interruption(logged, capsys):
    Path("broken.py").write_text(OWN)
    with pytest.raises(SystemExit) as ended:
        main(["run", *QUICK, "--out", "run", "--log", "broken:Stops", "--log", "csv"])
    assert ended.value.code == 130
    assert len(rounds(Path("run"))) == 2
    assert main(["run", "--resume", "run", "--log", "csv"]) == 0
    assert both(Path("run")) == both(logged)


# -- the page in docs/

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "logging.md").read_text(encoding="utf-8")


EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_the_pages_program_works_as_printed():
    subprocess.run([sys.executable, "-c", EXAMPLES[0]], check=True)
    assert len(table(Path("runs/first/rounds.csv"))) == 5


def test_the_pages_own_log_works_as_printed(capsys):
    example = EXAMPLES[1]
    assert len(example.splitlines()) <= 15
    Path("mylogs.py").write_text(example)
    (command,) = re.findall(r"^    PYTHONPATH=\. fedsac (run .*mylogs.*)$", PAGE, flags=re.MULTILINE)
    assert main([*shlex.split(command), "--out", "run"]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("run, round ")]
    expected = []
    for record in rounds(Path("run")):
        least = min(record["rewards"])
        client = f"client-{record['rewards'].index(least) + 1:02}"
        expected.append(f"run, round {record['round']}: {client} has the least accuracy, {least:.3f}")
    assert said == expected and len(said) == 5


def test_the_page_has_every_column_and_every_name(logged):
    for name in ("rounds.csv", "clients.csv"):
        for column in table(logged / name)[0]:
            assert f"`{column}`" in PAGE, column
    last = rounds(logged)[-1]
    for name in tracked(RunInfo(SMALL, logged, CLIENTS), last):
        shown = name.replace("accuracy", "METRIC").replace("client-01", "CLIENT")
        assert f"`{shown}`" in PAGE or "client-0" in shown, name


# -- what trackers are told


def test_names_carry_the_metric(logged):
    last = rounds(logged)[-1]
    names = tracked(RunInfo(SMALL.replace(metric="macro-f1"), logged, CLIENTS), last)
    assert names["macro-f1/max_reward"] == max(last["rewards"])
    assert names["macro-f1_of_reward/client-02"] == last["rewards"][1]
    assert names["fairness/gamma"] == last["gamma"] and names["neurons/client-03"] == last["neurons"][2]
    assert list(names)[-1] == LAST  # what tells MLflow's log that a round is whole
    own = tracked(RunInfo(SMALL.replace(metric="mine:score"), logged, CLIENTS), last)
    assert own["mine.score/mcg"] == last["mcg"]


def expected_series(folder: Path, config: Config = SMALL) -> dict[str, list[tuple[int, float]]]:
    """Name, and its value at each round that has it."""
    series: dict[str, list[tuple[int, float]]] = {}
    for record in rounds(folder):
        for name, value in tracked(RunInfo(config, folder, CLIENTS), record).items():
            series.setdefault(name, []).append((record["round"], value))
    assert len(series["fairness/bcf"]) == config.rounds // 2 and len(series["traffic/bytes_up"]) == config.rounds
    return series


# -- TensorBoard


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={SCALARS: 0})
    events.Reload()
    return {name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]}


def check_tensorboard(folder: Path, config: Config = SMALL) -> None:
    found, expected = scalars(folder), expected_series(folder, config)
    assert set(found) == set(expected)
    for name, series in expected.items():
        assert [step for step, _ in found[name]] == [step for step, _ in series], name
        assert [value for _, value in found[name]] == pytest.approx([value for _, value in series], rel=1e-6), name


@needs_tensorboard
def test_tensorboard_has_every_round(capsys):
    assert main(["run", *QUICK, "--out", "run", "--log", "tensorboard"]) == 0
    check_tensorboard(Path("run"))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator("run/tensorboard")
    events.Reload()
    (text,) = events.Tensors("config/text_summary")
    assert b'method = "fedsac"' in text.tensor_proto.string_val[0]


@needs_tensorboard
def test_tensorboard_of_a_resumed_run_has_every_round_once():
    with pytest.raises(KeyboardInterrupt):
        fedsac.run(SMALL, "run", watcher=Watchers(make("tensorboard"), StopAfter(3)))
    newest = max(Path("run/checkpoints").glob("*.safetensors"))
    newest.write_bytes(b"damaged")  # round 3 is logged, and has to be played again
    fedsac.resume("run", watcher=make("tensorboard"))
    check_tensorboard(Path("run"))


@needs_tensorboard
def test_tensorboards_runs_do_not_mix_and_are_overwritten():
    configs = [SMALL, SMALL.replace(method="fedavg", rounds=6)]
    fedsac.run_together(configs, [Path("one"), Path("two")], make("tensorboard"))
    for folder, config in zip(("one", "two"), configs, strict=True):
        check_tensorboard(Path(folder), config)
    fedsac.run(SMALL, "two", overwrite=True, watcher=make("tensorboard"))
    check_tensorboard(Path("two"))
    fedsac.run(SMALL, "two", overwrite=True)
    assert not any(Path("two/tensorboard").iterdir())
    with pytest.raises(FedsacError, match="the log tensorboard is written into the run's folder"):
        fedsac.run(SMALL, watcher=make("tensorboard"))


# -- MLflow


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.fixture
def tracking(store, tmp_path, monkeypatch):
    """MLflow's client on a database of this module's."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", tmp_path.name)
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    make("mlflow")
    from mlflow import MlflowClient

    return MlflowClient()


def mlflow_run(client, folder: Path):
    return client.get_run(json.loads((folder / "mlflow.json").read_text())["run_id"])


def check_mlflow(client, folder: Path, config: Config = SMALL) -> None:
    run = mlflow_run(client, folder)
    expected = expected_series(folder, config)
    assert run.info.status == "FINISHED" and set(run.data.metrics) == set(expected)
    for name, series in expected.items():
        history = client.get_metric_history(run.info.run_id, name)
        assert sorted((m.step, m.value) for m in history) == series, name


# MLflow's own use of its dependencies warns, in some versions of them.
mlflows_warnings = pytest.mark.filterwarnings("ignore")


@needs_mlflow
@mlflows_warnings
def test_mlflow_has_every_round_and_the_settings(tracking, tmp_path):
    options = ["--method", "fedsac-plus", "--set", "damping=0.25"]
    assert main(["run", *QUICK, *options, "--out", "run", "--log", "mlflow"]) == 0
    config = Config(**fedsac.config.read(Path("run/config.toml")))
    check_mlflow(tracking, Path("run"), config)
    run = mlflow_run(tracking, Path("run"))
    assert run.info.run_name == "run"
    assert tracking.get_experiment(run.info.experiment_id).name == tmp_path.name
    assert run.data.params["hidden"] == "12" and run.data.params["scene"] == "pow"
    assert run.data.params["options.damping"] == "0.25" and "behaviour" not in run.data.params
    assert run.data.tags["fedsac.metric"] == "accuracy"
    (artifact,) = tracking.list_artifacts(run.info.run_id)
    stored = Path(tracking.download_artifacts(run.info.run_id, artifact.path, str(tmp_path)))
    assert json.loads(stored.read_text()) == json.loads(Path("run/summary.json").read_text())


@needs_mlflow
@mlflows_warnings
def test_mlflow_of_a_resumed_run_is_the_same_and_has_every_round_once(tracking, monkeypatch):
    monkeypatch.setattr("fedsac.runs.loggers.mlflow.SECONDS_APART", 0.0)
    with pytest.raises(KeyboardInterrupt):
        fedsac.run(SMALL, "run", watcher=Watchers(make("mlflow"), StopAfter(3)))
    begun = mlflow_run(tracking, Path("run"))
    assert begun.info.status == "RUNNING" and begun.data.metrics["traffic/bytes_up"] > 0
    newest = max(Path("run/checkpoints").glob("*.safetensors"))
    newest.write_bytes(b"damaged")  # round 3 is logged, and has to be played again
    fedsac.resume("run", watcher=make("mlflow"))
    check_mlflow(tracking, Path("run"))
    assert mlflow_run(tracking, Path("run")).info.run_id == begun.info.run_id


@needs_mlflow
@mlflows_warnings
def test_rounds_that_mlflow_was_not_sent_before_an_interruption_are_sent_when_resumed(tracking):
    with pytest.raises(KeyboardInterrupt):
        fedsac.run(SMALL, "run", watcher=Watchers(make("mlflow"), StopAfter(3)))
    assert "traffic/bytes_up" not in mlflow_run(tracking, Path("run")).data.metrics
    fedsac.resume("run", watcher=make("mlflow"))
    check_mlflow(tracking, Path("run"))


@needs_mlflow
@mlflows_warnings
def test_mlflows_runs_do_not_mix(tracking, monkeypatch):
    monkeypatch.setattr("fedsac.runs.loggers.mlflow.METRICS_AT_ONCE", 7)  # several messages a round
    configs = [SMALL, SMALL.replace(method="fedavg", rounds=6)]
    fedsac.run_together(configs, [Path("one"), Path("two")], make("mlflow"))
    for folder, config in zip(("one", "two"), configs, strict=True):
        check_mlflow(tracking, Path(folder), config)
    old = mlflow_run(tracking, Path("two")).info.run_id
    fedsac.run(SMALL, "two", overwrite=True, watcher=make("mlflow"))
    check_mlflow(tracking, Path("two"))
    assert mlflow_run(tracking, Path("two")).info.run_id != old
    tracking.delete_run(mlflow_run(tracking, Path("one")).info.run_id)
    fedsac.resume("one", watcher=make("mlflow"))  # a new one, with all of it
    check_mlflow(tracking, Path("one"))


@needs_mlflow
@mlflows_warnings
def test_mlflow_without_a_folder(tracking, tmp_path):
    result = fedsac.run(SMALL, watcher=make("mlflow"))
    experiment = tracking.get_experiment_by_name(tmp_path.name)
    (run,) = tracking.search_runs([experiment.experiment_id])
    assert run.info.run_name == "fedsac-digits-pow-seed0" and run.info.status == "FINISHED"
    assert run.data.metrics["accuracy/max_reward"] == max(result.rewards)


@needs_mlflow
@mlflows_warnings
def test_mlflow_is_told_not_to_report_on_its_users(tracking):
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
