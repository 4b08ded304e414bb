"""The tables of docs/security.md, from docs/results/attacks/*.json. What stands between the marks is written anew; the
words around them are by hand."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import correlation, mean, median

from benchmarks.studies.raw import Raw
from fedsac.atomic import write_atomic
from fedsac.errors import FedsacError

PRIVACY = "privacy.json"
TITLES = {  # of methods, in the order of the columns
    "fedsac": "FedSAC",
    "fedsac-plus": "FedSAC+",
    "fedrac": "FedRAC",
    "cgsv": "CGSV",
    "cffl": "CFFL",
    "rffl": "RFFL",
    "fedavg": "FedAvg",
    "fedsac, hardened": "**FedSAC, hardened**",
    "fedsac-plus, hardened": "**FedSAC+, hardened**",
}
Cells = dict[str, list[float | None]]
Grouped = dict[tuple[str, ...], dict[float | None, list[Raw]]]  # by what was measured, and by noise


def write(docs: Path) -> Path:
    """Write the tables into docs/security.md."""
    page, results = docs / "security.md", docs / "results" / "attacks"
    raws = [json.loads(path.read_text()) for path in sorted(results.glob("*.json")) if path.name != PRIVACY]
    parts = {"attacks": [line for raw in raws for line in attack_tables(raw)]}
    if (results / PRIVACY).exists():
        parts["privacy"] = list(privacy_tables(json.loads((results / PRIVACY).read_text())["runs"]))
    text = page.read_text()
    for name, lines in parts.items():
        marked = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- /{name} -->)", re.DOTALL)
        place = marked.search(text)
        if place is None:
            raise FedsacError(f"{page} has no marks <!-- {name} --> and <!-- /{name} -->")
        text = text[: place.end(1)] + "\n" + "\n".join(lines).strip() + "\n" + text[place.start(2) :]
    write_atomic(page, text.encode())
    return page


def attack_tables(raw: Raw) -> Iterator[str]:
    """The tables of a data set and scene: a row for each attack, a column for each method."""
    clean = {(run["method"], run["seed"]): run for run in raw["runs"] if run["attack"] == "clean"}
    by_attack: dict[str, dict[str, Cells]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for run in raw["runs"]:
        if run["attack"] != "clean":
            for key, value in measured(run, clean[run["method"], run["seed"]]).items():
                by_attack[run["attack"]][run["method"]][key].append(value)
    methods = [name for name in TITLES if any(method == name for method, _ in clean)]
    seeds = {name: len([1 for method, _ in clean if method == name]) for name in methods}
    counts = sorted({(count, "hardened" in name) for name, count in seeds.items()}, key=lambda one: one[1])
    said = "; ".join(f"{count} seeds{' (hardened)' if hardened else ''}" for count, hardened in counts)
    yield f"### {raw['data']}, {raw['scene']}: {raw['clients']} clients, {raw['rounds']} rounds, {said}"

    def table(title: str, cell: Callable[[Cells], str], wanted: Sequence[str], attacks: Iterable[str]) -> Iterator[str]:
        yield from ("", title, "", "| attack | " + " | ".join(TITLES[name] for name in wanted) + " |")
        yield "| --- |" + " ---: |" * len(wanted)
        for attack in attacks:
            yield f"| `{attack}` | " + " | ".join(cell(by_attack[attack][name]) for name in wanted) + " |"

    yield from ("", "Clean runs.", "", "| method | seeds | gamma | best reward | mean reward |")
    yield "| --- | ---: | ---: | ---: | ---: |"
    for name in methods:
        own = [run for (method, _), run in clean.items() if method == name]
        gamma = _mean(_gamma(run) for run in own)
        scores = [mean(of(run["rewards"]) for run in own) for of in (max, mean)]
        shown = "-" if gamma is None else f"{gamma:.1f}"
        yield f"| {TITLES[name]} | {seeds[name]} | {shown} | {scores[0]:.3f} | {scores[1]:.3f} |"
    yield from table("The adversary's gain over honesty, in points.", _gain, methods, by_attack)
    yield from table("What honest clients lose, in points: the best reward / the mean.", _loss, methods, by_attack)
    aimed = [attack for attack, of in by_attack.items() if _mean(of[methods[0]]["success"]) is not None]
    yield from table(
        "Attack success: the share of probe samples that the best-paid honest client's model takes for what the attack "
        "wants.",
        _success,
        methods,
        aimed,
    )
    watched = [name for name in methods if any(_mean(of[name]["recall"]) is not None for of in by_attack.values())]
    yield from table("Found out: hostile clients (recall) / honest ones (false positives).", _found, watched, by_attack)
    yield ""


def _gamma(run: Raw) -> float | None:
    """100 times the correlation of contributions and rewards; None where all are paid the same."""
    c, theta = run["contributions_test"], run["rewards"]
    return 100 * correlation(c, theta) if len(set(c)) > 1 and len(set(theta)) > 1 else None


def measured(run: Raw, clean: Raw) -> dict[str, float | None]:
    """What an attack came to in one run, beside the clean run of the same seed."""
    paid, was = (dict(zip(one["clients"], one["rewards"], strict=True)) for one in (run, clean))
    hostile = run["attackers"]
    kept = run["kept"] or [paid[name] for name in hostile]
    parties = [name for name in was if name in hostile or name not in paid]
    honest = [name for name in was if name not in parties]
    each = [have - was[name] for name, have in zip(hostile, kept, strict=True) if name in was]
    best, found = max(honest, key=lambda name: paid[name]), run["found"]
    return {
        "gain": max(kept) - max(was[name] for name in parties) if run["one_party"] else mean(each),
        "best_loss": max(was[name] for name in honest) - paid[best],
        "mean_loss": mean(was[name] - paid[name] for name in honest),
        "success": None if run["success"] is None else run["success"][run["clients"].index(best)],
        "recall": None if found is None else mean(name in found for name in hostile),
        "false": None if found is None else mean(name in found for name in honest),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return mean(there) if there else None


def _points(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f}".replace("-0.0", "0.0").replace("+0.0", "0.0")


def _gain(cells: Cells) -> str:
    return _points(_mean(cells["gain"]))


def _loss(cells: Cells) -> str:
    return f"{_points(_mean(cells['best_loss']))} / {_points(_mean(cells['mean_loss']))}"


def _success(cells: Cells) -> str:
    value = _mean(cells["success"])
    return "-" if value is None else f"{value:.2f}"


def _found(cells: Cells) -> str:
    recall, false = _mean(cells["recall"]), _mean(cells["false"])
    return "-" if recall is None or false is None else f"{recall:.2f} / {false:.2f}"


def privacy_tables(rows: Sequence[Raw]) -> Iterator[str]:
    """Membership inference, gradient inversion, and the price of differential privacy."""
    yield from ("", "Membership inference: AUC, and true positives at 1 % false ones.", "")
    own = _grouped(rows, "membership", ("target", "attack"))
    yield from _head(("from", "attack"), ("AUC", "TPR"), own)
    for (target, attack), of in own.items():
        cells = [f"{mean(row[key] for row in of[noise]):.3f}" for noise in _noises(of) for key in ("auc", "tpr")]
        yield f"| {target} | {attack} | " + " | ".join(cells) + " |"
    yield from ("", "Gradient inversion: samples recovered within 1 %; the median error of the nearest guess.", "")
    own = _grouped(rows, "inversion", ("sent",))
    yield from _head(("what is sent", "public digits"), ("recovered", "error"), own)
    for (sent,), of in own.items():
        cells = [f"{mean(row['public'] for row in of[None]):.2g}"]
        for noise in _noises(of):
            cells.append(f"{mean(row['recovered'] for row in of[noise]):.2f}")
            cells.append(f"{mean(row['median'] for row in of[noise]):.2g}")
        yield f"| {sent} | " + " | ".join(cells) + " |"
    yield from ("", "The price of differential privacy: FedSAC, last round, `clip` 1.", "")
    yield "| data | noise | epsilon: least, median, most | alone: median | gamma | best | mean | best alone |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (data,), of in _grouped(rows, "price", ("data",)).items():
        for noise in _noises(of):
            yield f"| {data} | {_price(noise, of[noise])} |"


def _head(first: Sequence[str], columns: Sequence[str], own: Grouped) -> Iterator[str]:
    """The first lines of a table that has some columns for each noise."""
    noises = _noises(next(iter(own.values())))
    named = [column if noise is None else f"{column}, noise {noise:g}" for noise in noises for column in columns]
    yield "| " + " | ".join([*first, *named]) + " |"
    yield "|" + " --- |" * len(first) + " ---: |" * len(named)


def _noises(of: dict[float | None, list[Raw]]) -> list[float | None]:
    return sorted(of, key=lambda noise: noise or 0)


def _grouped(rows: Sequence[Raw], kind: str, keys: Sequence[str]) -> Grouped:
    found: Grouped = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["kind"] == kind:
            found[tuple(row[key] for key in keys)][row["noise"]].append(row)
    return found


def _price(noise: float | None, own: Sequence[Raw]) -> str:
    spent = ["-", "-"]
    if noise is not None:
        every = [row["epsilon"] for row in own]
        least, middle, most = (mean(of(one) for one in every) for of in (min, median, max))
        alone = mean(median(row["epsilon_alone"]) for row in own)
        spent = [f"{least:.1f}, {middle:.1f}, {most:.1f}", f"{alone:.1f}"]
    gammas = [row["gamma"] for row in own if row["gamma"] is not None]
    scores = [f"{mean(row[key] for row in own):.3f}" for key in ("best", "mean", "best_alone")]
    gamma = f"{mean(gammas):.1f}" if gammas else "-"
    return " | ".join(["none" if noise is None else f"{noise:g}", *spent, gamma, *scores])
