"""Attacks on what contributions are measured by: false claims, borrowed models, laundering, inflation, slander."""

import torch
from torch import Tensor, from_numpy

from fedsac.attacks.base import Attack, End, Sight, Standing
from fedsac.attacks.hoarding import FineTune

CLAIM = 1.0
BORROWED_NOISE = 0.02  # standard deviation of the noise that hides a copy


class Claim(Attack):
    """Says that its contribution is 1.0, and is honest otherwise. The server measures, and does not ask."""

    def claims(self) -> float | None:
        return CLAIM


class SelfReport(Claim):
    """The same claim before the server of the paper's words, which lets clients report their contributions themselves
    and believes them. Not an attack on fedsac, but what becomes of the protocol without a server that measures."""

    believed = True


class Borrow(Attack):
    """Hands in, as trained alone, the model of the best honest client it knows: the one with the most data. A colleague
    gave it away, or it was stolen. Its rounds are honest."""

    def submit(self, standing: Standing, client: int) -> Tensor:
        return standing.models[richest(standing)]


class BorrowNoised(Borrow):
    """A borrowed model with a little Gaussian noise on every weight (standard deviation .02), so that it is no copy."""

    default = BORROWED_NOISE

    def submit(self, standing: Standing, client: int) -> Tensor:
        lent = super().submit(standing, client)
        return lent + from_numpy(standing.rng(client).normal(0, self.number or 0, len(lent))).to(lent)


class BorrowGlobal(Attack):
    """Leaves after half of the rounds and comes back with the common model of that time as trained alone, which
    somebody who holds all of it gave away; where every client has its own model, with the best client's reward."""

    rejoins = True

    def resubmit(self, end: End, common: Tensor | None, client: int) -> Tensor:
        if common is not None:
            return common
        return end.models[max(others(end), key=lambda i: len(end.clients.rows[i]))]


class Launder(Attack):
    """Leaves after half of the rounds and comes back with its own reward as trained alone: what it was paid with then
    counts as what it brings, and it is paid for it again. It knows nothing but its own reward."""

    rejoins = True


class LaunderTuned(Launder):
    """The same, but it first trains its reward on its own data for as many epochs as the number says (5): better than
    the reward alone, and no copy of it."""

    default = 5.0

    def resubmit(self, end: End, common: Tensor | None, client: int) -> Tensor:
        tuned = FineTune(f"{self.number:g}").trained(end)
        return tuned[end.hostile.index(client)].model


class Inflate(Attack):
    """Sends the mean step of the honest clients instead of its own: what ACE (arXiv 2405.20975) predicts from earlier
    rounds, predicted perfectly, and so an upper bound for it. Measures that compare updates with the common direction
    find nobody better. Alone it is honest."""

    def send(self, sight: Sight) -> Tensor | None:
        steps = torch.stack([sight.step(i) for i in sight.others])
        holders = sight.layout.held(sight.assignment.neurons[sight.others]).sum(0)
        mean = steps.sum(0) / holders.clamp_min(1)
        return sight.received + torch.where(holders > 0, mean, sight.step(sight.client))


class Slander(Attack):
    """Lowers another's score: from its own honest step it takes away the step of the honest client with the most data,
    whose update then looks as if it went astray. Alone it is honest."""

    def send(self, sight: Sight) -> Tensor | None:
        victim = max(sight.others, key=lambda i: len(sight.clients.rows[i]))
        return sight.honest_answer - sight.step(victim)


def richest(standing: Standing) -> int:
    """The honest client with the most data."""
    honest = [i for i in range(len(standing.clients.names)) if i not in standing.hostile]
    return max(honest, key=lambda i: len(standing.clients.rows[i]))


def others(end: End) -> list[int]:
    return [i for i in range(len(end.clients.names)) if i not in end.hostile]
