"""ShapFed's class-specific Shapley values, CSSV (Tastan et al., IJCAI 2024).

    D_ik    = trained - received of the last layer, the row of class k: its weights and its bias
    D_k     = sum_i D_ik / n, over the n clients of the round
    s_ik    = cos(D_ik, D_k)                                  in place of the Shapley value of client i for class k
    gamma_i <- the mean of s_ik over the classes k in the first round; then mu gamma_i + (1 - mu) mean_k s_ik, mu = .9

This is Algorithm 1 of the paper with gamma as it is computed there: every client weighs 1/n in D_k. The rounds are
FedAvg's, as for the other measures: clients weigh by their samples in the model, and all get the same one back. In
ShapFed they get gamma_i theta + (1 - gamma_i) theta_i, and ShapFed-WA weighs by gamma_i. docs/conformance.md compares
this with the published code.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fedsac.compute.samples import Samples
from fedsac.contributions.fedavg_rounds import FedAvgRound, train_fedavg
from fedsac.contributions.measurement import Measurement
from fedsac.core.module_layout import AnyLayout, ModuleLayout
from fedsac.errors import FedsacError

MOMENTUM = 0.9  # mu in the authors' code


def measure(run: Measurement, on: Samples) -> tuple[float, ...]:
    """gamma_i after the rounds of FedAvg. The samples `on` are not used.

    A round in which a client's training diverged counts as 0 for it.
    """
    rounds = (fedavg_round for (fedavg_round,) in train_fedavg([run.clients], run))
    return tuple(class_contributions(run.clients.layout, len(run.clients.names), rounds).mean(1).tolist())


def class_contributions(layout: AnyLayout, clients: int, rounds: Iterable[FedAvgRound]) -> Tensor:
    """The running mean of s_ik over some rounds, float64 [clients, classes]; 0 for who never answered."""
    running, classes = None, layout.classes if isinstance(layout, ModuleLayout) else layout.sizes[-1]
    for each in rounds:
        now = torch.zeros(clients, classes, dtype=torch.float64)
        if each.clients:
            # float64, so that the squares of large but finite updates are finite, too.
            now[list(each.clients)] = class_similarities(layout, each.trained.double() - each.received).cpu()
        running = now if running is None else MOMENTUM * running + (1 - MOMENTUM) * now
    if running is None:
        return torch.zeros(clients, classes, dtype=torch.float64)
    return running


def class_similarities(layout: AnyLayout, updates: Tensor) -> Tensor:
    """s_ik [k, classes] from the updates [k, parameters] of the clients of a round; 0 where either vector is 0."""
    rows = _last_layer(layout, updates)
    common = normalize(rows.mean(0), dim=0, eps=torch.finfo(rows.dtype).tiny)
    return (normalize(rows, dim=1, eps=torch.finfo(rows.dtype).tiny) * common).sum(1)


def _last_layer(layout: AnyLayout, updates: Tensor) -> Tensor:
    """The rows of the classes in the last layer of updates [k, parameters]: [k, inputs and bias, classes]. In a network
    that is no perceptron it is the last linear layer with an output for each class."""
    if not isinstance(layout, ModuleLayout):
        weight, bias = layout.views(updates)[-1]
        return torch.cat([weight, bias.unsqueeze(1)], 1)
    views = layout.views(updates)
    for name, module in reversed(list(layout.template.named_modules())):
        if isinstance(module, nn.Linear) and module.out_features == layout.classes and f"{name}.weight" in views:
            parts = [views[f"{name}.weight"].mT]
            if f"{name}.bias" in views:
                parts.append(views[f"{name}.bias"].unsqueeze(1))
            return torch.cat(parts, 1)
    raise FedsacError(f"contribution shapfed needs a linear layer for the classes at the end; {layout.named} has none")
