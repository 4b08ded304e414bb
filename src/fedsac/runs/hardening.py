"""Hardened mode in a run: what the defences of `fedsac.defences` do to a round's updates and to whoever joins.

Everything that is kept from round to round is in `Running.guard`, by name: clients' standings, models that were sent
before, models that were handed in, who handed in one model, and who a copy. It is part of every checkpoint and is never
changed in place. Both engines come by here: `defended` from the round loop, `admitted` where contributions are
measured.
"""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedsac.clients.rounds import LocalRound
from fedsac.compute import evaluation
from fedsac.defences import originals, robust
from fedsac.defences.bounds import bounded
from fedsac.defences.commitment import HARDENED, START, commitment
from fedsac.defences.harm import harmful, without
from fedsac.defences.standing import SET_ASIDE, Standing, shares
from fedsac.defences.work import measured_work
from fedsac.errors import FedsacError
from fedsac.methods.base import State, Updates
from fedsac.rng import stream
from fedsac.runs.running import Running

STANDINGS, COPIES, COMMITTED, SENT, HANDED_IN = "standings", "copies", "committed", "sent/", "handed in/"
ALIKE = "alike"  # groups of clients who handed in one model at the same time, until it is known whose it is
TOO_EARLY = "decided too early"  # groups of which it was decided in the run's last round, before enough were over
SENT_TO = "sent to"  # the names of those whose models these are, in their order
SENT_ROUNDS = 4  # models that clients were sent, kept to recognise what is made of them
SENT_BYTES = 1 << 29  # of these models, at most


class Screened:
    """A round of training in progress, without the replies that do harm."""

    def __init__(self, training: LocalRound, runs: Sequence[Running]) -> None:
        self._training, self._runs = training, runs

    def updates(self) -> list[Updates]:
        """Wait for the training to end; who was refused, and why, is in the round's record."""
        screened = []
        for run, updates in zip(self._runs, self._training.updates(), strict=True):
            asked = run.prepared.config.refuse is not None  # runs side by side may differ in it
            refused = harmful(run.prepared.layout, run.prepared.validation, updates) if asked else {}
            names = {run.task.clients[i]: reason for i, reason in refused.items()}
            remarks = updates.remarks | ({"refused": names} if names else {})
            screened.append(replace(without(updates, refused), remarks=remarks))
        return screened


@dataclass(frozen=True)
class Defended:
    """A round's updates after the defences: what the method learns from, and, for the record, what was received."""

    kept: Updates
    received: Updates


def defended(run: Running, updates: Updates) -> Defended:
    """Let the defences that are on look at a round's updates. What counts of the clients' contributions may change with
    it: the run's task says so from now on."""
    config = run.prepared.config
    if config.hardened is None:
        return Defended(updates, updates)
    flagged: dict[str, str] = {}
    kept = updates
    if run.guard.get(ALIKE):
        _find_owners(run, updates)
    if config.defends("originals"):
        run.remember_contributions()
    if config.defends("work"):
        flagged = _work(run, updates)
        kept = without(kept, [i for i in updates.clients if run.task.clients[i] in flagged])
    if len(kept.clients) > 1 and (config.defends("bounds") or config.defends("robust")):
        kept = _steps(run, kept)
    run.count()
    names, copies = run.task.clients, run.guard.get(COPIES, {})
    both = {name: [own[name] for own in (copies, flagged) if name in own] for name in names}
    suspected = {name: "; ".join(reasons) for name, reasons in both.items() if reasons}
    said = _said(run) | (_committed(run, updates.round + 1) if config.defends("commit") else {})
    remarks = {HARDENED: said} | ({"suspected": suspected} if suspected else {})
    return Defended(kept, replace(updates, remarks=updates.remarks | remarks))


def _work(run: Running, updates: Updates) -> dict[str, str]:
    """Measure the work of those who answered. Returns who is set aside, and why."""
    names, layout = run.task.clients, run.prepared.layout
    given, neurons = updates.assignment, updates.neurons
    sent = [given.model(i) for i in updates.clients]
    work: dict[str, float] = {}
    if updates.clients:
        held = layout.held(neurons)
        steps = torch.where(held, updates.params - torch.stack(sent), 0)
        known = [_known(run, i) for i in updates.clients]
        rng = stream(run.prepared.config.seed, "work", updates.round)
        values = measured_work(layout, run.prepared.validation, rng, sent, steps, neurons, known)
        work = {names[i]: value for i, value in zip(updates.clients, values, strict=True)}
    before = {name: Standing(**own) for name, own in run.guard.get(STANDINGS, {}).items()}
    after = before | {name: before.get(name, Standing()).after(work.get(name)) for name in names}
    run.guard = _remembered(run, given.models) | {STANDINGS: {name: asdict(own) for name, own in after.items()}}
    # By their work alone: who handed in a copy may work honestly, and does not spoil a round by that.
    counts = shares({name: after[name] for name in names})
    return {
        name: f"its work was {after[name].work:.2f} lately, and it answered in {after[name].presence:.0%} of the rounds"
        for name in names
        if counts[name] < SET_ASIDE
    }


