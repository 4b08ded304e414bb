"""`Session`: what the parts of the coordinator share while a run is going."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fedsac.federation.asking import Requests
from fedsac.federation.folder import Federation
from fedsac.federation.ledger import Ledger
from fedsac.federation.link import Link
from fedsac.federation.members import Member
from fedsac.federation.networks import unit_counts
from fedsac.federation.wire import reward, submodel
from fedsac.methods.base import Assignment
from fedsac.runs.prepared import Prepared
from fedsac.runs.running import Running


@dataclass
class Session:
    """`run` is the run in the round loop; `members` are the sites that have joined; `say` prints a line."""

    federation: Federation
    link: Link
    ledger: Ledger
    run: Running
    say: Callable[[str], None]
    sleep: Callable[[float], None]
    members: dict[str, Member] = field(default_factory=dict)
    requests: Requests = field(init=False)

    def __post_init__(self) -> None:
        self.requests = Requests(self.federation, self.link, self.ledger, self.members, self.say)

    @property
    def prepared(self) -> Prepared:
        return self.run.prepared

    def submodel_of(self, name: str) -> dict[str, np.ndarray]:
        """The submodel that a site trains next, as arrays."""
        given, i = self.run.assignment, self._number(name)
        return submodel(self.prepared.layout, given.model(i), given.neurons[i])

    def units_of(self, name: str, given: Assignment | None = None) -> dict[str, list[int]]:
        """What an order says of the submodel beside its arrays (None: of the one that the site trains next)."""
        return unit_counts(self.prepared.layout, (given or self.run.assignment).neurons[self._number(name)])

    def reward_of(self, name: str, run: Running | None = None) -> dict[str, np.ndarray]:
        """The submodel that a site would keep now, as arrays, if it is paid as in `run` (None: as it trains)."""
        given, i = (run or self.run).reward, self._number(name)
        return reward(self.prepared.layout, given.model(i), given.neurons[i])

    def _number(self, name: str) -> int:
        return self.run.task.clients.index(name)
