"""CFFL (Lyu et al., 2020), as FedSAC's authors ran it: gradients as rewards, by validation accuracy and data size.

    share_i = accuracy of client i's trained model on V / sum
    r_i     = (sinh(5 share_i) + share_i) / 2, divided by the sum
    quota_i = s_i r_i / max r,  s_i = n_i / max n (in CLA, its share of the classes)
    g       = sum_i (n_i/n) g_i,  g_i = Gamma D_i / |D_i|
    theta_i <- trained_i + (the largest quota_i of g) - s_i g_i

Clients with r_i below (1/3)/|R| keep the model they had. The original paper keeps a running credit, and takes sinh of
it alone: `memory`. With `reward_by = "contribution"`, share = c / sum c, s_i = 1 and nobody is below the threshold.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsac.core.transfer import to_device
from fedsac.methods.base import State, Task, Updates
from fedsac.methods.shared.gradients import (
    GradientMethod,
    contribution_shares,
    local_updates,
    rescaled,
    sample_shares,
    weighted_sum,
)
from fedsac.methods.shared.largest import largest_entries


@dataclass(frozen=True)
class CFFL(GradientMethod):
    sharpness: float = 5.0
    memory: bool = False

    def start(self, task: Task) -> State:
        n = len(task.clients)
        return super().start(task) | {"r": torch.full((n,), 1 / n, dtype=torch.float64)}

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        who, models = updates.who, state["models"]
        r, sizes = state["r"].clone(), torch.ones(len(models), dtype=torch.float64)
        if self.reward_by == "contribution":
            r = self.credit(contribution_shares(task))
        else:
            sizes = torch.tensor(task.size_shares, dtype=torch.float64)
            accuracy = task.evaluate(updates.params, None).cpu()
            fresh = self.credit(accuracy / accuracy.sum() if accuracy.sum() > 0 else torch.ones_like(accuracy))
            r[who] = 0.5 * r[who] + 0.5 * fresh if self.memory else fresh
        r = r / r.sum()

        learned = local_updates(updates, models)
        g = rescaled(learned, self.length)
        total = weighted_sum(sample_shares(task, updates.clients), g)
        new = models + largest_entries(task.layout, total, sizes * r / r.max())
        new[who] += learned - to_device(sizes[who].to(g.dtype), g.device).unsqueeze(1) * g
        if self.reward_by == "own":
            low = (r < 1 / 3 / len(r)).to(models.device)
            new = torch.where(low.unsqueeze(1), models, new)
        return {"models": new, "r": r}

    def credit(self, share: Tensor) -> Tensor:
        """The reputations r [N]: (sinh(sharpness share_i) + share_i) / 2, or only the sinh with `memory`; divided by
        their sum.

        >>> CFFL().credit(torch.tensor([.3, .4, .5], dtype=torch.float64) / 1.2).round(decimals=6).tolist()
        [0.203327, 0.316877, 0.479795]
        """
        value = torch.sinh(self.sharpness * share)
        value = value if self.memory else (value + share) / 2
        return value / value.sum()
