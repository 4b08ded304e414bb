"""What FedSAC remembers where its allocation is slow: the order of neurons, and the lengths of prefixes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedsac.core.allocation import prefixes
from fedsac.core.slow_lengths import SlowLengths, slow_lengths
from fedsac.core.slow_order import SlowOrder, slowed
from fedsac.core.transfer import to_device
from fedsac.methods.base import State, Task

RANKS, ROUNDS = "mean ranks", "mean of rounds"
EARNED, AT, GRANTED = "lengths earned", "earned at contributions", "lengths granted"


def remembered(state: State) -> State:
    """The part of a state that is remembered."""
    return {name: state[name] for name in (RANKS, ROUNDS, EARNED, AT, GRANTED) if name in state}


def slow_order(importance: Tensor, before: State | None) -> tuple[Tensor, State]:
    """By what neurons are ordered [neurons] after one more round, and what is remembered of it."""
    now = slowed(importance, SlowOrder(before[RANKS], before[ROUNDS]) if before else None)
    return now.ranks, {RANKS: now.ranks, ROUNDS: now.rounds}


def slow_neurons(
    granted: Tensor, order: Tensor, task: Task, before: State | None, most: Tensor | None
) -> tuple[Tensor, State]:
    """What each client holds, [N, neurons], where these neurons of this order were granted and no prefix may be longer
    than `most` [N], and what is remembered."""
    counts = _contributions(task, granted)
    most = None if most is None else to_device(most, granted.device)
    lengths = slow_lengths(granted.sum(1), counts, _lengths(before or {}), most)
    return prefixes(order, lengths.now(counts)), _kept(lengths)


def carried_over(
    granted: Tensor, task: Task, before: State, clients: Sequence[str], most: Tensor
) -> tuple[Tensor, State]:
    """The same for other clients than those before, in whose places no round has passed: who joins or leaves sets
    neither the order nor what others hold free."""
    counts, lengths = _contributions(task, granted), _lengths(before)
    if lengths is None:  # of a run that began when only the order was slow
        return slow_neurons(granted, before[RANKS], task, before, most)
    lengths = lengths.carried_over(clients, task.clients, counts, granted.sum(1), to_device(most, granted.device))
    return prefixes(before[RANKS], lengths.now(counts)), _kept(lengths)


def _contributions(task: Task, like: Tensor) -> Tensor:
    return to_device(torch.tensor(task.contributions, dtype=torch.float64), like.device)


def _lengths(state: State) -> SlowLengths | None:
    return SlowLengths(state[EARNED], state[AT], state[GRANTED]) if EARNED in state else None


def _kept(lengths: SlowLengths) -> State:
    return {EARNED: lengths.earned, AT: lengths.at, GRANTED: lengths.granted}
