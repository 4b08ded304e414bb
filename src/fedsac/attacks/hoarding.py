"""What can be made of rewards: keeping what one ever received, pooling it, growing it again. In the rounds all of these
are honest; what they end with is what counts."""

import torch
from torch import Tensor

from fedsac.attacks.base import Attack, End, Sight
from fedsac.clients.training import Job, train


class Hoard(Attack):
    """Keeps every parameter it ever received, over rounds and re-ordered importance, at the value it had last, and
    assembles them into one model. It knows what it is sent, and chooses between that and its reward on its own data."""

    def send(self, sight: Sight) -> Tensor | None:
        put_by(sight)
        return sight.honest_answer

    def keep(self, end: End) -> Tensor | None:
        return torch.stack([self._best(end, i) for i in end.hostile])

    def _best(self, end: End, client: int) -> Tensor:
        assembled, _, _ = hoarded(end, client)
        return end.best_for(client, torch.stack([end.models[client], assembled]))


class Pool(Attack):
    """A coalition that, at the end, puts together what its members hold then: within one round. Of submodels nested in
    each other, the union is the best member's."""

    one_party = True

    def keep(self, end: End) -> Tensor | None:
        best = union([(end.models[i], end.held(i)) for i in end.hostile])
        return torch.stack([best] * len(end.hostile))


class HoardTogether(Hoard):
    """A coalition whose members keep all they ever received and put it together at the end, every parameter at the
    value that any of them had last."""

    one_party = True

    def keep(self, end: End) -> Tensor | None:
        own = [hoarded(end, i) for i in end.hostile]
        newest = torch.stack([since for _, _, since in own]).argmax(0)
        assembled = torch.stack([model for model, _, _ in own]).gather(0, newest.unsqueeze(0))[0]
        return torch.stack([end.best_for(i, torch.stack([end.models[i], assembled])) for i in end.hostile])


class Regrow(Attack):
    """Takes its reward, refills the missing neurons with the public initial weights, and trains all of it on its own
    data for as many epochs as the number says (5). Of that and its reward it keeps what is better on its own data."""

    default = 5.0

    def keep(self, end: End) -> Tensor | None:
        held = torch.stack([end.held(i) for i in end.hostile])
        refilled = torch.where(held, end.models[list(end.hostile)], end.initial)
        grown = self._trained(end, refilled)
        pairs = zip(end.hostile, grown, strict=True)
        return torch.stack([end.best_for(i, torch.stack([end.models[i], model])) for i, model in pairs])

    def _neurons(self, end: End) -> Tensor | None:
        """The neurons [N, neurons] that are trained; None: all."""
        return None

    def _trained(self, end: End, models: Tensor) -> Tensor:
        """Each hostile client's model after some epochs on its own data; one that diverges is left as it was."""
        c = end.clients
        everybody = end.initial.expand(len(c.names), -1).clone()
        everybody[list(end.hostile)] = models
        epochs = round(self.number or 0)
        steps = tuple(epochs * n if i in end.hostile else 1 for i, n in enumerate(c.steps_per_epoch()))
        done = train([Job(c, everybody, self._neurons(end), steps, "regrowth", 0, 1 - 1 / c.rounds)])[0]
        finite = done.finite.to(models.device)[list(end.hostile)].unsqueeze(1)
        return torch.where(finite, done.models[list(end.hostile)], models)


class FineTune(Regrow):
    """Trains its reward, as it is, on its own data for as many epochs: no attack, but what any client may do, and what
    regrowing neurons has to be compared with."""

    def keep(self, end: End) -> Tensor | None:
        own = list(end.hostile)
        tuned = torch.where(torch.stack([end.held(i) for i in own]), self._trained(end, end.models[own]), 0)
        pairs = zip(own, tuned, strict=True)
        return torch.stack([end.best_for(i, torch.stack([end.models[i], model])) for i, model in pairs])

    def _neurons(self, end: End) -> Tensor | None:
        return end.neurons


def put_by(sight: Sight) -> None:
    """Remember what was received: `hoard` [parameters], `since` [parameters] the round (from 1) of each, 0: never."""
    held = sight.held
    before = sight.memory.get("hoard", torch.zeros_like(sight.received))
    since = sight.memory.get("since", torch.zeros(len(held), dtype=torch.int32, device=held.device))
    sight.memory["hoard"] = torch.where(held, sight.received, before)
    sight.memory["since"] = torch.where(held, torch.full_like(since, sight.round + 1), since)


def hoarded(end: End, client: int) -> tuple[Tensor, Tensor, Tensor]:
    """What a client has put by, with its reward on top: the model, which parameters were ever received, and since when
    [parameters] each."""
    memory, held = end.memories[client], end.held(client)
    since = memory["since"]
    model = torch.where(held, end.models[client], memory["hoard"])
    since = torch.where(held, since.max() + 1, since)
    return model, since > 0, since


def union(parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Models [parameters] and what is held of each, put together; where several hold a parameter, their mean."""
    # In float64: then the mean of equal float32 values is that value, to the bit.
    total = torch.stack([torch.where(held, model, 0) for model, held in parts]).double().sum(0)
    count = torch.stack([held for _, held in parts]).sum(0)
    return (total / count.clamp_min(1)).to(parts[0][0])
