"""docs/results/attacks.md, from docs/results/attacks/*.json."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks.security.attacks import ALONE, FIRST, MISSING, OTHERS
from benchmarks.security.privacy_page import PRIVACY
from benchmarks.studies.definitions import Cell
from benchmarks.studies.measures import named
from benchmarks.studies.raw import Raw
from benchmarks.studies.tables import markdown
from fedsac.atomic import write_atomic
from fedsac.config import ALL
from fedsac.core.fairness import bcf, gamma
from fedsac.runs.attack_table import against_clean
from fedsac.runs.statistics import mean_interval

HARDENED = f", hardened {ALL}"
TITLES = {  # of methods, in the order of the columns
    **{"fedsac": "FedSAC", "fedsac-plus": "FedSAC+", "fedrac": "FedRAC"},
    **{"cgsv": "CGSV", "cffl": "CFFL", "rffl": "RFFL", "fedavg": "FedAvg"},
    **{f"fedsac{HARDENED}": "**FedSAC, hardened**", f"fedsac-plus{HARDENED}": "**FedSAC+, hardened**"},
}
SINGLE = {f"fedsac, hardened {name}": name for name in (FIRST, *OTHERS)}
FREE_RIDERS = ("zero", "stale", "random", "delta", "disguise", "late-switch", "lazy", "part-time", "replay")
INTRODUCTION = f"""\
# Attacks and defences, in figures

