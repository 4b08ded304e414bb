"""What can be made of rewards: keeping what one ever received, pooling it, growing it again. In the rounds all of these
are honest; what they end with is what counts."""

import torch
from torch import Tensor

from fedsac.attacks.base import Attack, End, Holding, Sight
from fedsac.clients.training import Job, train


class Hoard(Attack):
    """Keeps every parameter it ever received, over rounds and re-ordered importance, at the value it had last, and
    assembles them into one model. It knows what it is sent, and chooses between that and its reward on its own data."""

    def send(self, sight: Sight) -> Tensor | None:
        put_by(sight)
        return sight.honest_answer

    def keep(self, end: End) -> list[Holding] | None:
        return [end.best_for(i, [end.reward(i), hoarded(end, i)[0]]) for i in end.hostile]


class Pool(Attack):
    """A coalition that, at the end, puts together what its members hold then: within one round. Of submodels nested in
    each other, the union is the best member's."""

    one_party = True

    def keep(self, end: End) -> list[Holding] | None:
        model = union([(end.models[i], end.held(i)) for i in end.hostile])
        return [Holding(model, end.neurons[list(end.hostile)].any(0))] * len(end.hostile)


class HoardTogether(Hoard):
    """A coalition whose members keep all they ever received and put it together at the end, every parameter at the
    value that any of them had last."""

    one_party = True

    def keep(self, end: End) -> list[Holding] | None:
        own = [hoarded(end, i) for i in end.hostile]
        newest = torch.stack([since for _, since in own]).argmax(0)
        model = torch.stack([holding.model for holding, _ in own]).gather(0, newest.unsqueeze(0))[0]
        assembled = Holding(model, torch.stack([holding.neurons for holding, _ in own]).any(0))
        return [end.best_for(i, [end.reward(i), assembled]) for i in end.hostile]


class Regrow(Attack):
    """Takes its reward, refills the missing neurons with the public initial weights, and trains all of it on its own
    data for as many epochs as the number says (5). Of that and its reward it keeps what is better on its own data."""

    default = 5.0

    def keep(self, end: End) -> list[Holding] | None:
        done = zip(end.hostile, self.trained(end), strict=True)
        return [end.best_for(i, [end.reward(i), trained]) for i, trained in done]

    def _begun(self, end: End) -> list[Holding]:
        """What each hostile client trains."""
        whole = torch.ones_like(end.neurons[0])
        return [Holding(torch.where(end.held(i), end.models[i], end.initial), whole) for i in end.hostile]

    def trained(self, end: End) -> list[Holding]:
        """Each hostile client's model after some epochs on its own data; one that diverges is left as it was."""
        c, begun = end.clients, self._begun(end)
        models, neurons = end.initial.expand(len(c.names), -1).clone(), torch.ones_like(end.neurons)
        for i, holding in zip(end.hostile, begun, strict=True):
            models[i], neurons[i] = holding.model, holding.neurons
        epochs = round(self.number or 0)
        steps = tuple(epochs * n if i in end.hostile else 1 for i, n in enumerate(c.steps_per_epoch()))
        done = train([Job(c, models, neurons, steps, "regrowth", 0, 1 - 1 / c.rounds)])[0]
        finite, held = done.finite.tolist(), c.layout.held(neurons)
        return [
            Holding(torch.where(held[i], done.models[i], 0), neurons[i]) if finite[i] else before
            for i, before in zip(end.hostile, begun, strict=True)
        ]


class FineTune(Regrow):
    """Trains its reward, as it is, on its own data for as many epochs: no attack, but what any client may do, and what
    regrowing neurons has to be compared with."""

    def _begun(self, end: End) -> list[Holding]:
        return [end.reward(i) for i in end.hostile]


def put_by(sight: Sight) -> None:
    """Remember what was received: `hoard` [parameters], `since` [parameters] the round (from 1) of each, 0: never, and
    the neurons that were `ever` held [neurons]."""
    held, memory = sight.held, sight.memory
    before = memory.get("hoard", torch.zeros_like(sight.received))
    since = memory.get("since", torch.zeros(len(held), dtype=torch.int32, device=held.device))
    memory["hoard"] = torch.where(held, sight.received, before)
    memory["since"] = torch.where(held, torch.full_like(since, sight.round + 1), since)
    memory["ever"] = sight.neurons | memory.get("ever", torch.zeros_like(sight.neurons))


def hoarded(end: End, client: int) -> tuple[Holding, Tensor]:
    """What a client has put by, with its reward on top, and since which round [parameters] it has each, 0: never."""
    memory, held = end.memories[client], end.held(client)
    model = torch.where(held, end.models[client], memory["hoard"])
    since = torch.where(held, memory["since"].max() + 1, memory["since"])
    return Holding(model, memory["ever"] | end.neurons[client]), since


def union(parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Models [parameters] and what is held of each, put together; where several hold a parameter, their mean."""
    # In float64: then the mean of equal float32 values is that value, to the bit.
    total = torch.stack([torch.where(held, model, 0) for model, held in parts]).double().sum(0)
    count = torch.stack([held for _, held in parts]).sum(0)
    return (total / count.clamp_min(1)).to(parts[0][0])
