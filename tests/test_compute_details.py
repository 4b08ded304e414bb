"""Training and evaluation of many models at once, in numbers worked out by hand."""

import torch

from fedsac.compute import training
from fedsac.compute.samples import Batches, Samples
from fedsac.core.units import Layout

INF, NAN = float("inf"), float("nan")


def test_finite_asks_for_numbers_in_the_model_and_in_the_loss():
    params = torch.tensor([[1.0, -2.0], [1.0, NAN], [INF, 1.0], [-INF, INF], [1.0, 1.0], [1.0, 1.0]])
    losses = torch.tensor([0.5, 0.5, 0.5, 0.5, INF, NAN])
    assert training.finite(params, losses).tolist() == [True, False, False, False, False, False]


def test_a_loss_can_overflow_while_the_weights_do_not():
    """One input, one hidden neuron, two classes. The logits are 2e38 and -2e38, so that the label's log-probability is
    -4e38, which float32 does not have; the step itself is small. The other member has the same weights over 1e38."""
    layout = Layout((1, 1, 2))
    models = torch.tensor([[1.0, 0.0, 2e38, -2e38, 0.0, 0.0], [1.0, 0.0, 2.0, -2.0, 0.0, 0.0]])
    samples = Samples(torch.ones(1, 1), torch.tensor([1]), torch.ones(1, 1), torch.zeros(1, 1))
    drawn = Batches(torch.zeros(1, 2, 1, dtype=torch.long), torch.ones(1, 2, 1))
    trained, losses = training.train(layout, models, None, samples, drawn, torch.tensor([0.1, 0.1]))
    assert trained.isfinite().all()
    assert losses[0] == INF and losses[1].isfinite()
    assert training.finite(trained, losses).tolist() == [False, True]
