"""The paper's figures from results: the numbers drawn are the results', and what was not run is not drawn."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from fedsac.core.fairness import gamma, gamma_limit
from fedsac.paper.figures import COMPARED, FIGURE1, INSIDE_BCF, all_figures, figure1, figure3, figure4, figure5, figure6
from fedsac.paper.results import ChosenRound, Results, Run
from fedsac.paper.settings import SCENES, TABLE9
from fedsac.report.drawing import svg
from fedsac.report.pdf import pdf
from fedsac.report.shapes import Drawing, Line, Mark
from tests.test_drawing import read_pdf

CLIENTS = 10


def made_up(data: str, scene: str, method: str, seed: int, beta: float = 5.0, curve: bool = False) -> Run:
    """Rewards and contributions that say where they come from: client i, seed s, method m, label."""
    m = COMPARED.index(method)
    alone = tuple(0.3 + 0.02 * i + 0.01 * seed for i in range(CLIENTS))
    labels = {}
    for k, label in enumerate(("last", "selected", "best")):
        rewards = tuple(0.4 + 0.02 * i + 0.01 * m + 0.002 * seed + 0.001 * k for i in range(CLIENTS))
        labels[label] = ChosenRound(
            7, 90.0 + m + seed + k / 4, 99.0, 0.5, 0.5, max(rewards), 0.5, min(rewards), None, rewards
        )
    points = tuple((t, tuple(0.1 * t + 0.01 * i + 0.02 * seed for i in range(CLIENTS))) for t in (1, 2, 3))
    return Run(
        *(data, scene, CLIENTS, method, beta, seed, 7, 0.05, 20, 32, alone, labels),
        peak=(0.6, None),
        fair=None,
        megabytes=1.0,
        serialised=1.0,
        counted=1.0,
        plateau=(0.5, 0.5, 0.5),
        curve=points if curve else None,
    )


def results(**made: object) -> Results:
    runs = []
    for data, settings in TABLE9.items():
        for scene, beta in zip(SCENES, settings["beta"], strict=True):
            for method in COMPARED:
                for seed in (0, 1):
                    own = float(beta) if method == "fedsac" else 5.0
                    runs.append(made_up(data, scene, method, seed, own, curve=method == "fedsac"))
            # Table 7's: no figure shows them.
            runs.append(made_up(data, scene, "fedsac", 9, 99.0, curve=True))
    return Results(dict(made), tuple(runs))


def tips(drawing: Drawing) -> list[str]:
    return [shape.tip for shape in drawing.shapes if isinstance(shape, Mark | Line) and shape.tip]


def test_figure_1_has_the_papers_numbers():
    (first, wrong), (second, right) = figure1()
    assert (first, second) == ("figure1a", "figure1b")
    assert wrong.title.startswith("gamma 98.97:")
    assert ["outside" in tip for tip in tips(wrong)] == [True, True, False]  # the best reward has no upper bound
    assert all("inside" in tip for tip in tips(right))
    # The point of it: no rewards inside BCF reach the gamma of those that are not.
    contributions, rewards = FIGURE1
    assert gamma(contributions, INSIDE_BCF) < gamma_limit(contributions, max(rewards)) < gamma(contributions, rewards)


def test_figure_3_has_a_point_for_each_method_and_scene():
    made = dict(figure3(results(), "last"))
    assert sorted(made) == ["figure3-cifar10", "figure3-fashion-mnist", "figure3-svhn"]
    drawn = tips(made["figure3-cifar10"])
    assert len(drawn) == len(COMPARED) * len(SCENES)
    # By hand: CFFL is method 2; client 10 has .4 + .18 + .02, and .001 is the mean over seeds; gamma 92 and 93.
    assert "CFFL, DIR(2.0): best reward 60.10 %, gamma 92.50" in drawn
    # FedSAC's with Table 9's beta alone: seed 9 would have moved the mean.
    assert "FedSAC, POW: best reward 63.10 %, gamma 95.50" in drawn
    assert "FedSAC, POW: best reward 63.30 %, gamma 96.00" in tips(dict(figure3(results(), "best"))["figure3-svhn"])


@pytest.mark.parametrize(("figure", "count"), [(figure4, 2), (figure6, 6)])
def test_figures_4_and_6_have_every_client_of_every_method(figure, count):
    made = figure(results(), "last")
    assert len(made) == count
    for _, drawing in made:
        assert len(tips(drawing)) == CLIENTS * (1 + len(COMPARED))
        assert "client 10, alone: 48.50" in tips(drawing)
        assert "client 3, q-FFL: 45.10" in tips(drawing)


def test_figure_5_has_every_round_of_every_client():
    made = dict(figure5(results()))
    assert sorted(made) == ["figure5-cifar10-cla", "figure5-cifar10-pow", "figure5-svhn-cla", "figure5-svhn-pow"]
    curves = [s for s in made["figure5-svhn-cla"].shapes if isinstance(s, Line) and s.tips]
    assert len(curves) == CLIENTS
    assert curves[1].tips == tuple(f"client 2, round {t}: {10 * t + 2:.2f}" for t in (1, 2, 3))


def test_what_was_not_run_is_left_out():
    nothing = Results({}, ())
    assert figure3(nothing) == figure4(nothing) == figure5(nothing) == figure6(nothing) == []
    assert [name for name, _ in all_figures(nothing)] == ["figure1a", "figure1b"]
    one = Results({}, (made_up("svhn", "pow", "cgsv", 0),))
    assert [name for name, _ in all_figures(one)] == ["figure1a", "figure1b", "figure3-svhn", "figure6-svhn-pow"]


def test_a_method_without_gamma_has_no_point():
    run = made_up("svhn", "pow", "cgsv", 0)
    picked = {label: ChosenRound(**{**vars(p), "gamma": None}) for label, p in run.labels.items()}
    assert figure3(Results({}, (Run(**{**vars(run), "labels": picked}),))) == []


def test_a_quick_figure_says_so():
    assert all("(last, quick)" in drawing.title for _, drawing in figure4(results(quick=True)))


def test_all_of_them_are_sound_files_with_names_of_their_own():
    made = all_figures(results())
    names = [name for name, _ in made]
    assert len(names) == len(set(names)) == 2 + 3 + 2 + 4 + 6
    assert all(re.fullmatch(r"[a-z0-9.-]+", name) for name in names)
    for _, drawing in made:
        ElementTree.fromstring(svg(drawing))
        read_pdf(pdf(drawing))
