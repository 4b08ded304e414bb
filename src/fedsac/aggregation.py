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