Twelve clients, of whom two are hostile: those with the median client's data, or whoever is named behind the @. Every
run stands beside the clean run of the same method, seed and split, in which they are honest. All numbers are of the
`last` round, means over seeds; points are hundredths of accuracy, and ± is half of the 95 % interval of the mean. What
the attacks do and what the columns mean is in [attacks.md](../attacks.md), the defences are in
[hardening.md](../hardening.md), what follows from all this is in [security.md](../security.md).

    python -m benchmarks.security attacks OUT --scenes pow,dir:1.0 --workers 2     # digits
    python -m benchmarks.security attacks OUT --data fashion-mnist,cifar10 --scenes pow,dir:1.0 --device cuda
    cp OUT/*.json docs/results/attacks/ && python -m benchmarks.security page

CGSV, CFFL and RFFL reward by their own rules (`reward_by=own`); FedSAC is the paper's, as printed; *hardened* is
`--hardened all`. FedAvg pays everybody the same model. What is handed in as trained alone has no effect on CGSV, CFFL
and RFFL, which do not look at it. `fine-tune` is no attack, but what anybody may do with a reward: what `regrow` gains
beyond it is. `claim` changes nothing where contributions are measured: whom the server names in its runs are honest
clients, and that is the last column of the first table. *missing*: `--behaviour {MISSING}`, clients that stay away at
random, with every method's own numbers of that. *n wrecked*: in so many seeds the model's loss was no number any more,
so that the run could not go on; they are in no mean.

The defences were designed on the digits, on these seeds: there, the hardened columns are figures of design, not a test.
Fashion-MNIST was made with `--only ours --methods fedsac --attacks ...`: FedSAC alone, and the attacks that are listed.
"""
Values = dict[str, list[float]]


def write(docs: Path) -> Path:
    """Write the page."""
    files = sorted((docs / "results" / "attacks").glob("*.json"))
    raws = [json.loads(path.read_text()) for path in files if path.name != PRIVACY]
    text = "\n".join([INTRODUCTION, *(line for raw in raws for line in Tables(raw).lines())])
    write_atomic(docs / "results" / "attacks.md", (text.rstrip() + "\n").encode())
    return docs / "results" / "attacks.md"


class Tables:
    """The tables of a data set and scene."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._clean: dict[str, dict[int, Raw]] = defaultdict(dict)
        for run in raw["runs"]:
            if run["attack"] == "clean":
                self._clean[run["method"]][run["seed"]] = run
        self._values: dict[str, dict[str, Values]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
        for run in raw["runs"]:
            if "wrecked" in run:
                self._values[run["attack"]][run["method"]]["wrecked"].append(1.0)
            elif run["attack"] != "clean":
                for key, value in measured(run, self._clean[run["method"]][run["seed"]]).items():
                    if value is not None:
                        self._values[run["attack"]][run["method"]][key].append(value)

    def lines(self) -> Iterator[str]:
        raw, columns = self._raw, [name for name in TITLES if name in self._clean]
        most = max(len(seeds) for seeds in self._clean.values())
        yield f"## {named(Cell(raw['data'], raw['scene'], clients=10))}\n"
        yield f"{raw['clients']} clients, {raw['rounds']} rounds, {most} seeds, hidden layers of"
        yield f"{' and '.join(map(str, raw['hidden']))} neurons. Made with {_made(raw['made'])}."
        if "others" in raw["made"]:  # taken over from an earlier raw file: what has changed since does not concern them
            yield f"The runs of other methods than FedSAC and FedSAC+: {_made(raw['made']['others'])}."
        if again := raw["made"].get("again"):  # made once more, after a change that concerns nothing else
            listed = ", ".join(f"`{name}`" for name in again["attacks"])
            yield f"The runs of ours, clean and under {listed}, were made again since: {_made(again)}."
        yield from ("\nClean runs.\n", self._clean_table())
        everywhere = list(self._values)
        yield from self._table("The adversary's gain over honesty, in points.", _gain, columns, everywhere)
        riders = [attack for attack in everywhere if attack in FREE_RIDERS]
        yield from self._table(
            "Free riders: what the best-paid ends with, less the lowest honest reward (and the highest of the seeds).",
            _over_lowest,
            columns,
            riders,
        )
        yield from self._table(
            "What honest clients lose, in points: the best reward / the mean / whoever loses most (never "
            "nothing: another run is another draw).",
            _loss,
            columns,
            everywhere,
        )
        aimed = [attack for attack, of in self._values.items() if any(of[name]["success"] for name in columns)]
        yield from self._table(
            "Attack success: the share of probe samples that is taken for what the attack wants, by the model of the "
            "best-paid honest client / by those of all honest clients (one that has learned little may do so "
            "without an attack).",
            _success,
            columns,
            aimed,
        )
        watched = [name for name in columns if any(of[name]["recall"] for of in self._values.values())]
        yield from self._table(
            "Found out: hostile clients (recall) / honest ones (false positives).", _found, watched, everywhere
        )
        alone = ["fedsac", *SINGLE, f"fedsac{HARDENED}"]
        if SINGLE.keys() <= self._clean.keys():
            there = [attack for attack in ALONE if attack in self._values]
            yield from self._table("FedSAC, each defence alone: gain.", _gain, alone, there)
            yield from self._table(
                "FedSAC, each defence alone: what honest clients lose, best / mean / whoever loses most.",
                _loss,
                alone,
                there,
            )
        yield ""

    def _clean_table(self) -> str:
        head = ("method", "seeds", "gamma", "in BCF", "best reward", "mean reward", "honest clients named")
        order = [f"{name}{more}" for name in (*TITLES, *SINGLE) for more in ("", ", missing")]
        lines = []
        for name in (name for name in order if name in self._clean):
            own = list(self._clean[name].values())
            pairs = [(run["contributions_test"], run["rewards"]) for run in own]
            gammas = [value for c, theta in pairs if (value := gamma(c, theta)) is not None]
            lines.append(
                [
                    _title(name),
                    str(len(own)),
                    f"{mean(gammas):.1f}" if gammas else "-",
                    f"{mean(float(np.mean(bcf(c, theta))) for c, theta in pairs):.2f}",
                    f"{mean(max(theta) for _, theta in pairs):.3f}",
                    f"{mean(mean(theta) for _, theta in pairs):.3f}",
                    self._named(name, own),
                ]
            )
        return markdown(head, lines)

    def _named(self, method: str, clean: Sequence[Raw]) -> str:
        """How many clients the server names where all are honest; "-" where nothing could name anybody."""
        runs = clean
        if not method.endswith("missing"):
            runs = [run for run in self._raw["runs"] if (run["attack"], run["method"]) == ("claim", method)]
        if not runs or any(run["found"] is None for run in runs):
            return "-"
        return f"{sum(len(run['found']) for run in runs)} of {sum(len(run['clients']) for run in runs)}"

    def _table(
        self, title: str, cell: Callable[[Values], str], columns: Sequence[str], attacks: Iterable[str]
    ) -> Iterator[str]:
        lines = [
            [f"`{attack}`", *(_with_wrecks(cell, self._values[attack][name]) for name in columns)] for attack in attacks
        ]
        # Where a defence has a column of its own, its name is enough.
        heads = [SINGLE.get(name) or _title(name) for name in columns]
        yield from (f"\n{title}\n", markdown(["attack", *heads], lines)) if lines else ()


def _made(made: Raw) -> str:
    return f"fedsac {made['fedsac']}, commit {made['commit']}, source {made['source']}, on {made['device']}"


def _title(method: str) -> str:
    name, missing, _ = method.partition(", missing")
    title = TITLES.get(name) or f"FedSAC, {SINGLE[name]} alone"
    return f"{title}{missing}"


def measured(run: Raw, clean: Raw) -> dict[str, float | None]:
    """What an attack came to in one run, beside the clean run of the same seed."""
    paid, was = (dict(zip(one["clients"], one["rewards"], strict=True)) for one in (run, clean))
    return against_clean(paid, was, run, run["found"])


def _points(value: float) -> str:
    return f"{100 * value:+.1f}".replace("-0.0", "0.0").replace("+0.0", "0.0")


def _with_wrecks(cell: Callable[[Values], str], values: Values) -> str:
    """A cell, and in how many seeds there is no number since the attack has wrecked the model."""
    wrecked = len(values["wrecked"])
    if not wrecked:
        return cell(values)
    return f"{cell(values)}, {wrecked} wrecked" if values["gain"] else f"{wrecked} wrecked"


def _gain(values: Values) -> str:
    if not values["gain"]:
        return "-"
    text, interval = _points(mean(values["gain"])), mean_interval(values["gain"])
    return text if interval is None or np.ptp(interval) == 0 else f"{text} ± {50 * float(np.ptp(interval)):.1f}"


def _over_lowest(values: Values) -> str:
    over = values["over_lowest"]
    return f"{_points(mean(over))} ({_points(max(over))})" if over else "-"


def _loss(values: Values) -> str:
    three = [values[key] for key in ("best_loss", "mean_loss", "one_loss")]
    return " / ".join(_points(mean(of)) for of in three) if all(three) else "-"


def _success(values: Values) -> str:
    return f"{mean(values['success']):.2f} / {mean(values['mean_success']):.2f}" if values["success"] else "-"


def _found(values: Values) -> str:
    return f"{mean(values['recall']):.2f} / {mean(values['false_positives']):.2f}" if values["recall"] else "-"
