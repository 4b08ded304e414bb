"""One model from many submodels: each parameter is averaged over those who held it (Eq. 8 and 9)."""

import torch
from torch import Tensor


def aggregate(models: Tensor, held: Tensor, previous: Tensor) -> Tensor:
    """The new global model [parameters], from trained models [k, parameters] and what each held (boolean, same shape).

    A parameter that nobody held keeps its `previous` value; client sizes do not weigh in; values outside `held` are
    not looked at.

    >>> models = torch.tensor([[1., 2., 3.], [3., 9., 9.]])
    >>> held = torch.tensor([[True, True, False], [True, False, False]])
    >>> aggregate(models, held, previous=torch.tensor([0., 0., 7.])).tolist()
    [2.0, 2.0, 7.0]
    """
    total = torch.where(held, models, 0).sum(0)
    holders = held.sum(0)
    return torch.where(holders > 0, total / holders.clamp_min(1), previous)


def damped(models: Tensor, held: Tensor, previous: Tensor, least: float) -> Tensor:
    """Like `aggregate`, but an average of *updates*, divided by at least `least`: max(holders, least).

    Under Eq. 9 a parameter that one client holds takes that client's whole local step, and where this client knows only
    a few classes, the most important neurons are dragged its way every round. Here it moves by 1/least of it.

    >>> models, held = torch.tensor([[4., 4.], [8., 0.]]), torch.tensor([[True, True], [True, False]])
    >>> damped(models, held, previous=torch.zeros(2), least=2.).tolist()
    [6.0, 2.0]
    """
    steps = torch.where(held, models - previous, 0).sum(0)
    return previous + steps / held.sum(0).clamp_min(max(1.0, least))
