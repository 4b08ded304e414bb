"""Are the models that clients hand in as trained alone their own? Compared with each other, and with what was paid.

Clients start from the same public weights, so honest models resemble each other; copies resemble each other far more.
Two distances are measured. In **weights**: how far apart two models are, in units of how far the farther one has come
from the initial weights; a copy that was trained further stays close. In **outputs**: how far apart the logits on V
are, sample by sample, each of length 1; a copy that was blurred with noise stays close there, since noise on thousands
of weights hardly changes what a model says.

How close is too close? Closer than `MOST_WEIGHTS` or `MOST_OUTPUTS`, and closer than `WEIGHTS` or `OUTPUTS` times what
is usual among the clients: two thirds of them are no farther from the nearest other one, which neither a third that
stands apart nor as many copies can move. (After few steps all models are close to each other.) With fewer than `ENOUGH`
models nothing is usual, and half of the fixed distances counts. A model that says the same of every sample is nobody's:
it is not compared. False positives and what gets through are in docs/hardening.md: a model that was distilled, or
trained from other weights on another's answers, is not recognised.

Of two that are alike, the one that came later is the copy. Of two that came at the same time, it is for now the one
that is farther from the initial weights (training further and noise both lead away), until rounds of training have
shown whose data made the model: `fits`, `Alike`. A copy of a reward is a copy of what everybody made.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import torch
from torch import Tensor

from fedsac.compute.evaluation import logits
from fedsac.compute.samples import Samples
from fedsac.core.module_layout import AnyLayout

MOST_WEIGHTS, MOST_OUTPUTS = 0.35, 0.2
WEIGHTS, OUTPUTS = 0.6, 0.5  # times the usual distance to the nearest other model
USUAL = 2 / 3  # of the clients
ENOUGH = 4  # models
ROUNDS = 5  # in which steps are compared, before it is decided whose model it is: one says too little (`fits`)
OFTEN = 0.4  # times the answers of another of the group, or one cannot be the owner: as in `standing.ENOUGH`


@dataclass(frozen=True)
class Copy:
    """A model that is a copy of another's (`of`: a client's name, or what was paid): both distances, and the limits."""

    of: str
    weights: float
    outputs: float
    limits: tuple[float, float]

    def __str__(self) -> str:
        return (
            f"its model is a copy of {self.of}: distance {self.weights:.3g} in weights (limit {self.limits[0]:.3g}), "
            f"{self.outputs:.3g} in outputs (limit {self.limits[1]:.3g})"
        )


@dataclass(frozen=True)
class Alike:
    """Clients who handed in one model at the same time, and what is known of whose it is.

    `answered` says in how many rounds each of them answered since then. `rounds` counts those in which at least two
    did: only there can steps be compared. `fits` has, for each of these in turn, how well a client's steps fitted."""

    names: Sequence[str]
    rounds: int = 0
    answered: Mapping[str, int] = field(default_factory=dict)
    fits: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def after(self, fits: Mapping[str, float]) -> "Alike":
        """After one more round, with the fits of those who answered. Of one alone nothing can be said."""
        answered = {name: self.answered.get(name, 0) + 1 for name in fits}
        more = replace(self, answered=dict(self.answered) | answered)
        if len(fits) < 2:
            return more
        new = {name: [*self.fits.get(name, ()), fit] for name, fit in fits.items()}
        return replace(more, rounds=self.rounds + 1, fits=dict(self.fits) | new)

    def without(self, gone: Container[str]) -> "Alike":
        """What is known of the others."""
        answered = {name: count for name, count in self.answered.items() if name not in gone}
        fits = {name: own for name, own in self.fits.items() if name not in gone}
        return Alike([name for name in self.names if name not in gone], self.rounds, answered, fits)

    def fit(self, name: str) -> float | None:
        """The mean fit of a client's steps; None where none was compared."""
        own = self.fits.get(name)
        return fmean(own) if own else None

    def owner(self) -> str | None:
        """Whose steps fit best, in the mean over the rounds in which they were compared; None where that is unknown.

        Who answers now and then, when its steps happen to fit, must not win, nor who stays silent so that nothing can
        be compared. So whoever answered less than `OFTEN` times as often as another of the group cannot be the owner;
        of those who answered, but could never be compared, only one who is left alone by that is."""
        most = max(self.answered.values(), default=0)
        often = [name for name in self.names if 0 < self.answered.get(name, 0) >= OFTEN * most]
        if len(often) < 2:
            return often[0] if often else None
        means = {name: mean for name in often if (mean := self.fit(name)) is not None}
        return max(means, key=means.__getitem__) if means else None

    def verdict(self, name: str, owner: str) -> str:
        """What is said of a client who handed in the model of `owner`."""
        said, own, best = f"its model is that of {owner}, ", self.fit(name), self.fit(owner)
        if own is None or best is None or own > best:  # it was too seldom there to be compared
            return f"{said}who answered in {self.answered.get(owner, 0)} rounds, and it in {self.answered.get(name, 0)}"
        return f"{said}whose training fits it better ({best:.3f}; {own:.3f}; rounds compared: {self.rounds})"


