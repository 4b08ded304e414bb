"""One model from many submodels: each parameter is averaged over the clients that hold it (Eq. 8 and 9)."""

import torch
from torch import Tensor

from fedsac.core import given
from fedsac.core.graphs import run_as_graph
from fedsac.core.module_layout import AnyLayout, ModuleLayout
from fedsac.errors import FedsacError


def aggregate(models: given.Values, held: given.Values, previous: given.Values) -> Tensor:
    """The new global model [parameters], from trained models [k, parameters] and the parameters `held` by each client
    (boolean, same shape).

    A parameter that no client holds keeps its `previous` value. Clients are not weighted by their number of samples.
    Values outside `held` are ignored; inside, they must be finite.

    >>> models = torch.tensor([[1., 2., 3.], [3., 9., 9.]])
    >>> held = torch.tensor([[True, True, False], [True, False, False]])
    >>> aggregate(models, held, previous=torch.tensor([0., 0., 7.])).tolist()
    [2.0, 2.0, 7.0]
    """
    own, mask, before = given.tensor("models", models), given.tensor("held", held), given.tensor("previous", previous)
    if own.ndim != 2 or not len(own) or mask.shape != own.shape or before.shape != own.shape[1:]:
        raise FedsacError(
            "aggregate takes models [clients, parameters], held of the same shape and previous [parameters], not "
            f"{', '.join(str(tuple(one.shape)) for one in (own, mask, before))}"
        )
    if mask.dtype != torch.bool:
        raise FedsacError(f"held must be a boolean mask, not {mask.dtype}")
    if not own.is_floating_point():
        own = own.double()
    merged = aggregate_unchecked(own, mask.to(own.device), before.to(own))
    if not merged.isfinite().all():
        raise FedsacError(
            f"aggregate: {int((~merged.isfinite()).sum())} of {merged.numel()} parameters would be NaN or infinite; "
            "leave out clients whose models are not finite"
        )
    return merged


def aggregate_unchecked(models: Tensor, held: Tensor, previous: Tensor) -> Tensor:
    """`aggregate` without looking at the numbers, which would wait for a GPU to finish its queued work."""
    total = torch.where(held, models, 0).sum(0)
    holders = held.sum(0)
    return torch.where(holders > 0, total / holders.clamp_min(1), previous)


def aggregate_submodels(layout: AnyLayout, models: Tensor, neurons: Tensor, previous: Tensor) -> Tensor:
    """`aggregate`, from masks of the neurons [k, neurons] that each client holds.

    On a CPU, layer by layer and client by client, so that sums stay in its cache: five times faster than with a mask
    [k, parameters]. On a GPU, as `aggregate_unchecked`: there, few large operations are faster.
    """
    if models.is_cuda:
        sent = models, neurons, previous
        return run_as_graph(
            lambda m, n, before: (aggregate_unchecked(m, layout.held(n), before),), sent, ("Eq. 9", layout)
        )[0]
    if isinstance(layout, ModuleLayout):
        return _aggregate_one_by_one(layout, models, neurons, previous)
    new = previous.clone()
    layers = zip(layout.views(models), layout.views(new), layout.ends(neurons), strict=True)
    for (weights, biases), (weight, bias), (inputs, outputs) in layers:
        # How many clients hold a weight: those that hold both its input and its output neuron.
        holders = inputs.to(weight.dtype).T @ outputs.to(weight.dtype)
        total, everywhere = torch.zeros_like(weight), bool(inputs.all())
        for own, i, o in zip(weights, inputs, outputs, strict=True):
            total += torch.where(o if everywhere else i.unsqueeze(1) & o, own, 0)
        torch.where(holders > 0, total.div_(holders.clamp_min(1)), weight, out=weight)
        bias.copy_(aggregate_unchecked(biases, outputs, bias))
    return new


def _aggregate_one_by_one(layout: ModuleLayout, models: Tensor, neurons: Tensor, previous: Tensor) -> Tensor:
    """`aggregate`, with one client's mask [parameters] at a time in memory."""
    total, holders = torch.zeros_like(previous), torch.zeros_like(previous)
    for model, mask in zip(models, neurons, strict=True):
        held = layout.held(mask)
        total += torch.where(held, model, 0)
        holders += held
    return torch.where(holders > 0, total / holders.clamp_min(1), previous)


def aggregate_submodels_damped(
    layout: AnyLayout, models: Tensor, neurons: Tensor, previous: Tensor, least_holders: float
) -> Tensor:
    """`aggregate_damped`, from masks of the neurons [k, neurons] that each client holds."""

    def work(models: Tensor, neurons: Tensor, previous: Tensor) -> tuple[Tensor]:
        return (aggregate_damped(models, layout.held(neurons), previous, least_holders),)

    return run_as_graph(work, (models, neurons, previous), ("damped", layout, least_holders))[0]


def aggregate_damped(models: Tensor, held: Tensor, previous: Tensor, least_holders: float) -> Tensor:
    """previous + (sum of the holders' updates) / max(holders, least_holders), [parameters]; shapes as in `aggregate`.

    Under Eq. 9 a parameter that a single client holds takes that client's whole local update. The most important
    neurons are held by one or few clients, and would be fitted to the few classes these have. Here such a parameter
    moves by 1/least_holders of the update.

    >>> models, held = torch.tensor([[4., 4.], [8., 0.]]), torch.tensor([[True, True], [True, False]])
    >>> aggregate_damped(models, held, previous=torch.zeros(2), least_holders=2.).tolist()
    [6.0, 2.0]
    """
    updates = torch.where(held, models - previous, 0).sum(0)
    return previous + updates / held.sum(0).clamp_min(max(1.0, least_holders))
