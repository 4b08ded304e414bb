"""The paper's Figures 1 and 3 to 6, drawn from results. What was not run is not drawn.

Figure 2 is the paper's sketch of the method and has no numbers.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedsac.atomic import write_atomic
from fedsac.core.fairness import bcf, gamma
from fedsac.paper.printed import DATA, METHODS, Column, scene_name
from fedsac.paper.results import Results, Run
from fedsac.paper.settings import SCENES
from fedsac.paper.tables import READS_BETA, Index, table9_beta
from fedsac.report.charts import Series, clients_by_method, contribution_reward, lines, scatter
from fedsac.report.drawing import svg
from fedsac.report.pdf import available, pdf
from fedsac.report.shapes import Drawing

NamedDrawing = tuple[str, Drawing]  # the name is that of the file, without suffix

COMPARED = ("fedavg", "qffl", "cffl", "cgsv", "fedave", "fedsac")
FIGURE1 = ((1.0, 9.0, 11.0), (99.0, 99.2, 99.3))  # contributions and rewards of Section 1
INSIDE_BCF = (2.0, 54.0, 99.3)  # rewards inside BCF for the same contributions and the same best reward
FIGURE4 = tuple(Column(data, 10, "dir:1.0") for data in ("cifar10", "svhn"))
FIGURE5 = tuple(Column(data, 10, scene) for data in ("cifar10", "svhn") for scene in ("pow", "cla"))
FIGURE6 = tuple(Column(data, 10, scene) for data in ("cifar10", "svhn") for scene in ("pow", "cla", "dir:2.0"))


def all_figures(results: Results, label: str = "last") -> list[NamedDrawing]:
    """Every figure that the results have the runs for, in the paper's order."""
    figures = [figure1(), figure3(results, label), figure4(results, label), figure5(results), figure6(results, label)]
    return [drawing for figure in figures for drawing in figure]


def figure1() -> list[NamedDrawing]:
    """Why gamma alone misleads: the paper's rewards hardly differ and have a higher gamma than rewards inside BCF.

    >>> [drawing.title for _, drawing in figure1()]
    ['gamma 98.97: 1 of 3 inside BCF', 'gamma 95.72: 3 of 3 inside BCF']
    """
    contributions, rewards = FIGURE1
    clients = [f"client {i + 1}" for i in range(len(contributions))]
    drawings = []
    for part, theta in (("a", rewards), ("b", INSIDE_BCF)):
        inside = int(bcf(contributions, theta).sum())
        title = f"gamma {gamma(contributions, theta):.2f}: {inside} of {len(theta)} inside BCF"
        drawings.append((f"figure1{part}", contribution_reward(title, clients, contributions, theta, unit="")))
    return drawings


def figure3(results: Results, label: str = "last") -> list[NamedDrawing]:
    """Fairness against accuracy, one drawing per data set: a point for each method and scene, means over seeds."""
    index, drawings = Index(results), []
    for data, title in DATA.items():
        series = []
        for method in COMPARED:
            points, tips, labels = [], [], []
            for scene in SCENES:
                runs = _runs(index, Column(data, 10, scene), method)
                gammas = [g for run in runs if (g := run.labels[label].gamma) is not None]
                if gammas:
                    best, fair = 100 * float(np.mean([run.labels[label].max for run in runs])), float(np.mean(gammas))
                    points.append((best, fair))
                    labels.append(scene_name(scene))
                    tips.append(f"{METHODS[method]}, {scene_name(scene)}: best reward {best:.2f} %, gamma {fair:.2f}")
            series.append(Series(METHODS[method], tuple(points), tuple(tips), tuple(labels)))
        if any(s.points for s in series):
            heading = _titled(f"{title}: fairness against accuracy", results, label)
            drawings.append((f"figure3-{data}", scatter(heading, series, "highest test accuracy (%)", "gamma")))
    return drawings


def figure4(results: Results, label: str = "last") -> list[NamedDrawing]:
    """Contribution and reward of each client with every method, DIR(1.0)."""
    return _clients("figure4", FIGURE4, results, label)


def figure5(results: Results) -> list[NamedDrawing]:
    """Test accuracy of each client over the rounds of FedSAC, POW and CLA; means over seeds."""
    index, drawings = Index(results), []
    for column in FIGURE5:
        curves = [dict(run.curve) for run in _runs(index, column, "fedsac") if run.curve is not None]
        if not curves:
            continue
        rounds = sorted(set.intersection(*(set(curve) for curve in curves)))
        means = {t: np.mean([curve[t] for curve in curves], axis=0) for t in rounds}
        series = [
            Series(f"client {i + 1}", tuple((t, 100 * float(means[t][i])) for t in rounds))
            for i in range(column.clients)
        ]
        title = _titled(f"{column}: FedSAC's clients", results)
        drawings.append((f"figure5-{_slug(column)}", lines(title, series, "round", "test accuracy (%)")))
    return drawings


def figure6(results: Results, label: str = "last") -> list[NamedDrawing]:
    """As Figure 4, for POW, CLA and DIR(2.0)."""
    return _clients("figure6", FIGURE6, results, label)


def _clients(figure: str, columns: Sequence[Column], results: Results, label: str) -> list[NamedDrawing]:
    index, drawings = Index(results), []
    for column in columns:
        runs_of = {method: _runs(index, column, method) for method in COMPARED}
        # Methods that were not run take no mark: which mark is whose may differ from drawing to drawing.
        rewards = {
            METHODS[method]: _percent([run.labels[label].rewards for run in runs])
            for method, runs in runs_of.items()
            if runs
        }
        if rewards:
            names = [f"client {i + 1}" for i in range(column.clients)]
            seeds = {run.seed: run for runs in runs_of.values() for run in runs}  # all methods have the same clients
            alone = _percent([run.contributions for run in seeds.values()])
            title = _titled(f"{column}: contributions and rewards", results, label)
            drawings.append((f"{figure}-{_slug(column)}", clients_by_method(title, names, alone, rewards)))
    return drawings


def _runs(index: Index, column: Column, method: str) -> list[Run]:
    """A method's runs, one for each seed; FedSAC's with Table 9's beta."""
    return index.of(column, method, table9_beta(column) if method in READS_BETA else None)


def _percent(rows: Sequence[Sequence[float]]) -> list[float]:
    """Means over seeds in percent, client by client; `rows` are [seeds][clients]."""
    return [100 * float(value) for value in np.mean(rows, axis=0)]


def _titled(title: str, results: Results, label: str | None = None) -> str:
    marks = [mark for mark in (label, "quick" if results.made.get("quick") else None) if mark]
    return f"{title} ({', '.join(marks)})" if marks else title


def _slug(column: Column) -> str:
    return f"{column.data}-{column.scene.replace(':', '')}"


def draw(results: Results, folder: Path, label: str = "last") -> list[tuple[str, str]]:
    """Write every figure as .svg and, where that is installed, as .pdf into `folder`; returns names, and paths relative
    to the folder's parent."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, drawing in all_figures(results, label):
        write_atomic(folder / f"{name}.svg", svg(drawing).encode(), durable=False)
        if available():
            write_atomic(folder / f"{name}.pdf", pdf(drawing), durable=False)
        written.append((name, f"{folder.name}/{name}.svg"))
    return written