@dataclass(frozen=True)
class Models:
    """Models [n, parameters] with their names, of which each holds `neurons` [n, neurons]."""

    names: tuple[str, ...]
    params: Tensor
    neurons: Tensor


def copies(
    layout: AnyLayout, initial: Tensor, v: Samples, new: Models, before: Models, paid: Models
) -> dict[str, Copy]:
    """Which of the `new` models are copies: of each other, of members' models that were there `before`, or of what was
    `paid`. By name."""
    own = Models(
        (*before.names, *new.names),
        torch.cat([before.params, new.params]),
        torch.cat([before.neurons, new.neurons]),
    )
    everything = Models(
        (*own.names, *paid.names), torch.cat([own.params, paid.params]), torch.cat([own.neurons, paid.neurons])
    )
    weights = weight_distances(layout, initial, own, everything)
    said = directions(layout, v, everything)
    outputs = output_distances(said[: len(own.names)], said)
    constant = _constant(said, layout.classes)
    limits = _limits(weights[:, : len(own.names)], outputs[:, : len(own.names)])
    lengths = (own.params - initial).double().norm(dim=1).tolist()
    w, o = weights.tolist(), outputs.tolist()
    found: dict[str, Copy] = {}
    new_ones = range(len(before.names), len(own.names))
    # What was there before comes first: of that there is no doubt who has it from whom.
    in_turn = [j for j in range(len(everything.names)) if j not in new_ones] + list(new_ones)
    for i in new_ones:
        for j in in_turn:
            if j == i or constant[i] or not (w[i][j] < limits[0] or o[i][j] < limits[1]):
                continue
            if j in new_ones and (lengths[j], j) > (lengths[i], i):
                continue  # the other one is the copy
            found.setdefault(own.names[i], Copy(everything.names[j], w[i][j], o[i][j], limits))
    return found


def groups(found: Mapping[str, Copy], new: Sequence[str]) -> list[list[str]]:
    """The newcomers whose models are alike, from the copies among them: not those who have theirs from elsewhere."""
    joined: list[set[str]] = []
    for name, copy in found.items():
        if copy.of not in new or found.get(copy.of, copy).of not in new:
            continue
        alike = {name, copy.of}
        joined, apart = [], [*joined]
        for group in apart:
            if group & alike:
                alike |= group
            else:
                joined.append(group)
        joined.append(alike)
    return [[name for name in new if name in group] for group in joined]


