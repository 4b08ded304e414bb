"""`python -m benchmarks.inversion`: how many of a site's samples a hostile coordinator gets back from the replies.

The site is the real one (`fedsac.federation.site`), asked by orders that the coordinator's key has signed; its data are
300 digits. A sample counts as recovered if some guess is within 1 % of it, by Euclidean length, in the units that the
site trains on. What is tried:
  ratio         a unit that one sample alone has moved: the change of its weights by that of its bias is the sample. The
                model is drawn with biases so low that a unit is activated by few samples.
  differences   a made-up first layer whose units all look in one direction from different distances: two neighbours'
                changes differ by the samples between them ("Robbing the Fed", Fowl et al. 2022).
  patience      the same with two units, and the mean of 30 replies each
  optimisation  samples sought whose gradient is the reply's (L-BFGS from random starts, labels known: "Deep Leakage
                from Gradients", Zhu et al. 2019), for as many samples as a batch has.
Under:
  no limits     what an earlier version answered: batches of 1 and one step for `ratio` and `optimisation`, all samples
                in one step for `differences`
  limits        site.toml as `fedsac federation init` writes it; the coordinator asks for as little as is answered
  limits, no blur
  privacy       as limits, with clip = 1 and noise = 1
"""

import argparse
import io
import json
import re
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from fedsac.compute.batches import client_batches
from fedsac.core.units import Layout
from fedsac.federation.folder import SiteSettings
from fedsac.federation.guard import Reply
from fedsac.federation.history import History, signed_order
from fedsac.federation.ledger import Ledger
from fedsac.federation.setup import init
from fedsac.federation.simulation import unlimited
from fedsac.federation.site import Site
from fedsac.federation.wire import Order, arrays_of, network_of
from fedsac.models.network import Network
from fedsac.rng import stream

SAMPLES, FEATURES, CLASSES, WIDTH = 300, 64, 10, 200
CLOSE = 0.01  # relative error of a recovered sample
TINY_LR = 1e-6  # the model hardly moves: all steps' gradients are of one model
LAYOUT = Layout((FEATURES, WIDTH, CLASSES))
MODES = ("no limits", "limits", "limits, no blur", "privacy")
PATIENCE = 30  # orders that ask the same


class Victim:
    """A site with 300 digits, and the coordinator's key: asks it to train models of ours."""

    def __init__(self, folder: Path, mode: str, batch: int, steps: int) -> None:
        init(folder / "fed", ["a", "b"], "127.0.0.1:9092")
        self.fed, self.site = folder / "fed", folder / "fed" / "a"
        x, y = load_digits(return_X_y=True)
        chosen = np.random.default_rng(5).permutation(len(y))[:SAMPLES]
        np.savez(self.site / "data.npz", x=x[chosen], y=y[chosen].astype(str))
        toml = self.site / "site.toml"
        text = toml.read_text().replace('"data.csv"', '"data.npz"')
        if mode == "no limits":
            text = unlimited(text)
        changes = {"limits, no blur": {"blur": 0.0}, "privacy": {"clip": 1.0, "noise": 1.0}}.get(mode, {})
        for name, value in changes.items():
            text = re.sub(rf"^{name} = \S+", f"{name} = {value}", text, flags=re.MULTILINE)
        toml.write_text(text)
        own = SiteSettings.load(self.site)
        self.batch, self.steps = max(batch, own.least_batch), max(steps, own.least_steps)
        self.mean, self.deviation = x[chosen].mean(0), x[chosen].std(0) + 1
        self.x = torch.from_numpy((x[chosen] - self.mean) / self.deviation)
        self.y = torch.from_numpy(y[chosen])
        self.ledger = Ledger(self.fed / "server" / "ledger.jsonl")
        self._ask(Order("join", 0, "t", self._terms([str(c) for c in range(CLASSES)])))

    def _terms(self, classes: list[str]) -> dict[str, object]:
        schema = {"features": [], "width": FEATURES, "channels": FEATURES, "dtype": "float64", "top": 1.0}
        settings = {"seed": 0, "lr": TINY_LR, "batch": self.batch, "local_steps": self.steps, "dtype": "float64"}
        arrays = {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}
        common = {"channel": list(range(FEATURES)), "settings": settings, "sizes": list(LAYOUT.sizes)}
        return {"schema": schema | {"classes": classes}, **arrays, **common}

    def change(self, model: Network, number: int) -> Tensor:
        """By how much the site moves a model, divided by the learning rate: the negative gradient, if in one step."""
        reply = self._ask(Order("round", number, f"t{number}", {}, arrays_of(model)))
        arrays = {name: np.load(io.BytesIO(raw.data)) for name, raw in reply.arrays.items()}
        return (network_of(arrays).params - model.params) / TINY_LR

    def _ask(self, order: Order) -> Reply:
        self.ledger.append("sent")
        key = (self.fed / "server" / "receipts.key").read_bytes()
        reply = Site(self.site).answer(signed_order("a", order, self.ledger, History(self.site).head[0], key))
        if "declined" in reply.facts:
            raise RuntimeError((self.site / "site.log").read_text().splitlines()[-1])
        return reply


