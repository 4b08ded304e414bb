"""q-FFL (Li et al., ICLR 2020), as its q-FedAvg: clients with a higher loss weigh more.

    G_i = L (theta - theta_i),  L = 1/lr,  F_i = loss of theta on client i's data
    D_i = F_i^q G_i,  h_i = q F_i^(q-1) |G_i|^2 + L F_i^q
    theta <- theta - sum_i D_i / sum_i h_i

Everyone gets the same model, so rewards are those of copies trained one epoch more, as for FedAvg. Clients report F_i,
and nobody checks it: a client that reports a higher loss than it has weighs more.
As in the published code, amounts of data do not weigh in (docs/conformance.md).
"""

from dataclasses import dataclass

from fedsac.methods.base import Assignment, Method, State, Task, Updates


@dataclass(frozen=True)
class QFFL(Method):
    q: float = 1.0

    def start(self, task: Task) -> State:
        return {"model": task.initial}

    def assign(self, task: Task, state: State) -> Assignment:
        return Assignment(state["model"].unsqueeze(0), task.everything, extra_epoch=True, local_losses=True)

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        model, lipschitz = state["model"], 1 / task.rate(updates.round)
        gradients = lipschitz * (model - updates.params)
        assert updates.local_losses is not None
        # In float64 and at least 1e-10: powers of small losses underflow or overflow, and the sum of h must not.
        losses = updates.local_losses.double().clamp_min(1e-10)
        weights = losses**self.q
        h = self.q * losses ** (self.q - 1) * gradients.double().square().sum(1) + lipschitz * weights
        return {"model": model - (weights / h.sum()).to(model) @ gradients}
