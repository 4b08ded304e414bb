"""A round of hostile clients: the others' answers are honest."""

from torch import Tensor

from fedsac.attacks.base import Attack, Sight
from fedsac.clients.behaviour import checked, kept, of_client
from fedsac.clients.population import Clients
from fedsac.methods.base import Assignment, State
from fedsac.rng import stream


class HostileConduct:
    """What the clients of a run with hostile ones send; `memory` has flat names, `client/name`."""

    def __init__(self, named: str, attack: Attack, hostile: tuple[int, ...], memory: State) -> None:
        self._label, self._attack, self._hostile, self._memory = f"attack {named}", attack, hostile, dict(memory)

    def behave(
        self, clients: Clients, given: Assignment, round: int, trained: Tensor
    ) -> tuple[list[Tensor | None], State]:
        """As `fedsac.clients.behaviour.Conduct.behave`."""
        sent: list[Tensor | None] = list(trained)
        memory: State = {}
        for i in self._hostile:
            name = clients.names[i]
            sight = Sight(
                round=round,
                client=i,
                hostile=self._hostile,
                clients=clients,
                assignment=given,
                trained=trained,
                memory={k: kept(self._label, k, v) for k, v in of_client(self._memory, name).items()},
                rng=stream(clients.seed, "attack", round, name),
            )
            sent[i] = checked(self._label, self._attack.send(sight), trained[i])
            memory |= {f"{name}/{k}": kept(self._label, k, v) for k, v in sight.memory.items()}
        return sent, memory
