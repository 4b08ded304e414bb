"""Methods in detail: what they are given by default, who has which options, and numbers worked out by hand."""

import pytest
import torch

from fedsac import Config
from fedsac.methods.base import Assignment, Task, Updates
from tests.golden import small


def test_a_task_made_by_hand_trains_as_a_config_says():
    given = small.task()
    bare = Task(
        given.layout,
        given.initial,
        given.clients,
        given.samples,
        given.contributions,
        given.validation,
        rounds=1,
        seed=0,
    )
    assert (bare.lr, bare.batch) == (Config().lr, Config().batch)
    assert bare.size_shares == ()
    assert bare.metric is given.metric


def test_an_assignment_asks_for_nothing_but_a_model():
    given = Assignment(torch.zeros(1, 12), torch.ones(3, 2, dtype=torch.bool))
    assert not (given.extra_epoch or given.local_losses or given.batch_losses)
    assert given.reputations is None
    updates = Updates(0, (0, 2), torch.zeros(2, 12), given)
    assert (updates.losses, updates.diverged, updates.remarks, updates.memory) == ((), (), {}, {})
    assert updates.local_losses is updates.batch_losses is updates.traffic is None


def test_importance_is_exact_unless_told_otherwise():
    """Eq. 3, neuron by neuron and sample by sample."""
    given = small.task()
    before = sum(small.losses(small.INITIAL)) / len(small.LABELS)
    rises = [sum(small.losses(small.INITIAL, [n])) / len(small.LABELS) - before for n in (0, 1)]
    assert given.importance(given.initial).tolist() == pytest.approx(rises, abs=1e-12)
    roughly = given.importance(given.initial, exact=False)
    assert roughly.tolist() != pytest.approx(rises, abs=1e-3)


def test_the_model_that_a_client_is_given():
    common, own = torch.arange(4.0).view(1, 4), torch.arange(12.0).view(3, 4)
    neurons = torch.ones(3, 1, dtype=torch.bool)
    assert [Assignment(common, neurons).model(i).tolist() for i in range(3)] == [[0, 1, 2, 3]] * 3
    assert [Assignment(own, neurons).model(i)[0].item() for i in range(3)] == [0, 4, 8]
