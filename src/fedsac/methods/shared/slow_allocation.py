"""What FedSAC remembers where its allocation is slow: the order of neurons, and the lengths of prefixes."""

from collections.abc import Sequence

from torch import Tensor

from fedsac.core.allocation import prefixes
from fedsac.core.slow_lengths import SlowLengths, slow_lengths
from fedsac.core.slow_order import SlowOrder, slowed
from fedsac.core.transfer import to_device
from fedsac.methods.base import State

RANKS, ROUNDS = "mean ranks", "mean of rounds"
EARNED, AT, GRANTED = "lengths earned", "earned at reputations", "lengths granted"


def remembered(state: State) -> State:
    """The part of a state that is remembered."""
    return {name: state[name] for name in (RANKS, ROUNDS, EARNED, AT, GRANTED) if name in state}


def carried_over(before: State, old: Sequence[str], new: Sequence[str], reputation: Tensor) -> State:
    """What is remembered when clients join or leave: who joins must not set the order, nor what others hold, free."""
    lengths = _lengths(before)
    if lengths is None:  # of a run that began when only the order was slow
        return before
    return before | _kept(lengths.carried_over(old, new, to_device(reputation, lengths.earned.device)))


def slow_order(importance: Tensor, before: State) -> tuple[Tensor, State]:
    """By what neurons are ordered [neurons], and what is remembered of it."""
    now = slowed(importance, SlowOrder(before[RANKS], before[ROUNDS]) if before else None)
    return now.ranks, {RANKS: now.ranks, ROUNDS: now.rounds}


def slow_neurons(
    granted: Tensor, order: Tensor, reputation: Tensor, before: State, *, capped: bool
) -> tuple[Tensor, State]:
    """What each client holds, [N, neurons], where these neurons of this order were granted, and what is remembered."""
    r = to_device(reputation, granted.device)
    lengths = slow_lengths(granted.sum(1), r, granted.shape[1], _lengths(before), capped=capped)
    return prefixes(order, lengths.now(r)), _kept(lengths)


def _lengths(state: State) -> SlowLengths | None:
    return SlowLengths(state[EARNED], state[AT], state[GRANTED]) if EARNED in state else None


def _kept(lengths: SlowLengths) -> State:
    return {EARNED: lengths.earned, AT: lengths.at, GRANTED: lengths.granted}
