"""Write docs/results/methods.md from the comparisons beside it: `python -m benchmarks.methods_page`.

The raw results are the `results.json` files of `fedsac compare`, one for each data set and scene.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[1] / "docs" / "results"
CELLS = [(data, scene) for data in ("cifar10", "fashion-mnist") for scene in ("pow", "cla", "dir1.0", "dir3.0")]

INTRODUCTION = """# Methods, side by side

CIFAR-10 and Fashion-MNIST, ten clients, 100 rounds of 20 steps (batch 32, learning rate .05), five seeds (0 to 4),
each method with its default options, on one NVIDIA H200 in float32: 29 to 51 seconds for each table. Made by

    fedsac compare --data DATA --scene SCENE --methods all --seeds 5 --rounds 100 --eval-every 10 --device cuda

and written from the raw results in `docs/results/methods/` by `python -m benchmarks.methods_page`.

Mean over seeds, with the deviation where it matters. gamma and the best reward at three labels: `last` round;
`selected`, the round chosen on validation data; `best`, the evaluated round with the highest test gamma, the paper's
rule. The other columns are of the last round: gamma* is the highest gamma that BCF permits; aBCF the share of clients
inside alpha-BCF; *global* the accuracy of the common model, where there is
one (FedAvg's and q-FFL's rewards are copies of it trained one epoch more on the client's own data, which costs them
dearly in DIR); *lose* how many of ten clients end no better than alone; MB down what the server sends in a round.
"-": does not exist. Bold: the highest (gamma, best reward).

**These are runs under rules 1** (docs/decisions.md). Shares inside BCF are left out, since they followed another
definition and the clients' rewards were not kept; so are CFFL, RFFL, IAFL, FedRAC, `fedsac-no-aggregation` and
`fedsac-plus`, which do something else today. What is shown has not changed. `docs/fedsac-plus.md` has FedSAC+ on
development splits.

Hyper-parameters were not tuned per cell. CGSV and FedAVE reward by contribution here, as in the paper's tables
(`reward_by`).
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
    head = ["method", "gamma last", "selected", "best", "gamma*", "aBCF", "best reward last", "selected", "best"]
    head += ["global", "mean", "min", "lose", "MB down"]
    lines = ["| " + " | ".join(head) + " |", "| --- " + "| ---: " * (len(head) - 1) + "|"]
    top = {key: max(mean(rows[m, "last"][key]) for m in methods) for key in ("gamma", "max")}

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


def main() -> None:
    cells = {}
    for data, scene in CELLS:
        whole = json.loads((HERE / "methods" / f"{data}-{scene}.json").read_text())
        cells[data, scene] = {(row["method"], row["label"]): row for row in whole["rows"]}
    page = [INTRODUCTION]
    for (data, scene), rows in cells.items():
        page += [f"## {data}, {scene}", "", *table(rows), ""]
    (HERE / "methods.md").write_text("\n".join(page))


if __name__ == "__main__":
    main()
