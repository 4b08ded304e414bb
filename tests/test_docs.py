"""What the pages in docs/ tell people to do, done."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch

import fedsac
from fedsac import Config
from fedsac.cli import main
from fedsac.methods.base import Assignment, Updates
from tests.golden import small
from tests.test_methods import StopAfter

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "adding-a-method.md").read_text(encoding="utf-8")
QUICK = ["--rounds", "3", "--clients", "4", "--hidden", "16", "--local-steps", "5", "--standalone-steps", "20"]


def example() -> str:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    return blocks[0]


@pytest.fixture(autouse=True)
def saved(tmp_path, monkeypatch):
    """The page's example where the page says, and that folder current and on the path."""
    (tmp_path / "mymethods.py").write_text(example(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("mymethods", None)


def test_the_example_is_short():
    assert len(example().splitlines()) < 40


def test_its_command_works_as_printed(capsys):
    commands = re.findall(r"^    (?:PYTHONPATH=\. )?fedsac (run .*mymethods.*)$", PAGE, flags=re.MULTILINE)
    assert len(commands) == 1
    assert main(shlex.split(commands[0])) == 0
    assert "mymethods:FedMedian on digits" in capsys.readouterr().out
    (folder,) = Path("runs").iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    c = summary["contributions"]
    # What the page says it does: pay by contribution, squared.
    assert summary["reputations"] == pytest.approx([(value / max(c)) ** 2 for value in c], abs=1e-12)
    assert summary["results"]["last"]["accuracy"]["max"] > 0.5
    assert (folder / "global.safetensors").exists()


def paid(power: str, capsys) -> list[float]:
    where = f"power-{power}"
    command = ["run", "--method", "mymethods:FedMedian", "--set", f"power={power}", *QUICK, "--json", "--out", where]
    assert main(command) == 0
    return json.loads(capsys.readouterr().out)["rewards"]


def test_its_option_is_an_option(capsys):
    assert len(set(paid("0", capsys))) == 1
    assert len(set(paid("8", capsys))) > 1
    assert main(["run", "--method", "mymethods:FedMedian", "--set", "strength=8", *QUICK]) == 2
    assert "mymethods:FedMedian has no option 'strength'; it has power" in capsys.readouterr().err
    assert main(["run", "--method", "mymethods:FedMedian", "--set", "power=high", *QUICK]) == 2
    assert "option power must be a number, not 'high'" in capsys.readouterr().err


def test_it_takes_the_median_and_pays_by_contribution():
    """By hand, entry 0: steps of .3, .2, .25 have .25 in the middle; c = .3, .4, .5 earn .6, .8, 1 of the way."""
    from mymethods import FedMedian

    given, method = small.task(), FedMedian()
    states = small.rounds(method, given)
    medians = [[sorted(entries)[1] for entries in zip(*steps, strict=True)] for steps in small.STEPS]
    assert medians[0][0] == 0.25
    way = small.add(*medians)
    assignment = method.assign(given, states[2])
    for model, earned in zip(assignment.models, (0.6, 0.8, 1.0), strict=True):
        assert model.tolist() == pytest.approx(small.add(small.INITIAL, small.times(earned, way)), abs=1e-12)
    # Two answers: half way between them; nobody: nothing.
    two = small.answer(method, given, states[0], 0, {0: small.STEPS[0][0], 2: small.STEPS[0][2]})
    half = small.weighted([0.5, 0.5], [small.STEPS[0][0], small.STEPS[0][2]])
    assert two["model"].tolist() == pytest.approx(small.add(small.INITIAL, half), abs=1e-12)
    assert torch.equal(small.answer(method, given, two, 1, {})["model"], two["model"])


def test_it_keeps_the_rules_of_its_page(tmp_path):
    """Absent clients, an interruption, another order of the clients."""
    from fedsac.data.catalogue import load
    from fedsac.data.split import split

    config = Config(method="mymethods:FedMedian", rounds=3, clients=4, hidden=(16,), local_steps=3, standalone_steps=10)
    gone = fedsac.run_together([config], absent=lambda round, name: round == 1 or name == "client-02")[0]
    assert [len(record["answered"]) for record in gone.records] == [3, 0, 3]
    dealt, order = split(load("digits"), "pow", 4, None, seed=0), [2, 0, 3, 1]
    one, other = (fedsac.run_together([config], splits=[s])[0] for s in (dealt, dealt.permuted(order)))
    assert list(other.rewards) == pytest.approx([one.rewards[i] for i in order], abs=0.01)
    with pytest.raises(KeyboardInterrupt):
        fedsac.run(config, tmp_path / "run", watcher=StopAfter(2))
    assert fedsac.resume(tmp_path / "run").summary() == one.summary()


def test_what_the_page_names_is_there():
    given = small.task()
    assignment = Assignment(given.initial.unsqueeze(0), given.everything)
    things = {"task": given, "assignment": assignment, "updates": Updates(0, (), given.initial, assignment)}
    named = set(re.findall(r"`(task|assignment|updates)\.(\w+)", PAGE))
    assert len(named) > 20
    assert [f"{thing}.{part}" for thing, part in named if not hasattr(things[thing], part)] == []
    for path in re.findall(r"`((?:src|tests)/[\w/.]+)`", PAGE):
        assert (Path(__file__).resolve().parents[1] / path).exists(), path
