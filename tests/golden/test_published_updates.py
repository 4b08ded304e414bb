"""Our server steps against numbers that the methods' published code gave, on the same small updates.

tests/golden/published has numbers only: `updates.json` is what went in (four clients, a network of 2-3-3-4, updates of
three rounds, a validation set), the others are what came out, each with the repository, the files and the commit it was
made with. The published code ran in float64 as far as it lets itself; it adds 1e-7 to lengths against division by zero
and rounds some weights to float32, so that agreement ends at about 1e-6. docs/conformance.md tells what was found.
"""

import json
from pathlib import Path

import pytest
import torch

from fedsac.compute.samples import Samples
from fedsac.contributions import shapfed
from fedsac.contributions.fedavg_rounds import FedAvgRound
from fedsac.core.units import Layout
from fedsac.methods.base import Task
from fedsac.methods.cffl import CFFL
from fedsac.methods.cgsv import CGSV, quota
from fedsac.methods.qffl import QFFL
from fedsac.methods.rffl import RFFL
from tests.golden import small

PUBLISHED = Path(__file__).parent / "published"


def read(name):
    return json.loads((PUBLISHED / f"{name}.json").read_text(encoding="utf-8"))


GIVEN = read("updates")


def task(**changes):
    points = torch.tensor(GIVEN["points"], dtype=torch.float64)
    one, zero = torch.ones(1, 2, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    settings = {
        "samples": tuple(GIVEN["samples"]),
        "size_shares": tuple(n / max(GIVEN["samples"]) for n in GIVEN["samples"]),
        "contributions": tuple(GIVEN["contributions"]),
        "lr": 0.1,
    }
    return Task(
        layout=Layout(tuple(GIVEN["sizes"])),
        initial=torch.tensor(GIVEN["initial"], dtype=torch.float64),
        clients=("ann", "ben", "cem", "dia"),
        validation=Samples(points, torch.tensor(GIVEN["labels"]), one, zero),
        **settings | {"rounds": 3, "seed": 0} | changes,
    )


def steps(name):
    """Each round's updates. All but the plain ones differ from those in the first client's."""
    if name == "plain":
        return GIVEN["steps"]["plain"]
    return [[own, *rest[1:]] for own, rest in zip(GIVEN["steps"][name], GIVEN["steps"]["plain"], strict=True)]


def played(method, given, updates, rounds, told=lambda round: {}):
    """The states after each round; the updates come round again."""
    state, states = method.start(given), []
    for round in range(rounds):
        own = dict(enumerate(updates[round % len(updates)]))
        state = small.answer(method, given, state, round, own, **told(round))
        states.append(state)
    return states


def close(ours, published, tolerance=1e-6):
    torch.testing.assert_close(ours, torch.tensor(published, dtype=ours.dtype), rtol=0, atol=tolerance)


def cases(name, label):
    return pytest.mark.parametrize("case", read(name)["cases"], ids=label)


@cases("qffl", lambda case: f"q={case['q']:g}")
def test_qffl(case):
    def losses(round):
        return {"local_losses": torch.tensor(GIVEN["losses"][round], dtype=torch.float64)}

    states = played(QFFL(q=case["q"]), task(lr=case["lr"]), steps("plain"), 3, losses)
    for state, published in zip(states, case["models"], strict=True):
        close(state["model"], published, 1e-9)


@cases("cgsv", lambda case: f"{case['steps']}-{case['beta']:g}")
def test_cgsv(case):
    method = CGSV(beta=case["beta"], length=case["length"], reward_by="own")
    states = played(method, task(), steps(case["steps"]), 3)
    for state, published in zip(states, case["rounds"], strict=True):
        close(state["r"], published["r"])
        close(quota(state["r"], case["beta"]), published["q"])
        close(state["models"], published["models"])


def test_cgsv_as_in_its_paper_takes_the_largest_entries_of_the_whole_update():
    """Of 37 entries, whoever has the highest reputation gets all, the others floor(37 q)."""
    method, given = CGSV(beta=2.0, reward_by="own", reading="paper"), task()
    state = played(method, given, steps("plain"), 1)[0]
    moved = state["models"] - given.initial
    q = quota(state["r"], 2.0)
    assert (moved != 0).sum(1).tolist() == [int(37 * share) for share in q.tolist()]
    whole = moved[int(q.argmax())]
    for row in moved:
        kept, lost = whole[row != 0].abs(), whole[row == 0].abs()
        assert torch.equal(row[row != 0], whole[row != 0]) and not (lost > kept.min()).any()


@cases("rffl", lambda case: case["steps"])
def test_rffl(case):
    """Updates of .62 to .79 are shortened to .6 or .5. An outsider and an opponent are removed in the 11th round, and
    train on alone; until then, what the opponent sends is subtracted."""
    rounds = case["rounds"][-1]["round"] + 1
    states = played(RFFL(length=case["length"], reward_by="own"), task(rounds=rounds), steps(case["steps"]), rounds)
    for published in case["rounds"]:
        state = states[published["round"]]
        assert state["removed"] == published["removed"]
        close(state["r"], published["r"])
        close(state["models"], published["models"])
    assert rounds == 3 or states[-1]["removed"] == [0]


def test_rffl_as_in_its_paper_removed_clients_keep_their_model():
    code, paper = (
        played(RFFL(reward_by="own", reading=reading), task(rounds=13), steps("aside"), 13)
        for reading in ("code", "paper")
    )
    assert torch.equal(paper[10]["models"][0], paper[12]["models"][0])
    assert torch.equal(paper[12]["models"][1:], code[12]["models"][1:]) and torch.equal(paper[12]["r"], code[12]["r"])
    assert not torch.equal(code[10]["models"][0], code[12]["models"][0])


CLASSES = tuple(classes / 4 for classes in (1, 2, 3, 4))  # shares of the classes that CLA gives four clients


def cffl_rounds(method, case, classes):
    given = task(size_shares=CLASSES, samples=(16,) * 4) if classes else task()
    assert given.sizes_are_classes == classes
    for state, published in zip(played(method, given, steps(case["steps"]), 3), case["rounds"], strict=True):
        assert [i for i in range(4) if i not in state["removed"]] == published["reputable"]
        close(state["r"], published["r"])
        close(state["models"], published["models"])
        yield state, published


@cases("cffl_fedsac", lambda case: f"{case['scene']}-{case['steps']}-{case['reward_by']}")
def test_cffl_as_fedsacs_authors_ran_it(case):
    method = CFFL(length=case["length"], reward_by=case["reward_by"])
    assert len(list(cffl_rounds(method, case, case["scene"] == "cla"))) == 3


@cases("cffl", lambda case: f"{case['split']}-{case['steps']}-{case['upload']}")
def test_cffl_as_published(case):
    method = CFFL(reading="code", clip=case["clip"], upload=float(case["upload"]), reward_by="own")
    for state, published in cffl_rounds(method, case, case["split"] == "classimbalance"):
        close(state["model"], published["server"])


@cases("shapfed", lambda case: case["steps"])
def test_shapfed(case):
    """The contribution measure: values of each class in each round, and what the running mean makes of them."""
    layout, initial, n = Layout(tuple(GIVEN["sizes"])), torch.tensor(GIVEN["initial"], dtype=torch.float64), 4
    updates = torch.tensor(steps(case["steps"]), dtype=torch.float64)
    rounds = [FedAvgRound(t, initial, tuple(range(n)), initial + own, torch.ones(n)) for t, own in enumerate(updates)]
    for t, published in enumerate(case["rounds"]):
        close(shapfed.class_similarities(layout, updates[t]), published["classes"])
        close(shapfed.class_contributions(layout, n, rounds[: t + 1]).mean(1), published["values"])
