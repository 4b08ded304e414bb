"""FedAVE against numbers of its authors' code (tests/golden/published/fedave.json)."""

import pytest
import torch

from fedsac import Config
from fedsac.clients.rounds import train_round
from fedsac.compute import evaluation
from fedsac.contributions.base import Contributions
from fedsac.methods import make
from fedsac.methods.cgsv import quota
from fedsac.methods.fedave import FedAVE
from fedsac.runs.setup import prepare
from tests.golden import published

NUMBERS = published.numbers("fedave")
CASES = NUMBERS["cases"]


def played(case, **options):
    """The method and its state after each round; clients report the losses that the published code had of them."""
    v = published.validation(NUMBERS["validation"], NUMBERS["labels"])
    given = published.task(NUMBERS, validation=v)
    method = FedAVE(reward_by="own", length=NUMBERS["length"], beta=NUMBERS["beta"], **options)
    state, states = method.start(given), []
    for round, steps in enumerate(NUMBERS["steps"]):
        told = [torch.tensor(own, dtype=torch.float64) for own in case["client_losses"][round]]
        state = published.answer(method, given, state, round, steps, range(3), batch_losses=told)
        states.append(state)
    return method, states


def worst(ours, theirs):
    return float((ours - torch.tensor(theirs, dtype=torch.float64)).abs().max())


@pytest.mark.parametrize(("name", "one_object"), [("copies", False), ("one object", True)])
def test_the_published_code(name, one_object):
    """It divides updates by their length + 1e-7, we by their length: what is added differs by 1 part in 10^7."""
    case = CASES[name]
    method, states = played(case, one_object=one_object)
    for round, state in enumerate(states):
        assert worst(state["k"], case["k"][round]) < 1e-6
        assert worst(state["rep"], case["reputations"][round]) < 1e-6
        assert worst(quota(state["rep"], method.beta) * state["k"], case["quotas"][round]) < 1e-6
        assert worst(state["models"], case["models"][round]) < 1e-6


def test_without_one_object_the_first_rewards_are_not_added_up():
    start = torch.tensor(NUMBERS["initial"], dtype=torch.float64)
    apart, together = (torch.tensor(CASES[name]["models"][1]).double() - start for name in ("copies", "one object"))
    torch.testing.assert_close(apart.cumsum(0), together, rtol=0, atol=1e-6)
    assert worst(apart, together.tolist()) > 0.1


def test_the_paper_s_reading_measures_trained_models():
    case = CASES["copies"]
    assert worst(played(case, reading="paper")[1][0]["k"], case["k"][0]) > 0.01


@pytest.mark.parametrize("reading", ["code", "paper"])
def test_clients_report_the_losses_that_the_reading_wants(reading):
    options = {"reward_by": "own", "reading": reading}
    config = Config(method="fedave", clients=3, hidden=(8,), local_steps=4, dtype="float64", options=options)
    prepared, method = prepare([config])[0], make(config)
    c = Contributions((0.3, 0.4, 0.5), (0.3, 0.4, 0.5))
    task = prepared.task(prepared.members, c)
    given = method.assign(task, method.start(task))
    updates = train_round([(prepared.clients, given, 0)], lambda round, name: name == "client-02")[0]
    models = given.models[[0, 2]] if reading == "code" else updates.params
    rows = [prepared.clients.rows[i] for i in (0, 2)]
    expected = evaluation.batch_losses(task.layout, models, prepared.clients.pool, rows)
    assert [own.tolist() for own in updates.batch_losses] == [own.tolist() for own in expected]
