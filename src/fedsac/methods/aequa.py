"""Aequa (Tastan et al., ICML 2025): one slimmable model, of which each client gets a width by its contribution.

    theta(p) = the submodel of width p: the first ceil(p h) neurons of each hidden layer of h neurons
    p        in `widths` steps from p_min (`least_width`) to 1
    A(p)     = the best accuracy on V of a submodel of width up to p, so that A never falls as p grows
    target_i = A(p_min) + (A(1) - A(p_min)) (c_i - min c) / (max c - min c)           `targets = "range"`
             = A(1) - (max c - c_i)                                                   `targets = "gain"`
    p_i      = the width whose A comes nearest to target_i, the least of several; max c gets 1
    theta    = sum_i theta_i / sum_i mask_i, parameter by parameter: the mean over those who trained it

From the paper: clients train a slimmable network together, whose accuracy falls slowly with its width; each is allotted
a width by its contribution, after training or, in an extension, while training. `timing = "after"`: until the end
clients may train any width, and so see the whole model. `timing = "during"`: nobody is ever given more than p_i, which
follows the model from round to round. In both, submodels are nested and widths never fall with contribution.

The formulas are ours: we had no more of the paper than its abstract, the beginning of its introduction and a public
review, and its repository (tnurbek/aequa, commit 684559c) holds no code.

    - Which widths are trained. Slimmable networks are trained by the sandwich rule (Yu and Huang, ICCV 2019): in every
      step the widest, the least and a random width. Here a client trains one submodel in a round, so the three are
      dealt out among the clients, anew in each round: a third of them train the widest that they may, a third p_min,
      a third a width drawn from all up to the widest.
    - The mean over holders counts every client alike; the paper may weigh them by samples.
    - The targets. Of the paper's objective (its Eq. 3) we know from the review that it also keeps variability low. Any
      line a + b c correlates perfectly with c: "range" uses all accuracies that there are; "gain" makes everyone's gain
      over standing alone the same (no CGS), and needs contributions that are accuracies.
    - p_min = .05, and 64 widths. p_min decides how little the least contributor can be given. Of five values tried on
      development splits of CIFAR-10 it has the highest gamma (docs/fedsac-plus.md), larger ones a higher best reward.
    - While training, widths are allotted by the same rule after every round. The last neurons are then trained by the
      best contributor alone, and where its data is one-sided (DIR) the whole model can be worse than a narrower one.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsac.core.aggregation import aggregate_submodels
from fedsac.core.module_layout import AnyLayout
from fedsac.errors import FedsacError
from fedsac.methods.base import Assignment, Method, State, Task, Updates

CHOICES = {"targets": ("range", "gain"), "timing": ("after", "during")}


@dataclass(frozen=True)
class Aequa(Method):
    least_width: float = 0.05
    widths: int = 64
    targets: str = "range"
    timing: str = "after"

    def __post_init__(self) -> None:
        if not 0 < self.least_width <= 1:
            raise FedsacError(f"least_width must be above 0 and at most 1, not {self.least_width:g}")
        if self.widths < 2:
            raise FedsacError(f"widths must be at least 2, not {self.widths}")
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise FedsacError(f"{name} must be {' or '.join(allowed)}, not {getattr(self, name)!r}")

    def start(self, task: Task) -> State:
        return self.allotted_state(task, task.initial, 0)

    def assign(self, task: Task, state: State) -> Assignment:
        return Assignment(
            state["model"].unsqueeze(0),
            state["neurons"],
            tuple((100 * state["widths"]).tolist()),
            reward_neurons=state["rewards"],
        )

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        model = aggregate_submodels(task.layout, updates.params, updates.neurons, state["model"])
        return self.allotted_state(task, model, updates.round + 1)

    def allotted_state(self, task: Task, model: Tensor, round: int) -> State:
        """The state with this model [parameters]: the widths p_i [N] and neurons that clients have earned of it, and
        the neurons that they train in this round."""
        widths = torch.linspace(self.least_width, 1, self.widths, dtype=torch.float64)
        masks = first_neurons(task.layout, widths).to(model.device)
        accuracy = task.evaluate(model.unsqueeze(0), masks).numpy()
        earned = allot(np.array(task.contributions), accuracy, self.targets)
        most = earned if self.timing == "during" else np.full(len(earned), self.widths - 1)
        return {
            "model": model,
            "widths": widths[earned],
            "rewards": masks[earned],
            "neurons": masks[sandwich(task, most, round)],
        }


def first_neurons(layout: AnyLayout, widths: Tensor) -> Tensor:
    """The neurons of each of these widths [W], boolean [W, neurons]: of h neurons of a layer the first ceil(p h).

    >>> from fedsac.core.units import Layout
    >>> first_neurons(Layout((1, 4, 2, 1)), torch.tensor([.25, .6], dtype=torch.float64)).int().tolist()
    [[1, 0, 0, 0, 1, 0], [1, 1, 1, 0, 1, 1]]
    """
    # Less 1e-9: rounding must not turn a whole number of neurons into one more.
    return torch.cat([torch.arange(h) < torch.ceil(widths * h - 1e-9).unsqueeze(1) for h in layout.hidden], 1)


def allot(c: np.ndarray, accuracy: np.ndarray, targets: str) -> np.ndarray:
    """Which width each client gets [N], from contributions [N] and the accuracies of all widths [W], the least first.

    >>> allot(np.array([.2, .5, .3, .5]), np.array([.4, .6, .5, .8, .7]), "range")
    array([0, 4, 1, 4])
    >>> allot(np.array([.25, .5, .3]), np.array([.4, .6, .5, .8, .7]), "gain")
    array([1, 4, 1])
    """
    best = np.maximum.accumulate(accuracy)
    below = c.max() - c
    if targets == "range":
        # Where all contribute the same, all are the best.
        below = below * (best[-1] - best[0]) / (below.max() or 1)
    # To 12 digits, so that what lies in the middle of two widths' accuracies does not depend on rounding.
    distance = np.abs(best - (best[-1] - below)[:, None]).round(12)
    nearest: np.ndarray = distance.argmin(1)
    nearest[c == c.max()] = len(accuracy) - 1
    return nearest


def sandwich(task: Task, most: np.ndarray, round: int) -> np.ndarray:
    """Which width each client trains in a round [N]: a third the widest that it may (`most` [N]), a third the least, a
    third one drawn from all up to the widest. Whoever is in which third is drawn anew in every round."""
    streams = {name: task.stream("aequa width", round, name) for name in task.clients}
    place = {name: stream.random() for name, stream in streams.items()}
    trained = np.zeros(len(most), dtype=np.int64)
    for position, name in enumerate(sorted(task.clients, key=lambda name: (place[name], name))):
        i, third = task.clients.index(name), position % 3
        trained[i] = (most[i], 0, streams[name].integers(most[i] + 1))[third]
    return trained
