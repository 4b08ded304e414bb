"""FedAvg (McMahan et al., AISTATS 2017): everyone gets the same model.

    theta = sum_i n_i theta_i / sum_i n_i, over those who answered

As all rewards are equal, gamma would be undefined. So, as in CFFL, CGSV and FedSAC, a client's reported reward is that
of a copy trained one epoch more on its own data. Training itself goes on from the common model.
"""

from dataclasses import dataclass

from fedsac.methods.base import Assignment, Method, State, Task, Updates
from fedsac.methods.shared.gradients import sample_shares, weighted_sum


@dataclass(frozen=True)
class FedAvg(Method):
    def start(self, task: Task) -> State:
        return {"model": task.initial}

    def assign(self, task: Task, state: State) -> Assignment:
        return Assignment(state["model"].unsqueeze(0), task.everything, extra_epoch=True)

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        return {"model": weighted_sum(sample_shares(task, updates.clients), updates.params)}
