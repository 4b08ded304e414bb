"""Rows that a fair comparison with `fedsac-plus` needs, since its server trains on a part of V: what that data alone is
worth, and what other methods make of it.

- `server-alone`: the server trains on V by itself, and everyone gets its model.
- `fedavg-server`, `fedsac-server`, `fedrac-server`: after each aggregation the same SGD steps on the same part of V as
  in `fedsac-plus`.
- `fedavg-v-client`: V as one more client, which takes as many steps as `server_steps` and counts by its samples. As in
  FedAvg, the rewards of it and of `fedavg-server` are copies trained one epoch more; the common model itself, which
  FedSAC+'s best reward is to be compared with, is the column `global`.
- `fedsac-plus-no-server`: FedSAC+ without these steps.
"""

from dataclasses import dataclass

from torch import Tensor

from fedsac.compute.samples import Samples
from fedsac.errors import FedsacError
from fedsac.methods.base import Assignment, State, Task, Updates
from fedsac.methods.fedavg import FedAvg
from fedsac.methods.fedrac import FedRAC
from fedsac.methods.fedsac import FedSAC
from fedsac.methods.fedsac_plus import FedSACPlus
from fedsac.methods.shared.calibration import ValidationParts
from fedsac.methods.shared.gradients import sample_shares, weighted_sum
from fedsac.methods.shared.server_data import check_server_data, trained_by_server


@dataclass(frozen=True)
class FedAvgServer(FedAvg):
    server_steps: int = 20
    server_share: float = 0.5

    def __post_init__(self) -> None:
        check_server_data(self.server_steps, self.server_share)

    def server_model(self, task: Task, model: Tensor, round: int) -> Tensor:
        return trained_by_server(task, model, self.server_steps, self.server_share, round)

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        return {"model": self.server_model(task, super().learn(task, state, updates)["model"], updates.round)}


@dataclass(frozen=True)
class ServerAlone(FedAvgServer):
    server_share: float = 1.0

    def assign(self, task: Task, state: State) -> Assignment:
        return Assignment(state["model"].unsqueeze(0), task.everything)

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:  # as for every method, a round that nobody answers is none
            return state
        return {"model": self.server_model(task, state["model"], updates.round)}


@dataclass(frozen=True)
class FedAvgVClient(FedAvgServer):
    server_share: float = 1.0

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        others = weighted_sum(sample_shares(task, updates.clients), updates.params)
        own = self.server_model(task, state["model"], updates.round)
        theirs, mine = sum(task.samples[i] for i in updates.clients), self.server_share * len(task.validation.y)
        return {"model": (theirs * others + mine * own) / (theirs + mine)}


@dataclass(frozen=True)
class FedRACServer(FedRAC):
    server_steps: int = 20
    server_share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_server_data(self.server_steps, self.server_share)
        if self.server_share == 1:
            raise FedsacError("option server_share must be below 1: fedrac-server measures on the rest of V")

    def aggregate(self, task: Task, state: State, updates: Updates) -> Tensor:
        model = super().aggregate(task, state, updates)
        return trained_by_server(task, model, self.server_steps, self.server_share, updates.round)

    def measured_on(self, task: Task) -> Samples:
        """What the server has trained on says nothing about a prefix."""
        return task.part(ValidationParts.draw(task, self.server_share).calibration_rows)


@dataclass(frozen=True)
class FedSACServer(FedSAC):
    server_steps: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_server_data(self.server_steps, self.server_share)


@dataclass(frozen=True)
class FedSACPlusNoServer(FedSACPlus):
    server_steps: int = 0
