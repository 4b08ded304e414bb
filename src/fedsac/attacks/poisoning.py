"""Poisoning by updates. The adversary knows every honest client's step of the round: the worst case. The vectors are
those of the papers, checked against an independent library (tests/test_attacks_vectors.py); where clients hold
submodels, mean and deviation of a parameter are taken over the honest clients that hold it."""

from collections.abc import Callable

import torch
from torch import Tensor

from fedsac.attacks.base import Attack, Sight
from fedsac.attacks.identities import whole


class SignFlip(Attack):
    """Sends the opposite of the honest clients' mean step."""

    def send(self, sight: Sight) -> Tensor | None:
        return with_step(sight, sign_flip)


class InnerProduct(Attack):
    """Inner product manipulation (Xie et al., 2020): the opposite of the mean step, twice as long, or as the number
    says."""

    default = 2.0

    def send(self, sight: Sight) -> Tensor | None:
        return with_step(sight, lambda steps, held: -(self.number or 0) * mean_and_deviation(steps, held)[0])


class LittleIsEnough(Attack):
    """ALIE (Baruch et al., 2019): the mean step plus 1.5 deviations in every coordinate, or as many as the number says:
    harm that hides among honest updates."""

    default = 1.5

    def send(self, sight: Sight) -> Tensor | None:
        return with_step(sight, lambda steps, held: little_is_enough(steps, held, self.number or 0))


class Mimic(Attack):
    """Sends the step of one honest client, the first or the one that the number says (Karimireddy et al., 2022): what
    that client's data is like counts several times."""

    default = 1.0

    def send(self, sight: Sight) -> Tensor | None:
        copied = sight.others[(whole(self.number, 1) - 1) % len(sight.others)]
        return sight.received + sight.step(copied)


class Rescale(Attack):
    """Sends its honest step ten times as long, or as the number says (model replacement, Bagdasaryan et al., 2020): it
    knows its own step only."""

    default = 10.0

    def send(self, sight: Sight) -> Tensor | None:
        return sight.received + (self.number or 0) * sight.step(sight.client)


class SoleHolder(Attack):
    """Turns round its honest step, ten times as long or as the number says, in the parameters that no other client
    holds, where there is nobody to be averaged with; elsewhere it is honest. Whoever contributes most holds such."""

    default, parties, who = 10.0, 1, "largest"

    def send(self, sight: Sight) -> Tensor | None:
        alone = sight.held & (sight.layout.held(sight.assignment.neurons).sum(0) == 1)
        step = sight.step(sight.client)
        return sight.received + torch.where(alone, -(self.number or 0) * step, step)


def with_step(sight: Sight, of: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """What was received, and the step [parameters] that follows from the honest ones; its own honest step in the
    parameters that no honest client holds."""
    steps = torch.stack([sight.step(i) for i in sight.others])
    held = sight.layout.held(sight.assignment.neurons[sight.others])
    step = of(steps, held)
    return sight.received + torch.where(held.any(0), step, sight.step(sight.client))


def mean_and_deviation(steps: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation [parameters] of steps [k, parameters] over those that hold each; the deviation is
    that of a sample (k - 1), 0 where one client holds a parameter."""
    count = held.sum(0)
    mean = torch.where(held, steps, 0).sum(0) / count.clamp_min(1)
    squares = torch.where(held, (steps - mean) ** 2, 0).sum(0)
    return mean, (squares / (count - 1).clamp_min(1)).sqrt()


def sign_flip(steps: Tensor, held: Tensor) -> Tensor:
    return -mean_and_deviation(steps, held)[0]


def little_is_enough(steps: Tensor, held: Tensor, factor: float) -> Tensor:
    mean, deviation = mean_and_deviation(steps, held)
    return mean + factor * deviation
