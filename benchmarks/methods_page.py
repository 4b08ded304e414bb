"""Write docs/results/methods.md from the comparisons beside it: `python -m benchmarks.methods_page`.

The raw results are the `results.json` files of `fedsac compare`, one for each data set and scene.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[1] / "docs" / "results"
CELLS = [(data, scene) for data in ("cifar10", "fashion-mnist") for scene in ("pow", "cla", "dir1.0", "dir3.0")]
OURS = "fedsac-plus"

INTRODUCTION = """# Methods, side by side

CIFAR-10 and Fashion-MNIST, ten clients, 100 rounds of 20 steps (batch 32, learning rate .05), five seeds (0 to 4),
every method with its default options, on one NVIDIA H200 in float32: 29 to 51 seconds for each table. Made by

    fedsac compare --data DATA --scene SCENE --methods all --seeds 5 --rounds 100 --eval-every 10 --device cuda

and written from the raw results in `docs/results/methods/` by `python -m benchmarks.methods_page`.

Mean over seeds, with the deviation where it matters. gamma and the best reward at three labels: `last` round;
`selected`, the round chosen on validation data; `best`, the evaluated round with the highest test gamma, the paper's
rule. The other columns are of the last round: gamma* is the highest gamma that BCF permits; BCF and aBCF the shares of
clients inside bounded collaborative fairness and alpha-BCF; *global* the accuracy of the common model, where there is
one (FedAvg's and q-FFL's rewards are copies of it trained one epoch more on the client's own data, which costs them
dearly in DIR); *lose* how many of ten clients end no better than alone; MB down what the server sends in a round.
"-": does not exist. Bold: the highest (gamma, BCF, best reward).

Hyper-parameters were not tuned per cell. CGSV, CFFL, FedAVE and RFFL reward by contribution here, as in the paper's
tables (`reward_by`); with our readings of CFFL and CGSV the rewards come out nearly equal, or upside down, in several
cells where the paper prints a gamma above 85. What differs from the authors' runs is not known; do not quote these
rows as theirs. Options of `fedsac-plus` were chosen on a development split of the training data (docs/fedsac-plus.md).
"""


def number(values: list[float | None], digits: int, deviation: bool = False) -> str:
    there = [value for value in values if value is not None]
    if not there:
        return "-"
    text = f"{np.mean(there):.{digits}f}"
    return f"{text} ± {np.std(there, ddof=1):.{digits}f}" if deviation and len(there) > 1 else text


def mean(values: list[float | None]) -> float:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else -np.inf


def table(rows: dict[tuple[str, str], Any]) -> list[str]:
    methods = list(dict.fromkeys(method for method, _ in rows))
    head = ["method", "gamma last", "selected", "best", "gamma*", "BCF", "aBCF", "best reward last", "selected", "best"]
    head += ["global", "mean", "min", "lose", "MB down"]
    lines = ["| " + " | ".join(head) + " |", "| --- " + "| ---: " * (len(head) - 1) + "|"]
    top = {key: max(mean(rows[m, "last"][key]) for m in methods) for key in ("gamma", "bcf", "max")}

    def bold(key: str, method: str, text: str) -> str:
        return f"**{text}**" if mean(rows[method, "last"][key]) == top[key] else text

    for method in methods:
        last, selected, best = (rows[method, label] for label in ("last", "selected", "best"))
        cells = [
            f"`{method}`",
            bold("gamma", method, number(last["gamma"], 2, deviation=True)),
            number(selected["gamma"], 2),
            number(best["gamma"], 2),
            number(last["gamma_limit"], 2),
            bold("bcf", method, number(last["bcf"], 2)),
            number(last["alpha_bcf"], 2),
            bold("max", method, number(last["max"], 4, deviation=True)),
            number(selected["max"], 4),
            number(best["max"], 4),
            number(last["global"], 4),
            number(last["mean"], 4),
            number(last["min"], 4),
            number(last["losers"], 1),
            number(last["megabytes"], 2),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def distances(cells: dict[tuple[str, str], dict[tuple[str, str], Any]]) -> list[str]:
    """How far our own method is from what it is meant to reach, cell by cell."""
    head = ["cell", "gamma - gamma*", "gamma - FedRAC's", "gamma - FedSAC's", "BCF", "best - FedAvg's best reward"]
    head += ["best - FedAvg's global", "clients that lose (of 10)"]
    lines = ["| " + " | ".join(head) + " |", "| --- " + "| ---: " * (len(head) - 1) + "|"]
    for (data, scene), rows in cells.items():
        own, fedavg = rows[OURS, "last"], rows["fedavg", "last"]
        gamma, best = mean(own["gamma"]), mean(own["max"])
        values = [
            f"{gamma - mean(own['gamma_limit']):+.2f}",
            f"{gamma - mean(rows['fedrac', 'last']['gamma']):+.2f}",
            f"{gamma - mean(rows['fedsac', 'last']['gamma']):+.2f}",
            f"{mean(own['bcf']):.2f}",
            f"{best - mean(fedavg['max']):+.4f}",
            f"{best - mean(fedavg['global']):+.4f}",
            f"{mean(own['losers']):.1f}",
        ]
        lines.append(f"| {data} {scene} | " + " | ".join(values) + " |")
    return lines


def main() -> None:
    cells = {}
    for data, scene in CELLS:
        whole = json.loads((HERE / "methods" / f"{data}-{scene}.json").read_text())
        cells[data, scene] = {(row["method"], row["label"]): row for row in whole["rows"]}
    page = [
        INTRODUCTION,
        "## How far `fedsac-plus` is from its goal",
        "",
        "`last` round, mean of five seeds. The goal: gamma at least gamma* - 0.5 and not below FedRAC's, BCF 1.00,",
        "best reward not below FedAvg's, nobody worse off than alone.",
        "",
        *distances(cells),
        "",
    ]
    for (data, scene), rows in cells.items():
        page += [f"## {data}, {scene}", "", *table(rows), ""]
    (HERE / "methods.md").write_text("\n".join(page))


if __name__ == "__main__":
    main()