def _find_owners(run: Running, updates: Updates) -> None:
    """Of each group that handed in one model: see whose step fits it, round by round. Once that was done often enough,
    the one who fits best is the owner, and the others handed in a copy.

    It is decided earlier in the run's last round, for the last reward; and where only one of the group is left, by what
    is known then, since nothing more will be."""
    last = updates.round + 1 >= run.prepared.config.rounds
    copies, undecided, early = dict(run.guard[COPIES]), [], []
    for before in _alike(run):
        left = sum(name in run.task.clients for name in before.names)
        group = before.after(_fits(run, updates, before.names)) if left > 1 else before
        enough = group.rounds >= originals.ROUNDS
        owner = group.owner() if enough or last or (group.rounds and left < 2) else None
        if owner is None:
            undecided.append(asdict(group))
            continue
        copies.pop(owner, None)
        copies |= {name: group.verdict(name, owner) for name in group.names if name != owner}
        if last and not enough:
            early.append(list(group.names))
    run.guard = run.guard | {COPIES: copies, ALIKE: undecided} | ({TOO_EARLY: early} if early else {})


def refuse_longer(run: Running) -> None:
    """Raise where more rounds would have decided otherwise, or at another time, whose model it is."""
    if early := run.guard.get(TOO_EARLY):
        raise FedsacError(
            f"whose model it is that {' and '.join(early[0])} handed in was decided in the last of {run.round} rounds, "
            f"and in a longer run it would not have been; begin a run of {run.prepared.config.rounds}"
        )


def _alike(run: Running) -> list[originals.Alike]:
    """The groups of whose model it is not known yet whose it is."""
    groups = run.guard.get(ALIKE, [])
    # Checkpoints from when the first round decided have the names alone.
    return [originals.Alike(**own) if isinstance(own, dict) else originals.Alike(own) for own in groups]


def _fits(run: Running, updates: Updates, group: Sequence[str]) -> dict[str, float]:
    """How well the steps of those of a group who answered fit the model that they handed in."""
    names, layout, initial = run.task.clients, run.prepared.layout, run.prepared.initial
    rows = {names[i]: row for row, i in enumerate(updates.clients)}
    there = [name for name in group if name in rows]
    if not there:
        return {}
    steps = {names[i]: updates.params[row] - updates.assignment.model(i) for row, i in enumerate(updates.clients)}
    ways = {name.removeprefix(HANDED_IN): m - initial for name, m in run.guard.items() if name.startswith(HANDED_IN)}
    fits = originals.fits(
        torch.stack([steps[name] for name in there]),
        ways[min(group, key=lambda name: (float(ways[name].norm()), name))],
        _others(steps, group, initial),
        _others(ways, group, initial),
        layout.held(updates.neurons[[rows[name] for name in there]]).all(0),  # by all of them: one comparison
    )
    return dict(zip(there, fits, strict=True))


def _others(vectors: Mapping[str, Tensor], group: Sequence[str], like: Tensor) -> Tensor:
    """The vectors [n, parameters] of all clients but those of a group; there may be none."""
    kept = [vector for name, vector in vectors.items() if name not in group]
    return torch.stack(kept) if kept else like.new_zeros(0, len(like))


def _known(run: Running, client: int) -> Tensor:
    """The models [m, parameters] that a client knows beside the one it was sent now: the public initial weights, and
    what it was sent in the rounds before."""
    own = [models[client if len(models) > 1 else 0] for models in _sent_before(run)]
    return torch.stack([run.prepared.initial, *own])


def _sent_before(run: Running) -> list[Tensor]:
    """The models [N or 1, parameters] that were sent in the rounds before, in the order of today's clients. Who was not
    there yet knows the initial weights."""
    names = run.task.clients
    models = [run.guard[name] for name in sorted(run.guard) if name.startswith(SENT)]
    before = run.guard.get(SENT_TO, names)
    if tuple(before) == tuple(names):
        return [own for own in models if len(own) in (1, len(names))]
    rows = {name: row for row, name in enumerate(before)}
    initial = run.prepared.initial
    return [
        own if len(own) == 1 else torch.stack([own[rows[name]] if name in rows else initial for name in names])
        for own in models
    ]


