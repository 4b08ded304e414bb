"""Free riders that know how work is measured (docs/hardening.md#work): by the share of a step that lies in the cone of
the server's own steps, relative to the median client's, in a mean over about five rounds; and whoever answers in two of
five rounds is there often enough. All are honest until their contribution is measured, and know only what they are
sent."""

from dataclasses import replace

from torch import Tensor, where

from fedsac.attacks.base import Attack, Sight
from fedsac.clients.training import Job, train


class Lazy(Attack):
    """Trains so few steps in a round (2), and sends what they come to as if it were a whole round's: as many times as
    long as steps were left out."""

    default = 2.0

    def send(self, sight: Sight) -> Tensor | None:
        c, steps = sight.clients, int(self.number or 0)
        alone = replace(c, names=c.names[sight.client : sight.client + 1], rows=(c.rows[sight.client],))
        job = (alone, sight.received.unsqueeze(0), sight.neurons.unsqueeze(0), (max(1, steps),))
        trained = train([Job(*job, "lazy training", sight.round, sight.round / c.rounds)])[0].models[0]
        longer = c.local_steps / max(1, steps)
        return where(sight.held, sight.received + longer * (trained - sight.received), sight.received)


class PartTime(Attack):
    """Trains in this share of the rounds (.45), evenly, and does not answer in the others, as if it were cut off: what
    is not sent is not measured."""

    default = 0.45

    def send(self, sight: Sight) -> Tensor | None:
        share = min(1.0, self.number or 0)
        works = int((sight.round + 1) * share) > int(sight.round * share)
        return sight.honest_answer if works else None


class Replay(Attack):
    """Trains in every so manieth round (4), the first included, and in the others sends the last step of its own once
    more: the server takes out what can be made of models that it sent, and this cannot."""

    default = 4.0

    def send(self, sight: Sight) -> Tensor | None:
        if sight.round % max(1, int(self.number or 0)) == 0:
            sight.memory["step"] = sight.step(sight.client)
            return sight.honest_answer
        step: Tensor = sight.memory["step"]
        return sight.received + where(sight.held, step, 0)