@cache
def digits_of_others() -> Tensor:
    """Digits that are not the site's: a coordinator has validation data, and knows roughly what digits look like."""
    x, _ = load_digits(return_X_y=True)
    chosen = np.random.default_rng(5).permutation(len(x))
    own = x[chosen[:SAMPLES]]
    return torch.from_numpy((x[chosen[SAMPLES:]] - own.mean(0)) / (own.std(0) + 1))


def ratio(victim: Victim, orders: int) -> Tensor:
    """Guesses [any number, features] from units that few samples activate."""
    generator, guesses = torch.Generator().manual_seed(1), []
    for number in range(orders):
        model = _drawn(generator)
        (weight, bias), _ = LAYOUT.views(model.params)
        if victim.batch > 1:  # so low that about one of the samples of all steps reaches a unit
            seen = min(SAMPLES, victim.batch * victim.steps)
            few = torch.linspace(0.2, 3, WIDTH).double() / seen
            reached = (digits_of_others() @ weight).sort(dim=0, descending=True).values
            bias[:] = -reached[(few * len(reached)).long(), torch.arange(WIDTH)]
        (moved, moved_bias), _ = LAYOUT.views(victim.change(model, number))
        guesses.append((moved / moved_bias).T[moved_bias.abs() > 1e-12])
    return torch.cat(guesses)


def differences(victim: Victim, orders: int) -> Tensor:
    """Guesses from the differences between neighbours among units that look in one direction."""
    generator, guesses = torch.Generator().manual_seed(2), []
    for number in range(orders):
        model = _drawn(generator)
        (weight, bias), (out, _) = LAYOUT.views(model.params)
        weight[:] = weight[:, :1]
        bias[:] = -(digits_of_others() @ weight[:, 0]).quantile(torch.linspace(0, 0.999, WIDTH).double())
        out[:] = out[:1]
        (moved, moved_bias), _ = LAYOUT.views(victim.change(model, number))
        by = moved_bias.diff()
        guesses.append((moved.diff(dim=1) / by).T[by.abs() > 1e-12])
    return torch.cat(guesses)


def patience(victim: Victim, orders: int) -> Tensor:
    """Guesses by the smallest model there is for that: two units between which lies one sample, as many beyond both as
    the site wants, asked again and again. (Where the sample lies is taken from the site's data: an attacker would have
    to search for it, by more orders.)"""
    generator, guesses = torch.Generator().manual_seed(4), []
    rows, layout = max(1, SiteSettings.load(victim.site).least_rows), Layout((FEATURES, 2, CLASSES))
    for first in range(0, orders, PATIENCE):
        model = Network(layout, torch.zeros(layout.parameters, dtype=torch.float64))
        (weight, bias), (out, _) = layout.views(model.params)
        weight[:] = torch.randn(FEATURES, 1, generator=generator, dtype=torch.float64) / FEATURES**0.5
        out[:] = torch.randn(1, CLASSES, generator=generator, dtype=torch.float64)
        nearest = (victim.x @ weight[:, 0]).sort(descending=True).values
        bias[:] = -(nearest[[rows - 1, rows]] + nearest[[rows, rows + 1]]) / 2
        changes = [victim.change(model, number) for number in range(first, min(orders, first + PATIENCE))]
        (moved, moved_bias), _ = layout.views(torch.stack(changes).mean(0))
        guesses.append((moved.diff(dim=1) / moved_bias.diff()).T)
    return torch.cat(guesses)