def _remembered(run: Running, models: Tensor) -> State:
    """The guard with the models [N or 1, parameters] of this round among those that were sent."""
    most = max(1, min(SENT_ROUNDS, SENT_BYTES // max(1, models.numel() * models.element_size())))
    kept = [*_sent_before(run), models][-most:]
    others = {name: value for name, value in run.guard.items() if not name.startswith(SENT)}
    return others | {SENT_TO: list(run.task.clients)} | {f"{SENT}{k}": value for k, value in enumerate(kept)}


def _steps(run: Running, updates: Updates) -> Updates:
    """The updates with bounded steps, and with those that stand out pulled in."""
    config, layout = run.prepared.config, run.prepared.layout
    held = layout.held(updates.neurons)
    sent = torch.stack([updates.assignment.model(i) for i in updates.clients])
    steps = torch.where(held, updates.params - sent, 0)
    if config.defends("bounds"):
        steps, _ = bounded(steps, held)
    if config.defends("robust"):
        steps = robust.clamped(steps, held)
        common = sent.mean(0)
        steps, _ = robust.judged(steps, held, lambda moved: _losses(run, common + moved))
    return replace(updates, params=torch.where(held, sent + steps, updates.params))


def _losses(run: Running, models: Tensor) -> list[float]:
    """The mean losses of models [n, parameters] on validation data; infinity for what is not a number."""
    v = run.prepared.validation
    rows = [np.arange(len(v.y))] * len(models)
    losses = evaluation.mean_losses(run.prepared.layout, models, v, rows).tolist()
    return [loss if math.isfinite(loss) else math.inf for loss in losses]


def _said(run: Running) -> State:
    """What a round's record says of the defences: which are on, what counts of the contributions, and who handed in one
    model of which it is not known yet whose it is."""
    standings, names, alike = run.guard.get(STANDINGS, {}), run.task.clients, _alike(run)
    return {
        "defences": run.prepared.config.hardened,
        "clients": list(names),
        "contributions": list(run.task.contributions),
        **({"work": [standings[name]["work"] for name in names]} if standings else {}),
        **({"undecided": [list(group.names) for group in alike]} if alike else {}),
    }


def _committed(run: Running, round: int) -> State:
    """The commitment of a round, chained to the one before it."""
    made = commitment(run.guard.get(COMMITTED, START), round, run.task.clients, run.task.contributions)
    run.guard = run.guard | {COMMITTED: made}
    return {"commitment": made}


def admitted(run: Running, models: Mapping[str, Tensor]) -> dict[str, str]:
    """Compare the models [parameters] that newcomers hand in as trained alone with each other, with those of members,
    and with what was paid so far. Who handed in a copy counts as nothing from now on (of those who hand in one model
    before the first round, once some rounds have shown whose it is). Returns who, and why.

    Before a run has begun there are neither members nor rewards. A newcomer is not compared with what it handed in
    itself, under the same name, earlier."""
    prepared = run.prepared
    if not prepared.config.defends("originals") or not models:
        return {}
    layout, initial = prepared.layout, prepared.initial
    everything = torch.ones(layout.neurons, dtype=torch.bool, device=initial.device)
    finite = {name: model.to(initial) for name, model in models.items() if bool(model.isfinite().all())}
    members = run.task.clients if run.begun else ()
    handed_in = {name.removeprefix(HANDED_IN): m for name, m in run.guard.items() if name.startswith(HANDED_IN)}
    new = [(name, model, everything) for name, model in finite.items()]
    before = [(name, m, everything) for name, m in handed_in.items() if name in members and name not in models]
    neurons = layout.neurons
    found = originals.copies(
        layout,
        initial,
        prepared.validation,
        originals.named(new, initial, neurons),
        originals.named(before, initial, neurons),
        originals.named(_paid(run) if run.begun and run.round else [], initial, neurons),
    )
    reasons = {name: str(copy) for name, copy in found.items()}
    others = {name: reason for name, reason in run.guard.get(COPIES, {}).items() if name not in models}
    kept = {f"{HANDED_IN}{name}": model for name, model in finite.items()}
    alike = originals.groups(found, list(finite))
    undecided = {name for group in alike for name in group}
    if not (run.begun and run.round):
        # The first rounds will show whose model it is. Until then all of a group are paid as its owner: they hold about
        # the same, or little could be compared of their steps, and an owner must not lose by being robbed.
        reasons = {name: reason for name, reason in reasons.items() if name not in undecided}
    older = _still_alike(run, models, {name: copy.of for name, copy in found.items() if name not in undecided})
    groups = [*older, *map(originals.Alike, alike)]
    run.guard = run.guard | kept | {COPIES: others | reasons, ALIKE: [asdict(group) for group in groups]}
    return reasons


def _still_alike(run: Running, models: Container[str], found: Mapping[str, str]) -> Iterator[originals.Alike]:
    """The groups that there were before some hand in other `models`. Who does leaves its group, unless what it hands in
    was `found` to be a copy of one of them again: then it goes on being compared with them."""
    for group in _alike(run):
        gone = [name for name in group.names if name in models and found.get(name) not in group.names]
        if len(group.names) - len(gone) > 1:
            yield group.without(gone)


def _paid(run: Running) -> list[tuple[str, Tensor, Tensor]]:
    """What clients would leave with now, and the model that all of it was cut from."""
    given, common = run.reward, run.method.common_model(run.state)
    paid = [(f"the reward of {name}", given.model(i), given.neurons[i]) for i, name in enumerate(run.task.clients)]
    if common is not None:
        paid.append(("the common model", common, torch.ones_like(given.neurons[0])))
    return paid
