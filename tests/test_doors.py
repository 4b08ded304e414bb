"""Everything that can be named: the examples of docs/extending.md as printed, and what is wrong in one line."""

import importlib.util
import json
import re
import shlex
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

import fedsac
from fedsac import Config, FedsacError, Update
from fedsac.cli import main
from fedsac.contributions.base import in_unit_range
from fedsac.core.allocation import reputation
from fedsac.doors import ALL, BEHAVIOURS, CONTRIBUTIONS, DATA, METHODS, METRICS, NETWORKS, SCENES
from fedsac.runs.folder import Folder

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"as `(\w+\.\w+)`:\n\n```\w+\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^    (?:PYTHONPATH=\. )?fedsac (.*)$", PAGE, flags=re.MULTILINE)
QUICK = ["--rounds", "2", "--clients", "4", "--hidden", "16", "--local-steps", "3", "--standalone-steps", "10"]
TINY = Config(rounds=2, clients=4, hidden=(16,), local_steps=3, standalone_steps=10)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The page's files where the page says, and that folder current and on the path."""
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    (tmp_path / "half.py").write_text("def scene(deal:\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in (*FILES, "wrong.py", "half.py"):
        sys.modules.pop(name.removesuffix(".py"), None)


# -- the page


@pytest.mark.parametrize(
    ("file", "lines"),
    [("myscenes.py", 15), ("mymeasures.py", 20), ("mymetrics.py", 10), ("myattacks.py", 15), ("myriders.py", 15)],
)
def test_examples_are_short(file, lines):
    assert 0 < len(FILES[file].splitlines()) <= lines


def test_the_page_has_an_example_of_everything():
    assert {*FILES} == {
        *("myscenes.py", "mydata.py", "mymeasures.py", "mymetrics.py", "mynetworks.py", "myattacks.py", "myriders.py"),
        *("shares.csv", "shares.json"),
    }
    assert len(COMMANDS) == len(PRINTED) == 11


def printed(key: str, capsys) -> tuple[str, dict]:
    """Run the one command of the page with this text in it: what it prints, and its run's summary, if it is a run."""
    (command,) = [command for command in COMMANDS if key in command]
    assert main(shlex.split(command)) == 0
    runs = [path for path in Path("runs").glob("*") if (path / "summary.json").exists()]
    summary = json.loads((runs[0] / "summary.json").read_text()) if runs else {}
    return capsys.readouterr().out, summary


def said(number: str) -> float:
    assert number in PAGE
    return float(number)


def scene_is_dealt(out, summary):
    assert summary["samples"] == [906, 130, 130, 129]
    assert "reads 906, 130, 130 and 129" in " ".join(PAGE.split())
    assert sum(summary["samples"]) == said("1295") and round(0.7 * 1295) == 906


def data_is_checked(out, summary):
    line = "mydata.cancer: 569 samples, 30 features, 2 classes (benign, malignant), no test samples"
    assert " ".join(out.split()) == line and line in " ".join(PAGE.split())


def data_is_used(out, summary):
    assert summary["metric"] == "auc" and summary["client_names"][4] == "client-05"
    assert min(summary["rewards"]) > said(".9")


def measure_decides(out, summary):
    deciding = summary["contributions_deciding"]
    assert [f"{value:.3f}"[1:] for value in deciding] == [".769", ".909", ".902", ".916"]
    assert "(.769, .909, .902 and .916)" in PAGE and "decides" in out
    assert summary["contribution"] == "mymeasures:nearest_mean"
    assert summary["reputations"] == pytest.approx(reputation(in_unit_range(deciding), 5.0).tolist())


def given_decide(out, summary):
    assert summary["contribution"] == "given" and summary["contributions_deciding"] == [1, 2, 4]
    assert summary["reputations"] == pytest.approx(reputation([0.25, 0.5, 1], 5.0).tolist())
    assert "given in shares.csv" in " ".join(out.split())


def metric_is_the_score(out, summary):
    assert summary["metric"] == "mymetrics:worst_recall"
    config = Config(method="fedavg", scene="iid", clients=4, rounds=20)
    accuracies = fedsac.run(config).rewards
    assert all(worst <= accuracy for worst, accuracy in zip(summary["rewards"], accuracies, strict=True))
    assert 0 < max(summary["rewards"]) < max(accuracies)


def network_is_the_factorys(out, summary):
    assert re.search(r"1\d\d/128", out) and "counts out of 128" in PAGE
    (folder,) = Path("runs").iterdir()
    assert "hidden = [96, 32]" in (folder / "config.toml").read_text()


def some_are_absent(out, summary):
    (folder,) = Path("runs").iterdir()
    answered = [len(json.loads(line)["answered"]) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert len(answered) == 10 and 0.5 < sum(answered) / 40 < 0.9


def some_are_late(out, summary):
    config = Config(clients=4, rounds=10)
    honest = fedsac.run(config)
    assert summary["contributions"] == list(honest.contributions.validation)
    assert summary["rewards"] != list(honest.rewards)


def the_mean_is_ruined(out, summary):
    (folder,) = Path("runs").iterdir()
    rows = json.loads((folder / "results.json").read_text())["rows"]
    best = {row["method"]: row["max"] for row in rows if row["label"] == "last"}
    assert max(best["fedavg"]) < said(".3")
    assert min(best["cgsv"]) > said(".8")
    honest = fedsac.run(Config(method="fedavg", scene="iid", clients=4, rounds=10))
    assert f"{max(honest.rewards):.2f}"[1:] == ".96" and said(".96")


def the_rider_is_paid(out, summary):
    rewards = summary["rewards"]
    assert abs(rewards[-1] - np.mean(rewards)) < said(".05") and min(rewards) > 0.5


PRINTED = {
    "myscenes:one_rich": scene_is_dealt,
    "data check mydata:cancer": data_is_checked,
    "--data mydata:cancer": data_is_used,
    "mymeasures:nearest_mean": measure_decides,
    "--contributions shares.csv": given_decide,
    "mymetrics:worst_recall": metric_is_the_score,
    "mynetworks:narrowing": network_is_the_factorys,
    "absent:0.3": some_are_absent,
    "late:0.5": some_are_late,
    "myattacks:sign_flip": the_mean_is_ruined,
    "myriders:free_rider": the_rider_is_paid,
}


@pytest.mark.parametrize("key", PRINTED)
def test_commands_do_what_the_page_says(key, capsys):
    PRINTED[key](*printed(key, capsys))


def test_json_says_the_same_as_csv():
    one, other = (fedsac.run(TINY.replace(clients=3, contributions=f"shares.{kind}")) for kind in ("csv", "json"))
    assert one.summary() == other.summary()


def test_the_attack_and_the_rider_send_what_their_page_says():
    from myattacks import sign_flip
    from myriders import free_rider

    def update(received, trained, memory, parameter=None):
        return Update(
            received=torch.tensor(received),
            trained=torch.tensor(trained),
            neurons=torch.ones(2, dtype=torch.bool),
            everyone=torch.zeros(2, 2),
            clients=("a", "b"),
            memory=memory,
            parameter=parameter,
            rng=np.random.default_rng(0),
        )

    assert sign_flip(0, "a", update([1.0, 2.0], [2.0, 4.0], {}, "5")).tolist() == [-4.0, -8.0]
    assert sign_flip(0, "b", update([1.0, 2.0], [2.0, 4.0], {}, "5")).tolist() == [2.0, 4.0]
    memory = {}
    assert free_rider(0, "b", update([1.0, 2.0], [9.0, 9.0], memory)).tolist() == [1.0, 2.0]
    assert free_rider(1, "b", update([2.0, 5.0], [9.0, 9.0], memory)).tolist() == [3.0, 8.0]
    assert free_rider(1, "a", update([2.0, 5.0], [9.0, 9.0], memory)).tolist() == [9.0, 9.0]


def test_what_the_page_names_is_there():
    from fedsac import Deal, Measurement
    from fedsac.clients.population import Clients
    from fedsac.core.units import Layout

    kinds = {
        **{"deal": Deal, "update": Update, "run": Measurement, "run.clients": Clients, "layout": Layout},
        "fedsac": fedsac,
    }
    named = re.findall(r"[`@ ](run\.clients|deal|update|run|layout|fedsac)\.(\w+)", PAGE)
    assert len(set(named)) > 20
    for kind, part in set(named) - {("fedsac", "run")}:
        there = kinds[kind]
        assert part in getattr(there, "__dataclass_fields__", {}) or hasattr(there, part), f"{kind}.{part}"
    for path in re.findall(r"`(src/[\w/.]+)`", PAGE):
        assert (Path(__file__).resolve().parents[1] / path).exists(), path


def test_python_takes_what_the_command_takes(capsys):
    text = "myscenes:one_rich:0.7"
    assert f'fedsac.run(Config(scene="{text}"))' in PAGE
    by_name = fedsac.run(TINY.replace(scene=text))
    assert main(["run", "--scene", text, *QUICK, "--json", "--out", "run"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["samples"] == list(by_name.samples) and found["rewards"] == list(by_name.rewards)
    (Path.cwd() / "own.toml").write_text(f'scene = "{text}"\nclients = 4\n')
    assert Config(**fedsac.config.read(Path("own.toml"))).scene == text


# -- the built-in names

BUILT_IN = [
    (door, name)
    for door in ALL
    for name, entry in door.entries.items()
    # Loggers come with extras that need not be installed.
    if door.kind != "log" or (importlib.util.find_spec("fedsac.runs.loggers") is not None and name == "csv")
]


@pytest.mark.parametrize(("door", "name"), BUILT_IN, ids=lambda part: getattr(part, "kind", part))
def test_every_built_in_name_leads_somewhere(door, name):
    assert callable(door.resolve(name if door.entries[name].parameter is None else f"{name}:0.5"))
    assert door.entries[name].what
    assert (Path(__file__).resolve().parents[1] / "docs" / door.page).exists() or door.kind == "log"


@pytest.mark.parametrize("text", ["absent:0.2", "absent:0.20", "absent:.2", "absent:2e-1", "absent: 0.2"])
def test_one_thing_has_one_spelling(text):
    assert Config(behaviour=text).behaviour == "absent:0.2"


def test_the_spelling_does_not_change_what_is_drawn():
    one, other = (fedsac.run(TINY.replace(behaviour=text)) for text in ("absent:0.5", "absent:.50"))
    assert one.records == other.records


@pytest.mark.parametrize("text", ["absent:1.5", "late:2", "absent:0", "absent:-0.1", "absent:nan", "absent:inf"])
def test_a_probability_is_at_most_1(text):
    name = text.partition(":")[0]
    with pytest.raises(FedsacError, match=f"{name} needs a number above 0 and at most 1, as in {name}:0.5"):
        Config(behaviour=text)
    assert Config(behaviour=f"{name}:1").behaviour == f"{name}:1.0"


@pytest.mark.parametrize("text", ["absent", "absent:", "late", "absent:x", "absent:0.2:3"])
def test_a_probability_has_to_be_there(text):
    with pytest.raises(FedsacError, match="needs a number above 0 and at most 1"):
        Config(behaviour=text)


def test_an_alpha_has_no_upper_bound():
    assert Config(scene="dir:1e6").scene == "dir:1000000.0"


@pytest.mark.parametrize("door", [METRICS, NETWORKS, CONTRIBUTIONS, METHODS], ids=lambda door: door.kind)
def test_what_takes_no_parameter_refuses_one(door):
    first = next(iter(door))
    for text in (f"{first}:3", "mine:own:3")[: 1 if door is NETWORKS else 2]:  # a network of one's own may take one
        with pytest.raises(FedsacError, match=r"takes no parameter; leave :3 out"):
            door.parse(text)


def test_own_things_keep_their_parameter_as_it_is():
    assert SCENES.parse("mine:own:3") == ("mine:own", "3")
    assert BEHAVIOURS.parse("my.module:own:a:b") == ("my.module:own", "a:b")
    assert Config(scene="mine:own:1").scene == "mine:own:1"


# -- what is wrong

WRONG = """
import numpy as np
import torch
from torch import nn

CONSTANT = 3


def too_few(deal):
    return np.array_split(np.arange(len(deal.labels)), deal.clients - 1)

def nothing(*given):
    return None

def beyond(deal):
    return [np.array([0, len(deal.labels)])] * deal.clients

def negative(deal):
    return [np.array([-1])] * deal.clients

def fractions(deal):
    return [np.array([0.5])] * deal.clients

def empty(deal):
    return [np.arange(3)] * (deal.clients - 1) + [np.arange(0)]

def masks(deal):
    return [np.ones(len(deal.labels), dtype=bool)] * deal.clients

def short(run, on):
    return [1.0] * (len(run.clients.names) - 1)

def nan(run, on):
    return [float("nan")] * len(run.clients.names)

def words(run, on):
    return ["much"] * len(run.clients.names)

def endless(labels, probabilities):
    return float("inf")

def each_class(labels, probabilities):
    return np.ones(3)

def three(features, classes, width):
    return nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, classes))

def convolution(shape, classes):
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Linear(4, classes))

def five(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 5))

def linear(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))

def fails(shape, classes):
    return 1 / 0

def narrow(features, classes):
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, classes))

def half_a_model(round, client, update):
    return update.trained[:10]

def a_list(round, client, update):
    return update.trained.tolist()

def in_place(round, client, update):
    update.everyone.zero_()
    return update.trained

def a_set(round, client, update):
    update.memory["seen"] = {1, 2}
    return update.trained

def one_array():
    return np.zeros((40, 3))

def ragged():
    return [[1, 2], [3]], [0, 1]

def unlabelled():
    return np.zeros((40, 3)), np.arange(39)

def labels_in_columns():
    return np.zeros((40, 3)), np.zeros((40, 2), dtype=int)

def unlike():
    return np.zeros((40, 3)), np.arange(40) % 2, np.zeros((40, 2)), np.arange(40) % 2
"""

ERRORS = [
    ("--scene halfs", "no scene 'halfs'; there are pow, cla, dir:ALPHA, dir-class:ALPHA, iid, or module:attribute"),
    ("--scene power", "no scene 'power' (did you mean pow?)"),
    ("--metric macrof1", "no metric 'macrof1' (did you mean macro-f1?)"),
    ("--metric precision", "no metric 'precision'; there are accuracy, balanced-accuracy, macro-f1, auc"),
    ("--contribution shaply", "no contribution 'shaply' (did you mean shapley?)"),
    ("--network conv", "no network 'conv'; there are mlp, cnn, resnet18:WIDTH, resnet18-gn:WIDTH, vit-tiny, text"),
    ("--network cnn", "the network cnn needs images of 16 x 16 at least, not 8 x 8"),
    ("--network resnet18:wide", "network resnet18:wide: what stands behind the colon must be a whole number above 0"),
    ("--network mlp --augment flip --data mydata:cancer", "augment is for images, and network mlp is given none"),
    ("--behaviour evil", "no behaviour 'evil'; there are absent:PROBABILITY, late:PROBABILITY, or module:attribute"),
    ("--data digit", "'digit' is neither a data set nor a file or folder here (did you mean digits?)"),
    *(
        (f"--{flag} nowhere:it", f"{kind} 'nowhere:it' cannot be imported: No module named 'nowhere'")
        for flag, kind in (
            *(("scene", "scene"), ("metric", "metric"), ("contribution", "contribution"), ("network", "network")),
            *(("behaviour", "behaviour"), ("data", "data set"), ("method", "method")),
        )
    ),
    *(
        (f"--{flag} wrong:it", "cannot be imported: module 'wrong' has no attribute 'it'")
        for flag in ("scene", "metric", "contribution", "network", "behaviour", "data", "method")
    ),
    *(
        (f"--{flag} wrong:CONSTANT", "must be a function or a class, not int")
        for flag in ("scene", "metric", "contribution", "network", "behaviour", "data", "method")
    ),
    ("--scene half:scene", "scene 'half:scene' cannot be imported: '(' was never closed (half.py, line 1)"),
    ("--metric mine:own:3", "metric mine:own takes no parameter; leave :3 out"),
    ("--scene wrong:too_few", "scene wrong:too_few must serve 4 clients, and serves 3"),
    ("--scene wrong:nothing", "scene wrong:nothing must return a list of positions for each client, not NoneType"),
    ("--scene wrong:beyond", "scene wrong:beyond must give positions from 0 to 1294"),
    ("--scene wrong:negative", "scene wrong:negative must give positions from 0 to 1294"),
    ("--scene wrong:fractions", "scene wrong:fractions must give positions from 0 to 1294"),
    ("--scene wrong:masks", "scene wrong:masks must give positions from 0 to 1294"),
    ("--scene wrong:empty", "scene wrong:empty must give each of 4 clients at least one sample"),
    ("--contribution wrong:short", "contribution wrong:short must give a number for each of 4 clients, not [1.0, 1.0"),
    ("--contribution wrong:nan", "contribution wrong:nan must give a number for each of 4 clients, not [nan"),
    ("--contribution wrong:nothing", "contribution wrong:nothing must give a number for each of 4 clients, not None"),
    ("--contribution wrong:words", "contribution wrong:words must give a number for each of 4 clients, not ['much'"),
    ("--metric wrong:nothing", "the metric nothing returned None: make it return one finite number"),
    ("--metric wrong:endless", "the metric endless returned inf: make it return one finite number"),
    ("--metric wrong:each_class", "the metric each_class returned array([1., 1., 1.])"),
    ("--network wrong:three", "network wrong:three must take the input's shape (or features) and classes, or nothing"),
    ("--network wrong:nothing", "network wrong:nothing must return a torch module; it returns NoneType"),
    ("--network wrong:convolution", "network wrong:convolution does not take inputs of shape 1x8x8, as the data has"),
    ("--network wrong:five", "network wrong:five must give a score for each of 10 classes, not (5,)"),
    ("--network wrong:linear", "network wrong:linear: none of its units can be cut"),
    ("--network wrong:fails", "network wrong:fails fails: ZeroDivisionError: division by zero"),
    (
        "--network wrong:narrow",
        "network wrong:narrow: it takes 5 features and knows 10 classes; the data has 64 and 10",
    ),
    (
        "--behaviour wrong:half_a_model",
        "behaviour wrong:half_a_model must return a model of shape (1210,), or None, not a",
    ),
    ("--behaviour wrong:a_list", "behaviour wrong:a_list must return a model of shape (1210,), or None, not list"),
    ("--behaviour wrong:in_place", "behaviour wrong:in_place changes update.everyone in place; let it work on a clone"),
    ("--behaviour wrong:a_set", "behaviour wrong:a_set remembers 'seen' as set; memory holds tensors and JSON values"),
    ("--behaviour absent:1.5", "behaviour 'absent:1.5': absent needs a number above 0 and at most 1"),
    ("--data wrong:nothing", "wrong:nothing must return x and y, or x, y, x_test and y_test"),
    ("--data wrong:one_array", "wrong:one_array must return x and y, or x, y, x_test and y_test"),
    ("--data wrong:ragged", "wrong:ragged: x or y is no array"),
    ("--data wrong:unlabelled", "wrong:unlabelled: 39 labels for 40 samples"),
    ("--data wrong:labels_in_columns", "wrong:labels_in_columns: y has 2 dimensions; return one label a sample"),
    ("--data wrong:unlike", "wrong:unlike: x_test"),
    ("--contributions shares.csv --contribution shapley", "so shapley would decide nothing"),
]


@pytest.mark.parametrize(("flags", "says"), ERRORS, ids=[flags for flags, _ in ERRORS])
def test_what_is_wrong_is_one_line_and_leaves_nothing(flags, says, capsys):
    before = sorted(Path().rglob("[!_]*"))
    assert main(["run", *QUICK, *flags.split(), "--out", "out"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("fedsac: ") and says in err.splitlines()[-1] and "Traceback" not in err
    assert [path for path in sorted(Path().rglob("[!_]*")) if "__pycache__" not in path.parts] == before


@pytest.mark.parametrize("flags", ["--behaviour wrong:a_list", "--metric nowhere:it", "--scene wrong:too_few"])
def test_a_comparison_that_fails_at_once_leaves_nothing(flags, capsys):
    command = ["compare", *QUICK, *flags.split(), "--methods", "fedavg,fedsac", "--seeds", "1", "--out", "out"]
    assert main(command) == 2
    assert not Path("out").exists()
    assert main(["compare", *QUICK, "--methods", "fedavg,fedsac", "--seeds", "1", "--out", "out"]) == 0


def test_the_api_raises_the_same(here):
    with pytest.raises(FedsacError, match="must return a model of shape"):
        fedsac.run(TINY.replace(behaviour="wrong:a_list"), here / "out")
    assert not (here / "out").exists()


def test_a_failed_run_removes_nothing_that_is_not_its_own(here):
    fedsac.run(TINY, here / "run")
    (here / "run" / "notes.txt").write_text("keep me")
    # An unknown name is found before anything is removed.
    with pytest.raises(FedsacError, match="cannot be imported"):
        fedsac.run(TINY.replace(metric="nowhere:it"), here / "run", overwrite=True)
    assert fedsac.resume(here / "run").last["round"] == 2
    with pytest.raises(FedsacError, match="a number for each"):
        fedsac.run(TINY.replace(contribution="wrong:short"), here / "run", overwrite=True)
    assert [path.name for path in (here / "run").iterdir()] == ["notes.txt"]
    (here / "empty").mkdir()
    with pytest.raises(FedsacError, match="a number for each"):
        fedsac.run(TINY.replace(contribution="wrong:short"), here / "empty")
    assert list((here / "empty").iterdir()) == []


def test_a_run_that_fails_later_is_kept_and_can_go_on(here):
    (here / "wrong.py").write_text(
        "def tired(round, client, update):\n    return update.trained if round < 1 else 'enough'\n"
    )
    config = TINY.replace(rounds=3, behaviour="wrong:tired")
    with pytest.raises(FedsacError, match="behaviour wrong:tired must return a model"):
        fedsac.run(config, here / "run")
    assert len((here / "run" / "rounds.jsonl").read_text().splitlines()) == 1
    (here / "wrong.py").write_text("def tired(round, client, update):\n    return update.trained\n")
    sys.modules.pop("wrong")
    assert fedsac.resume(here / "run").rewards == fedsac.run(TINY.replace(rounds=3)).rewards


def test_a_metric_that_fails_in_the_first_round_leaves_nothing(here):
    """Standing alone is scored before, with the same metric: 4 models on V and on the test set."""
    (here / "wrong.py").write_text(
        "CALLS = []\n\n\ndef late_nan(labels, probabilities):\n"
        "    CALLS.append(1)\n    return 0.5 if len(CALLS) <= 8 else float('nan')\n"
    )
    with pytest.raises(FedsacError, match="the metric late_nan returned nan"):
        fedsac.run(TINY.replace(metric="wrong:late_nan"), here / "run")
    assert not (here / "run").exists()


def test_where_a_write_failed_the_run_stays(here):
    with Folder.create(here / "run", TINY) as folder:
        (here / "run" / "rounds.jsonl").unlink()
        (here / "run" / "rounds.jsonl").mkdir()
        with pytest.raises(FedsacError, match="cannot be written"):
            folder.log([{"round": 1}])
        folder.discard()
    assert (here / "run" / "config.toml").exists()


def test_data_functions_are_no_files(here):
    """A file of that name goes first, and a function's data is named by the function."""
    assert DATA.resolve("digits").__name__ == "digits"
    result = fedsac.run(TINY.replace(data="mydata:cancer", scene="iid"), here / "run")
    assert result.config.data == "mydata:cancer"
    assert fedsac.resume(here / "run").summary() == result.summary()


def test_the_help_of_network_names_all_there_are():
    (told,) = (field.metadata["help"] for field in fields(Config) if field.name == "network")
    assert told.startswith(f"{NETWORKS.names()} or module:factory")
