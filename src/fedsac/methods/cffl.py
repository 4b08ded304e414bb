"""CFFL (Lyu et al., 2020): gradients as rewards, by validation accuracy and data size. Three readings of it.

`reading = "fedsac"`, as FedSAC's authors ran it (their code is public in FedAVE's repository, as bytecode):

    share_i = accuracy of client i's trained model on V / sum over the reputable clients R
    r_i     = (sinh(5 share_i) + share_i) / 2, divided by the sum
    quota_i = s_i r_i / max r,  s_i = n_i / max n (in CLA, its share of the classes)
    g       = sum_R w_i g_i,  g_i = Gamma D_i / |D_i|,  w_i = n_i / n (in CLA s_i, whose sum is not 1)
    theta_i <- trained_i + (the largest quota_i of g) - s_i g_i

Who has r_i below (1/3)/N (in CLA (1/6)/N) leaves R for good, with the model it had; r is then divided by its sum anew.

`"paper"`: the same with a running credit, r_i <- .5 r_i + .5 sinh(5 share_i) / sum, without the other half.

`"code"`, CFFL's own code with its settings for CIFAR-10. The server has a model theta; d_i is D_i, with entries up to
`clip`; u_i is the largest entries of d_i, the share `upload` of each tensor:

    share_i = accuracy of theta + u_i on V (of theta_i + d_i where all is uploaded) / sum over R
    r_i     = sinh(5 (.8 r_i + .2 share_i)), divided by the sum
    g       = sum_R u_i;  theta <- theta + g
    theta_i <- theta_i + d_i + (the largest r_i of g) - u_i

The threshold is (1/3)/|R|, in CLA (1/6)/|R|, and who left R goes on training alone: theta_i <- theta_i + d_i.

With `reward_by = "contribution"`, share = c / sum c and nobody is below the threshold.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsac.core.transfer import to_device
from fedsac.errors import FedsacError
from fedsac.methods.base import State, Task, Updates
from fedsac.methods.shared.gradients import (
    RemovingMethod,
    contribution_shares,
    local_updates,
    rescaled,
    sample_shares,
    weighted_sum,
)
from fedsac.methods.shared.largest import largest_entries
from fedsac.methods.shared.readings import check_reading


@dataclass(frozen=True)
class CFFL(RemovingMethod):
    sharpness: float = 5.0
    reading: str = "fedsac"
    clip: float = 0.001
    upload: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reading(self.reading, ("fedsac", "code", "paper"))
        if self.clip <= 0:
            raise FedsacError(f"clip must be above 0, not {self.clip:g}")
        if not 0 < self.upload <= 1:
            raise FedsacError(f"upload must be above 0 and at most 1, not {self.upload:g}")

    def start(self, task: Task) -> State:
        n = len(task.clients)
        if self.reading == "code":
            return super().start(task) | {"r": torch.zeros(n, dtype=torch.float64), "model": task.initial}
        return super().start(task) | {"r": torch.full((n,), 1 / n, dtype=torch.float64)}

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        step = self._learn_as_published if self.reading == "code" else self._learn_as_fedsac_ran_it
        return step(task, state, updates)

    def _learn_as_fedsac_ran_it(self, task: Task, state: State, updates: Updates) -> State:
        models, before = state["models"], state["removed"]
        if not (at := [k for k, i in enumerate(updates.clients) if i not in before]):
            return state
        r, who = state["r"].clone(), [updates.clients[k] for k in at]
        fresh = self.credit(self.shares(task, updates, at, updates.params))
        if self.reward_by == "contribution":
            r = fresh
        else:
            former = r[who].sum()
            if len(who) + len(before) < len(r) and former > 0:
                # Shares among those who answered: together they keep what they had, or few answers would pay.
                fresh = fresh * (former / fresh.sum())
            r[who] = 0.5 * r[who] + 0.5 * fresh if self.reading == "paper" else fresh
        r, removed = self.without_the_low(task, r / r.sum(), who, before, len(r))

        learned = local_updates(updates, models)
        g = rescaled(learned, self.length)
        sizes = torch.tensor(task.size_shares, dtype=torch.float64)
        weights = sizes[updates.who] if task.sizes_are_classes else sample_shares(task, updates.clients)
        member = torch.tensor([i not in removed for i in updates.clients])
        total = weighted_sum(weights * member, g)
        new = models + largest_entries(task.layout, total, sizes * r / r.max())
        own = learned - to_device(sizes[updates.who].to(g.dtype), g.device).unsqueeze(1) * g
        new[updates.who] += own if member.all() else to_device(member.to(g.dtype), g.device).unsqueeze(1) * own
        return {"models": new, "r": r, "removed": removed}

    def _learn_as_published(self, task: Task, state: State, updates: Updates) -> State:
        models, server, before = state["models"], state["model"], state["removed"]
        d = local_updates(updates, models).clamp(-self.clip, self.clip)
        new = models.clone()
        new[updates.who] += d
        if not (at := [k for k, i in enumerate(updates.clients) if i not in before]):
            return state | {"models": new}
        share_kept = torch.tensor([self.upload])
        u = torch.stack([largest_entries(task.layout, row, share_kept)[0] for row in d])
        share = self.shares(task, updates, at, server + u if self.upload < 1 else new[updates.who])
        r, who = state["r"].clone(), [updates.clients[k] for k in at]
        rated = slice(None) if self.reward_by == "contribution" else who
        r[rated] = 0.8 * r[rated] + 0.2 * share
        r = torch.sinh(self.sharpness * r)
        r, removed = self.without_the_low(task, r / r.sum(), who, before, len(r) - len(before))

        at = [k for k in at if updates.clients[k] not in removed]
        total = u[at].sum(0)
        new = new + largest_entries(task.layout, total, r)
        new[[updates.clients[k] for k in at]] -= u[at]
        return {"models": new, "r": r, "removed": removed, "model": server + total}

    def shares(self, task: Task, updates: Updates, at: list[int], scored: Tensor) -> Tensor:
        """c / sum c of all clients, or, by the method's own rule, the accuracies on V of the models `scored` [k,
        parameters] of those who answered `at` these places / their sum; float64."""
        if self.reward_by == "contribution":
            return contribution_shares(task)
        accuracy = task.evaluate(scored[at], None).cpu()
        return accuracy / accuracy.sum() if accuracy.sum() > 0 else torch.full_like(accuracy, 1 / len(accuracy))

    def credit(self, share: Tensor) -> Tensor:
        """The reputations r [N]: (sinh(sharpness share_i) + share_i) / 2, or only the sinh as in the paper; divided by
        their sum.

        >>> CFFL().credit(torch.tensor([.3, .4, .5], dtype=torch.float64) / 1.2).round(decimals=6).tolist()
        [0.203327, 0.316877, 0.479795]
        """
        value = torch.sinh(self.sharpness * share)
        value = value if self.reading == "paper" else (value + share) / 2
        return value / value.sum()

    def without_the_low(
        self, task: Task, r: Tensor, who: list[int], removed: list[int], members: int
    ) -> tuple[Tensor, list[int]]:
        """The reputations, with sum 1, and all who were removed, after those who answered (`who`) and are below a third
        (in CLA a sixth) of 1 / `members` were, too."""
        if self.reward_by == "contribution":
            return r, removed
        threshold = (1 / 6 if task.sizes_are_classes else 1 / 3) / members
        low = [i for i in who if r[i] < threshold]
        r = r.clone()
        r[removed + low] = 0
        return r / r.sum(), removed + low
