"""What other methods make of the server's data: steps on V, in plain loops beside torch's own."""

from dataclasses import replace

import pytest
import torch

from fedsac import FedsacError
from fedsac.methods.base import Updates
from fedsac.methods.fedavg import FedAvg
from fedsac.methods.fedrac import FedRAC
from fedsac.methods.fedsac import FedSAC
from fedsac.methods.fedsac_plus import FedSACPlus
from fedsac.methods.server_rows import (
    FedAvgServer,
    FedAvgVClient,
    FedRACServer,
    FedSACPlusNoServer,
    FedSACServer,
    ServerAlone,
)
from tests.golden import small
from tests.golden.test_methods import RISING, WIDE

WHOLE = len(small.LABELS)


def stepped(task, params, rows, steps):
    """Full-batch gradient descent on these rows of V, by torch's autograd on a network written out here."""
    x, y = (torch.tensor(values)[rows] for values in (small.POINTS, small.LABELS))
    x = x.double() * torch.tensor(small.SCALE).double() + torch.tensor(small.SHIFT).double()
    params = params.clone().requires_grad_()
    for _ in range(steps):
        w1, b1, w2, b2 = params[:4].view(2, 2), params[4:6], params[6:10].view(2, 2), params[10:]
        loss = torch.nn.functional.cross_entropy((x @ w1 + b1).relu() @ w2 + b2, y)
        (gradient,) = torch.autograd.grad(loss, params)
        params = (params - task.lr * gradient).detach().requires_grad_()
    return params.detach()


@pytest.fixture
def task():
    # A batch as large as V: every step sees all of the server's rows, whatever order they are drawn in.
    return small.task(batch=WHOLE)


def close(found, expected):
    assert (found - expected).abs().max() <= 1e-12


def test_the_server_alone_learns_from_all_of_v_and_nothing_else(task):
    method = ServerAlone(server_steps=3)
    state = small.rounds(method, task)[-1]
    close(state["model"], stepped(task, task.initial, range(WHOLE), 6))
    given = method.assign(task, state)
    assert (given.models == state["model"]).all() and not given.extra_epoch


def test_fedavg_takes_steps_on_one_half_of_v_after_the_mean(task):
    method = FedAvgServer(server_steps=2)
    mean = small.rounds(FedAvg(), task, small.STEPS[:1])[-1]["model"]
    model = small.rounds(method, task, small.STEPS[:1])[-1]["model"]
    rows = task.stream("parts of V").permutation(WHOLE)[: WHOLE // 2]
    close(model, stepped(task, mean, rows, 2))
    whole = small.rounds(replace(method, server_share=1.0), task, small.STEPS[:1])[-1]["model"]
    close(whole, stepped(task, mean, range(WHOLE), 2))


def test_v_as_one_more_client_counts_by_its_samples(task):
    model = small.rounds(FedAvgVClient(server_steps=2), task, small.STEPS[:1])[-1]["model"]
    mean = small.rounds(FedAvg(), task, small.STEPS[:1])[-1]["model"]  # of 10 + 30 + 60 samples
    own = stepped(task, task.initial, range(WHOLE), 2)
    close(model, (100 * mean + 150 * own) / 250)


def test_it_uses_the_same_part_of_v_as_fedsac_plus(task):
    rows = task.stream("parts of V").permutation(WHOLE)[: WHOLE // 2]
    for method in (FedSACServer(server_steps=2), FedSACPlus(server_steps=2, damping=0.0)):
        without = FedSAC(calibrated=method.calibrated, server_steps=0)
        # The first round: with the same submodels, since importance and calibration look at the initial model.
        start = method.start(task)
        mean = without.aggregate(task, start, _updates(method, task, start))
        after = method.learn(task, start, _updates(method, task, start))
        close(after["model"], stepped(task, mean, rows, 2))


def test_fedrac_measures_on_what_the_server_has_not_trained_on(task):
    method = FedRACServer(server_steps=2, step=1)
    rows = task.stream("parts of V").permutation(WHOLE)
    mean = small.rounds(FedRAC(step=1), task, small.STEPS[:1])[-1]["model"]
    close(small.rounds(method, task, small.STEPS[:1])[-1]["model"], stepped(task, mean, rows[: WHOLE // 2], 2))
    rest = method.measured_on(task)
    assert rest.x.tolist() == [small.POINTS[i] for i in sorted(rows[WHOLE // 2 :])]
    with pytest.raises(FedsacError, match="server_share must be below 1"):
        FedRACServer(server_share=1.0)


def test_fedrac_gives_prefixes_by_what_the_server_has_not_trained_on():
    """As FedRAC would with the rest of V alone, which is not what it would with all of V."""
    method, plain, same = FedRACServer(step=1, beta=5.0), FedRAC(step=1, beta=5.0), []
    wide = small.task(WIDE, RISING, batch=WHOLE)
    rest = replace(wide, validation=method.measured_on(wide))
    for c in [0.15 + 0.005 * step for step in range(68)]:
        given = {"contributions": (c, 0.495, 0.5)}
        alike = [replace(each, **given) for each in (wide, rest, wide)]
        trained = torch.zeros(4, dtype=torch.int64)
        own, expected, on_all = (
            each.allocated(of, of.initial, trained, 1) for each, of in zip((method, plain, plain), alike, strict=True)
        )
        assert own.tolist() == expected.tolist()
        same.append(torch.equal(own, on_all))
    assert not all(same)


def _updates(method, task, state):
    given = method.assign(task, state)
    steps = torch.tensor(small.STEPS[0], dtype=torch.float64)
    return Updates(0, (0, 1, 2), given.models.expand(3, -1) + steps, given)


def test_fedsac_plus_without_them_differs_in_nothing_else():
    assert FedSACPlusNoServer() == replace(FedSACPlusNoServer(), **vars(FedSACPlus()) | {"server_steps": 0})


@pytest.mark.parametrize("options", [{"server_steps": 0}, {"server_share": 0.0}, {"server_share": 1.5}])
@pytest.mark.parametrize("method", [FedAvgServer, FedRACServer, FedSACServer])
def test_impossible_options(method, options):
    with pytest.raises(FedsacError, match=next(iter(options))):
        method(**options)


@pytest.mark.parametrize("share", [0.001, 1.0])
def test_possible_shares_of_v(share):
    assert FedAvgServer(server_share=share).server_share == share


@pytest.mark.parametrize("method", [FedAvgServer, FedAvgVClient, FedRACServer, ServerAlone])
def test_the_server_draws_other_batches_in_every_round(method):
    """Of 16 samples, from the same models: steps of round 0 are those of round 0 again, and not those of round 1."""
    task, one = small.task(batch=16), method(server_steps=1)
    state = one.start(task)
    first, again, second = (
        small.answer(one, task, state, round, dict(enumerate(small.STEPS[0])))["model"] for round in (0, 0, 1)
    )
    assert torch.equal(first, again) and not torch.equal(first, second)
