"""Free riders: clients that are paid and do not train. All know only what they are sent."""

from torch import Tensor, from_numpy, where

from fedsac.attacks.base import Attack, Sight, Standing

FIRST_NOISE = 1e-3  # of the Gaussian disguise, before the client has seen the model move


class ZeroUpdate(Attack):
    """Sends back what it received, bit for bit, and hands in the public initial weights as trained alone."""

    def submit(self, standing: Standing, client: int) -> Tensor:
        return standing.initial

    def send(self, sight: Sight) -> Tensor | None:
        return sight.received


class StaleModel(ZeroUpdate):
    """Sends the model that it received so many rounds ago (5), or in the first round; alone, the initial weights."""

    default = 5.0

    def send(self, sight: Sight) -> Tensor | None:
        sight.memory[f"received {sight.round}"] = sight.received
        delay = int(self.number or 0)
        sight.memory.pop(f"received {sight.round - delay - 1}", None)
        oldest: Tensor = sight.memory[f"received {max(0, sight.round - delay)}"]
        return oldest


class RandomModel(Attack):
    """Sends every weight drawn from U[-1, 1] (RFFL's and CGSV's free rider), and hands such a model in as trained
    alone."""

    def submit(self, standing: Standing, client: int) -> Tensor:
        drawn = standing.rng(client).uniform(-1, 1, len(standing.initial))
        return from_numpy(drawn).to(standing.initial)

    def send(self, sight: Sight) -> Tensor | None:
        return from_numpy(sight.rng.uniform(-1, 1, len(sight.received))).to(sight.received)


class DeltaWeights(ZeroUpdate):
    """Repeats the step from the model it received last to the one it received now (Lin et al., 2019): it looks like
    training, and costs nothing. Alone, the initial weights."""

    def send(self, sight: Sight) -> Tensor | None:
        return sight.received + last_step(sight)


class GaussianDisguise(ZeroUpdate):
    """Adds Gaussian noise to what it received, as large as the model's own last step (Fraboni et al., 2021). Alone, the
    initial weights with a little noise."""

    def submit(self, standing: Standing, client: int) -> Tensor:
        noise = standing.rng(client).normal(0, FIRST_NOISE, len(standing.initial))
        return standing.initial + from_numpy(noise).to(standing.initial)

    def send(self, sight: Sight) -> Tensor | None:
        spread = float(last_step(sight)[sight.held].std(correction=0)) or FIRST_NOISE
        return sight.received + from_numpy(sight.rng.normal(0, spread, len(sight.received))).to(sight.received)


class LateSwitch(ZeroUpdate):
    """Honest until its contribution is measured; from then on it sends back what it received."""

    def submit(self, standing: Standing, client: int) -> Tensor:
        return standing.models[client]


def last_step(sight: Sight) -> Tensor:
    """The step [parameters] from the model received in the round before to the one received now, where the client holds
    both; 0 in the first round."""
    before, held_before = sight.memory.get("received"), sight.memory.get("held")
    sight.memory["received"], sight.memory["held"] = sight.received, sight.held
    if before is None or held_before is None:
        return sight.received.new_zeros(len(sight.received))
    return where(sight.held & held_before, sight.received - before, 0)