def optimisation(victim: Victim, orders: int) -> Tensor:
    """Guesses whose gradient is the one that came back; how many samples there are and their labels are known."""
    generator, guesses = torch.Generator().manual_seed(3), []
    for number in range(orders):
        model = _drawn(generator)
        change, labels = victim.change(model, number), victim.y[_drawn_rows(victim, number)]
        start = torch.randn(len(labels), FEATURES, generator=generator, dtype=torch.float64)
        guesses.append(matching(model, change, labels, start, min(victim.batch, SAMPLES)))
    return torch.cat(guesses)


def matching(model: Network, change: Tensor, labels: Tensor, start: Tensor, batch: int) -> Tensor:
    """Inputs whose gradient is the negative `change`, sought from `start`."""
    guess = start.clone().requires_grad_()
    search = torch.optim.LBFGS([guess], max_iter=200, history_size=50, line_search_fn="strong_wolfe")

    def distance() -> Tensor:
        search.zero_grad()
        params = model.params.clone().requires_grad_()
        logits = Network(model.layout, params).logits(guess)
        loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / batch
        (gradient,) = torch.autograd.grad(loss, params, create_graph=True)
        apart = ((gradient + change) ** 2).sum() / (change**2).sum()
        apart.backward()
        return apart

    search.step(distance)  # type: ignore[arg-type]
    return guess.detach()


def _drawn(generator: torch.Generator) -> Network:
    """A model with weights drawn as usual."""
    model = Network(LAYOUT, torch.zeros(LAYOUT.parameters, dtype=torch.float64))
    for weight, bias in LAYOUT.views(model.params):
        weight[:] = torch.randn(weight.shape, generator=generator, dtype=torch.float64) / len(weight) ** 0.5
        bias[:] = 0
    return model


def _drawn_rows(victim: Victim, number: int) -> np.ndarray:
    """The rows that the site draws: the seed is the coordinator's."""
    rng = stream(0, "batches", number, "a")
    return client_batches(SAMPLES, victim.steps, victim.batch, rng).reshape(-1)


def nearest(x: Tensor, guesses: Tensor) -> Tensor:
    """The relative error of the nearest guess to each of the samples `x`."""
    guesses = guesses[guesses.isfinite().all(1)]
    if not len(guesses):
        return x.new_full((len(x),), float("inf"))
    return torch.stack([(torch.cdist(one[None], guesses).min() / one.norm()) for one in x])


def recovered(x: Tensor, guesses: Tensor) -> tuple[int, float]:
    """How many of the samples `x` have a guess within 1 %, and the smallest relative error of all."""
    errors = nearest(x, guesses)
    return int((errors <= CLOSE).sum()), float(errors.min())


ATTACKS = {"ratio": ratio, "differences": differences, "patience": patience, "optimisation": optimisation}


def measured(attack: str, mode: str, orders: int) -> tuple[int, float]:
    """How many of 300 samples are recovered by that many orders, and the smallest relative error."""
    batch = SAMPLES if attack in ("differences", "patience") else 1
    with tempfile.TemporaryDirectory() as folder:
        victim = Victim(Path(folder), mode, batch, 1)
        return recovered(victim.x, ATTACKS[attack](victim, orders))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--orders", type=int, default=300)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    found = {}
    for attack in ATTACKS:
        for mode in MODES:
            orders = chosen.orders if mode != "privacy" else max(1, chosen.orders // 10)  # it takes longest
            count, least = measured(attack, mode, orders)
            found[f"{attack}, {mode}"] = {"orders": orders, "recovered": count, "least_error": least}
            line = f"{orders:4} orders: {count:3} of {SAMPLES} within 1 %, nearest {least:.2g}"
            print(f"{attack:13} {mode:16} {line}", flush=True)
    if chosen.out:
        chosen.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