def fits(steps: Tensor, model: Tensor, others: Tensor, trained: Tensor, held: Tensor) -> list[float]:
    """How well the steps [k, parameters] of a round, of clients who handed in one model, fit the way [parameters] that
    this model has come from the initial weights: cosines, within what all of them hold. In the mean over some rounds it
    is highest for the one whose data the model was trained on; one round may mislead (docs/hardening.md). What is not a
    number fits as nothing does, -1.

    What all training has in common tells nobody apart, and is larger than what does: so the mean direction of the
    others' steps [n, parameters] is taken out of the steps first, and that of the ways of their models [m, parameters]
    out of this one's. Directions, since one long step must not decide what is usual."""
    steps, model = _within(steps, held), _within(model, held)
    apart = _without(steps, _usual(_within(others, held)))
    own = _without(model, _usual(_within(trained, held)))
    cosines: list[float] = torch.cosine_similarity(apart, own, dim=-1, eps=1e-300).nan_to_num(-1.0).tolist()
    return cosines


def _within(directions: Tensor, held: Tensor) -> Tensor:
    return torch.where(held, directions, 0).double()


def _usual(directions: Tensor) -> Tensor:
    """The mean direction [parameters] of [n, parameters], of length 1; 0 where there is none."""
    lengths = directions.norm(dim=1, keepdim=True)
    mean = (directions / lengths.clamp_min(1e-300)).sum(0)
    unit: Tensor = mean / mean.norm().clamp_min(1e-300)
    return unit


def _without(directions: Tensor, usual: Tensor) -> Tensor:
    return directions - (directions @ usual).unsqueeze(-1) * usual


def weight_distances(layout: AnyLayout, initial: Tensor, own: Models, others: Models) -> Tensor:
    """The distances in weights, float64 [own, others] on the CPU, within what both hold."""
    held = [layout.held(mask) for mask in others.neurons]
    rows = []
    for model, mask in zip(own.params, own.neurons, strict=True):
        mine = layout.held(mask)
        row = []
        for other, theirs in zip(others.params, held, strict=True):
            both = mine & theirs
            apart = torch.where(both, model - other, 0).double().norm()
            come = torch.stack([torch.where(both, m - initial, 0).double().norm() for m in (model, other)])
            row.append(apart / come.max().clamp_min(1e-300))
        rows.append(torch.stack(row))
    return torch.stack(rows).cpu()


def output_distances(own: Tensor, others: Tensor) -> Tensor:
    """The distances in outputs of models that said these [n, samples x classes]: float64 [own, others] on the CPU."""
    apart: Tensor = torch.cdist(own, others) / others[0].norm().clamp_min(1e-300)
    return apart.cpu()


def _constant(said: Tensor, classes: int) -> list[bool]:
    """Which models say the same class of every sample."""
    best = said.unflatten(1, (-1, classes)).argmax(2)
    constant: list[bool] = (best == best[:, :1]).all(1).tolist()
    return constant


def directions(layout: AnyLayout, v: Samples, models: Models) -> Tensor:
    """What models say on V: the logits of each sample about their mean, of length 1; float64 [n, samples x classes]."""
    said = logits(layout, models.params, models.neurons, v).double()
    centred = said - said.mean(2, keepdim=True)
    unit: Tensor = centred / centred.norm(dim=2, keepdim=True).clamp_min(1e-30)
    return unit.flatten(1)


def _limits(weights: Tensor, outputs: Tensor) -> tuple[float, float]:
    """How close is too close, from the distances [n, n] of clients' own models."""
    n = len(weights)
    if n < ENOUGH:
        return MOST_WEIGHTS / 2, MOST_OUTPUTS / 2
    itself = torch.diag(torch.full((n,), torch.inf, dtype=weights.dtype))
    usual = [float((distances + itself).min(1).values.quantile(USUAL)) for distances in (weights, outputs)]
    return min(MOST_WEIGHTS, WEIGHTS * usual[0]), min(MOST_OUTPUTS, OUTPUTS * usual[1])


def named(named: Sequence[tuple[str, Tensor, Tensor]], like: Tensor, neurons: int) -> Models:
    """Models from (name, model [parameters], neurons [neurons]); there may be none."""
    if not named:
        return Models((), like.new_zeros(0, like.shape[-1]), torch.zeros(0, neurons, dtype=torch.bool).to(like.device))
    return Models(
        tuple(n for n, _, _ in named), torch.stack([m for _, m, _ in named]), torch.stack([k for _, _, k in named])
    )
