"""What each of the paper's tables shows: the measure of a run, at which rounds (labels), and notes for the reader."""

from collections.abc import Callable
from dataclasses import dataclass

from fedsac.paper.results import Run

Measure = Callable[[Run, str], tuple[float | None, float | None]]  # the number at a label, and the one in brackets


@dataclass(frozen=True)
class Kind:
    """What a table shows; `labels`, `digits` and `better` are as in `Table`."""

    title: str
    measure: Measure
    labels: dict[str, str]
    notes: tuple[str, ...] = ()
    digits: int | None = 2
    better: int = 1


def gamma(run: Run, label: str) -> tuple[float | None, None]:
    return run.labels[label].gamma, None


def accuracy(run: Run, label: str) -> tuple[float, None]:
    """The best reward in percent."""
    return 100 * (run.peak[0] if label == "peak" else run.labels[label].max), None


def common(run: Run, label: str) -> tuple[float | None, None]:
    """Accuracy of the global model in percent, if there is one."""
    value = run.peak[1] if label == "peak" else run.labels[label].common
    return None if value is None else 100 * value, None


def alone(run: Run, label: str) -> tuple[float, None]:
    """The best standalone accuracy in percent."""
    return 100 * max(run.contributions), None


def fair(run: Run, label: str) -> tuple[float | None, float | None]:
    """Best and lowest reward in percent: at the last round, or at the best round with gamma above 95."""
    if label == "last":
        return 100 * run.labels["last"].max, 100 * run.labels["last"].min
    return (None, None) if run.fair is None else (100 * run.fair[1], 100 * run.fair[2])


def megabytes(run: Run, label: str) -> tuple[float, None]:
    return {"mean": run.megabytes, "last": run.counted, "files": run.serialised}[label], None


def setting(name: str) -> Measure:
    return lambda run, label: (float(getattr(run, name)), None)


LABELS = {
    "best": "ours at the evaluated round with the highest test gamma, the paper's rule",
    "last": "ours at the last round",
}
ACCURACY = LABELS | {"peak": "ours at its highest over the evaluated rounds, chosen on the test set, whatever gamma is"}
FAIR = {
    "fair": "ours at the best reward among the evaluated rounds with gamma above 95",
    "last": "ours at the last round, whatever its gamma",
}
SENT = {
    "mean": "ours by the formula, 4 bytes a parameter: mean over all rounds",
    "last": "ours by the formula at the last round",
    "files": "ours at the last round as files",
}
GAMMA_NOTE = "gamma does not exist where all rewards are equal; its mean is over the seeds where it does."
ACCURACY_NOTES = (
    "Standalone is the best contribution: it has no rounds, so its lines are one number.",
    "FedAvg's and q-FFL's rewards are copies of the common model trained one epoch more on the client's own data; the "
    "rows 'common model' show that model itself. The paper does not say which of the two it printed.",
)
SENT_NOTE = "A baseline sends the full model to each of ten clients: 26.27 MB, on Fashion-MNIST 7.97 MB."

KINDS = {
    "table1": Kind("fairness, gamma from -100 to 100", gamma, LABELS, (GAMMA_NOTE,)),
    "table2": Kind("best client's test accuracy in %", accuracy, ACCURACY, ACCURACY_NOTES),
    "table3": Kind("ablations, gamma", gamma, LABELS, (GAMMA_NOTE,)),
    "table4": Kind("ablations, best client's test accuracy in %", accuracy, ACCURACY),
    "table5": Kind("more clients, gamma", gamma, LABELS, (GAMMA_NOTE,)),
    "table6": Kind("more clients, best client's test accuracy in %", accuracy, ACCURACY, ACCURACY_NOTES),
    "table7": Kind("FedSAC's best (lowest) reward in % given gamma > 95, by beta", fair, FAIR),
    "table8": Kind("megabytes a round, all clients together", megabytes, SENT, (SENT_NOTE,), better=-1),
    "table9": Kind("settings", setting("beta"), {"runs": "what our runs had"}, digits=None, better=0),
}
