"""The study of the theorems as text: a page in Markdown, and a short version for a terminal."""

from textwrap import fill

from fedsac.paper.theorem1_page import fairness
from fedsac.paper.theorem2 import ALLOTTED, HOLDINGS
from fedsac.paper.theorem2_page import KINDS, convergence
from fedsac.paper.theorem_formatting import count_text, paragraph, percent, table
from fedsac.paper.theorems import Theorems


def markdown(study: Theorems) -> str:
    """The whole account, to stand on a page of its own."""
    quick = " This was a quick run: fewer trials, rounds and steps." if study.quick else ""
    opening = [
        "# The paper's theorems, tried",
        paragraph(
            f"Made by `fedsac paper theorems` on the CPU, seed {study.seed}.{quick} Every number was measured or "
            "worked out there. Equations are numbered in the order of the paper's source; the bound on the gradient is "
            "Eq. 16. A pair of nested submodels is *reversed* when the larger one has the higher loss."
        ),
        "## In short",
        table(("statement", "what we found"), verdicts(study)),
    ]
    return "\n\n".join([*opening, *fairness(study), *convergence(study)]) + "\n"


def text(study: Theorems) -> str:
    """What holds and what does not, in fewer than 100 columns."""
    lines = [f"The paper's theorems, tried (seed {study.seed}{', quick' if study.quick else ''})"]
    for what, verdict in verdicts(study):
        lines += ["", fill(what, 96), fill(verdict, 96, initial_indent="    ", subsequent_indent="    ")]
    lines += ["", "More neurons, more loss? Shares of neighbouring prefixes, at the minimum of F", ""]
    lines += [f"{'F':<34}{'L/mu':>9}{'by importance':>16}{'at random':>13}"]
    tried = [("random quadratic", q.ratio, q.prefixes_by_importance, q.prefixes_at_random) for q in study.quadratics]
    tried += [
        (f"ridge regression, ridge {r.ridge:g}", r.ratio, r.prefixes_by_importance, r.prefixes_at_random)
        for r in study.ridge
    ]
    lines += [f"{name:<34}{ratio:>9.0f}{percent(a):>16}{percent(b):>13}" for name, ratio, a, b in tried]
    lines += ["", f"F - F* after {study.convergence.steps} steps (U: parameters uncoupled, C: coupled)", ""]
    lines += [f"{'who holds what':<16}{'U, optima agree':>16}{'U, differ':>14}{'C, optima agree':>18}{'C, differ':>14}"]
    for holding in HOLDINGS:
        gaps = [study.ending(holding, coupled=c, differ=d).gap for c, d in KINDS]
        lines.append(f"{holding:<16}{gaps[0]:>16.2g}{gaps[1]:>14.2g}{gaps[2]:>18.2g}{gaps[3]:>14.2g}")
    lines += ["", *(f"{name}: {meaning}" for name, meaning in HOLDINGS.items())]
    return "\n".join(lines) + "\n"


def verdicts(study: Theorems) -> list[tuple[str, str]]:
    """Each statement of the theorems and what became of it."""
    return [*_of_fairness(study), *_of_convergence(study)]


def _of_fairness(study: Theorems) -> list[tuple[str, str]]:
    inside, n, worst = study.isotropic[0], study.network, study.quadratics[-1]
    training, covered = n.on[0], inside.by_importance + inside.at_random
    assert training.curvature is not None
    return [
        (
            "Theorem 1: r_i >= r_j gives nested submodels and delta_i <= delta_j",
            f"Holds by construction. On the network {count_text(n.delta)} neighbouring prefixes are otherwise.",
        ),
        (
            "Theorem 1: F(theta_i) <= F(theta_j) under its assumptions",
            f"Holds: {count_text(covered)} pairs reversed. But the assumptions leave one shape of F: L = mu, an "
            "isotropic quadratic.",
        ),
        (
            "The same for L > mu, with F strongly convex and at its exact minimum",
            f"Does not hold. Reversed at L/mu = {worst.ratio:g}: {percent(worst.prefixes_by_importance)} of "
            f"neighbouring prefixes, {percent(worst.clients_by_importance)} of pairs of clients. For every L > mu "
            "there is a counterexample in three dimensions.",
        ),
        (
            f"The same on FedSAC's network (digits, round {n.rounds})",
            f"Not covered: the Hessian has eigenvalues from {training.curvature.smallest:.3g} to "
            f"{training.curvature.largest:.3g}. The clients' own submodels: {count_text(training.clients.loss)} pairs "
            f"reversed in the last round, {count_text(n.every_round.loss)} over all rounds. Neighbouring prefixes: "
            f"{count_text(training.prefixes.loss)} reversed.",
        ),
    ]


def _of_convergence(study: Theorems) -> list[tuple[str, str]]:
    bounded, floor = study.convergence.bounded[-1], study.convergence.floors[0]
    single = study.convergence.bounded[0]  # E = 1
    submodel = study.ending(ALLOTTED, coupled=True, differ=True)
    return [
        (
            "Theorem 2: F - F* = O(1/T) where everybody holds everything",
            f"Holds: slope {bounded.slope:.2f} (log-log). With E = {single.local_steps} F - F* comes to "
            f"{single.largest_share:.2g} of the bound; for E > 1 the bound is too loose to test anything.",
        ),
        (
            "The same with submodels",
            f"Does not hold, and the proof does not cover it. FedSAC's submodels end at F - F* = {submodel.gap:.3g} "
            f"where everybody with everything ends at {bounded.gap:.2g}.",
        ),
        (
            "The same with a constant learning rate, as in the experiments",
            f"Not covered: at {floor.rate:g} F - F* stays at {floor.measured:.2g} even with E = {floor.local_steps} "
            f"and no submodels (exactly: {floor.exact:.2g}).",
        ),
    ]
