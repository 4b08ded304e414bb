"""FedSAC: dynamic submodel allocation for collaborative fairness (Wang et al., KDD 2024), Algorithm 1.

    I_n     = L(V, theta | neuron n zeroed) - L(V, theta), as percentages                      (Eq. 3, 4)
    r_i     = 100 exp(beta c_i) / max_k exp(beta c_k)                                          (Eq. 5, 6)
    theta_i = the neurons, from the least important on, whose importance adds up to r_i        (Eq. 7)
    theta   = sum_i theta_i / sum_i mask_i, parameter by parameter                             (Eq. 8, 9)

Importance is measured on the new model after aggregation, every `importance_every` rounds and after the last one: that
order cuts both the rewards and the next round's submodels.
"""

from dataclasses import dataclass

from fedsac.aggregation import aggregate
from fedsac.allocation import allocate, reputation
from fedsac.methods.base import Rewards, State, Task, Updates


@dataclass(frozen=True)
class FedSAC:
    beta: float
    importance_every: int = 1

    def start(self, task: Task) -> State:
        return {"model": task.initial, "importance": task.importance(task.initial)}

    def rewards(self, task: Task, state: State) -> Rewards:
        r = reputation(task.contributions, self.beta)
        return Rewards(state["model"].unsqueeze(0), allocate(state["importance"], r), tuple(r.tolist()))

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        model = aggregate(updates.params, task.layout.held(updates.neurons), state["model"])
        over = updates.round + 1
        due = over % self.importance_every == 0 or over == task.rounds
        return {"model": model, "importance": task.importance(model) if due else state["importance"]}
