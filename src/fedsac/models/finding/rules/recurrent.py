"""Rules for torch's recurrent layers: a hidden unit is what all of its gates compute."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsac.models.finding.labels import Field, Labelled, Slots, contracted
from fedsac.models.finding.rules.registry import rule


@rule("lstm", "gru", "rnn_tanh", "rnn_relu")
def _recurrent(
    slots: Slots, shape: Any, x: Labelled, state: Any, weights: Sequence[Labelled], biases: bool, layers: int,
    dropout: float, train: bool, bidirectional: bool, *args: Any,
) -> list[Labelled]:  # fmt: skip
    """All layers and directions of a module have equally many hidden units: the k-th of all of them go together."""
    directions, last = 1 + bidirectional, len(x.shape) - 1
    per_cell = len(weights) // (layers * directions)
    if per_cell != (4 if biases else 2):
        raise ValueError("a projection after each layer")
    hidden = weights[1].fields[1].ids
    both = Field((last,), np.tile(hidden, directions))
    for at in range(0, len(weights), per_cell):
        below = x if at < per_cell * directions else Labelled((*x.shape[:last], both.ids.size), (both,))
        contracted(slots, below, weights[at], (last, 1), [], "inputs that are never cut")
        slots.unite(weights[at + 1].fields[1].ids, hidden, "hidden units")
        for tensor in weights[at : at + per_cell]:
            slots.unite(tensor.fields[0].ids.reshape(-1, hidden.size), hidden, "hidden units")
    outputs, *states = shape
    left = tuple(Field((len(each) - 1,), hidden) for each in states)
    return [Labelled(outputs, (both,)), *(Labelled(each, (own,)) for each, own in zip(states, left, strict=True))]
