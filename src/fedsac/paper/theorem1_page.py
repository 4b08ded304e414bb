"""The part on Theorem 1 of the page on the theorems, in Markdown. Every number comes from the study."""

from fedsac.paper.theorem1 import CLIENTS, DIMENSION, Counterexample
from fedsac.paper.theorem_formatting import bullets, count_text, paragraph, percent, table, vector
from fedsac.paper.theorem_network import NetworkStudy
from fedsac.paper.theorems import Theorems


def fairness(study: Theorems) -> list[str]:
    """Theorem 1: its assumptions, quadratics, ridge regression, and FedSAC's network."""
    return [*_assumed(), *_isotropic(study), *_quadratics(study), *_ridge(study), *_network(study.network)]


def _assumed() -> list[str]:
    return [
        "## Theorem 1: fairness in training loss",
        paragraph(
            "The theorem: F is L-smooth and mu-strongly convex with L <= mu, and near a stationary point (Eq. 16). "
            "Then r_i >= r_j gives nested submodels, delta_i = |theta_g - theta_i| <= delta_j, and "
            "F(theta_i) <= F(theta_j). The proof is right. What it rests on:"
        ),
        bullets(
            "**L <= mu means L = mu.** Eq. 10 and 11 together give mu <= L for every F. With L = mu both are "
            "equalities: F(theta) = F* + (mu/2)|theta - theta*|^2. The theorem is about this function and no other; "
            "cross-entropy, even of a linear model with a ridge, is not one.",
            "**The gradient.** For nested submodels |theta_i - theta_j|^2 = delta_j^2 - delta_i^2, so Eq. 16 asks for "
            "|grad F| <= (L/2)|theta_i - theta_j|. It is needed and sharp: with L = mu, a gradient along "
            "theta_i - theta_j that is any longer reverses the pair.",
            "**delta_i <= delta_j** needs no assumption: a larger submodel leaves fewer parameters at 0.",
        ),
    ]


def _isotropic(study: Theorems) -> list[str]:
    rows, above = [], ""
    for near in study.isotropic:
        name = above + ("" if near.at_most is None else f"at most {near.at_most:g}")
        counts = (near.by_importance, near.at_random)
        rows.append((name.removesuffix(", "), *(cell for c in counts for cell in (f"{c.pairs}", percent(c)))))
        above = f"above {near.at_most:g}, " if near.at_most else ""
    return [
        paragraph(
            f"**L = mu.** {study.trials} isotropic quadratics in {DIMENSION} parameters, gradients of length .01 to "
            f"32, submodels of {CLIENTS} clients cut by `allocate`: pairs of clients by how long the gradient is "
            "against Eq. 16's bound."
        ),
        table(
            ("gradient / bound", "pairs", "reversed, neurons by importance", "pairs", "reversed, neurons at random"),
            rows,
        ),
        paragraph(
            "By importance the order holds beyond the bound, too, for a reason that is not the theorem's: where H is "
            "diagonal, the losses of removals add up, F(theta_j) - F(theta_i) is the importance of what i holds and j "
            "does not, and Eq. 7 tells clients apart by neurons of positive importance only (if there are any)."
        ),
    ]


def _quadratics(study: Theorems) -> list[str]:
    rows = [
        (
            f"{q.ratio:g}",
            percent(q.prefixes_by_importance),
            percent(q.prefixes_at_random),
            percent(q.clients_by_importance),
            percent(q.clients_at_random),
            percent(q.uncoupled),
        )
        for q in study.quadratics
    ]
    return [
        _by_hand(study.counterexample),
        paragraph(
            f"How often it happens: {study.trials} random quadratics each, eigenvalues from 1 to L/mu, at their "
            "minimum; shares of pairs reversed. In the last column the same eigenvalues are on the diagonal, where no "
            "pair can be: it takes coupled parameters, not only L > mu."
        ),
        table(
            ("L/mu", "prefixes, by importance", "at random", "clients, by importance", "at random", "diagonal H"), rows
        ),
    ]


def _by_hand(e: Counterexample) -> str:
    rows = "; ".join(vector(row)[1:-1] for row in e.hessian)
    return paragraph(
        f"**L > mu.** A counterexample by hand, at the exact minimum theta_g = {vector(e.model)}, with H = [{rows}] "
        f"(eigenvalues {e.mu:g}, {e.mu:g}, {e.smooth:g}). Importance is {vector(e.importance)}. Client j with "
        f"r_j = {e.reputations[0]:.0f} holds parameter 1: delta_j^2 = {e.delta_squared[0]:g}, F = {e.losses[0]:g}. "
        f"Client i with r_i = {e.reputations[1]:.0f} holds 1 and 2: delta_i^2 = {e.delta_squared[1]:g}, "
        f"F = {e.losses[1]:g}. Nearer to the optimum, and worse. The same works for every L > mu with "
        "theta_g = (1, 1, (L+mu)/(L-mu)), so no weaker condition on L and mu alone would do."
    )


def _ridge(study: Theorems) -> list[str]:
    return [
        paragraph(
            "And on data: logistic regression with a ridge on the digits, trained to its minimum, an input with its "
            "weights for a neuron. mu is the ridge, L the ridge plus half the largest eigenvalue of X'X/n."
        ),
        table(
            ("ridge", "L/mu", "gradient", "prefixes reversed, by importance", "at random"),
            [
                (
                    f"{r.ridge:g}",
                    f"{r.ratio:.1f}",
                    f"{r.gradient_norm:.0e}",
                    percent(r.prefixes_by_importance),
                    percent(r.prefixes_at_random),
                )
                for r in study.ridge
            ],
        ),
    ]


def _network(n: NetworkStudy) -> list[str]:
    measured = [(on, on.curvature, on.near) for on in n.on if on.curvature is not None and on.near is not None]
    every = n.every_round
    return [
        "### On the network",
        paragraph(
            f"The digits, scene POW, {len(n.samples)} clients, {n.neurons} neurons, {n.parameters} parameters, after "
            f"{n.rounds} rounds of FedSAC. First the assumptions, on F (the clients' data) and on V: the extreme "
            "eigenvalues of the Hessian by Lanczos. A negative one means that F is not convex, so there is no mu; and "
            "ReLU's gradient jumps, so strictly there is no L. With the largest eigenvalue for L, Eq. 16 can be "
            "looked at:"
        ),
        table(
            ("loss on", "value", "largest eigenvalue", "smallest", "gradient", "neighbours beyond Eq. 16's bound"),
            [
                (
                    on.name,
                    f"{c.loss:.4f}",
                    f"{c.largest:.3f}",
                    f"{c.smallest:.3f}",
                    f"{c.gradient_norm:.3f}",
                    count_text(near),
                )
                for on, c, near in measured
            ],
        ),
        paragraph(
            f"Then the conclusion: pairs of neighbouring prefixes (1, 2, ... {n.neurons} neurons) and of the clients' "
            "own submodels (all that differ) in which the larger one has the higher loss, or the lower accuracy."
        ),
        table(
            ("on", "prefixes: loss", "accuracy", "random order: loss", "accuracy", "clients: loss", "accuracy"),
            [
                (
                    on.name,
                    *(
                        count_text(c)
                        for o in (on.prefixes, on.prefixes_at_random, on.clients)
                        for c in (o.loss, o.accuracy)
                    ),
                )
                for on in n.on
            ]
            + [
                (f"clients' data, all {n.rounds} rounds", *[""] * 4, count_text(every.loss), count_text(every.accuracy))
            ],
        ),
        _where(n),
    ]


def _where(n: NetworkStudy) -> str:
    everywhere = ", ".join(f"{a.neurons} apart {count_text(a.everywhere)}" for a in n.apart)
    among = ", ".join(f"{a.neurons} apart {count_text(a.among_clients)}" for a in n.apart)
    return paragraph(
        "So the conclusion depends on where one looks. With more and more neurons, by importance, the loss on the "
        f"clients' data goes from {n.first_loss:.2f} (one neuron) through its highest, {n.peak_loss:.2f} (at "
        f"{n.peak_length}), to {n.last_loss:.2f} (all). Prefixes reversed: {everywhere}. From the smallest client's "
        f"{n.shortest} neurons on: {among}. What order there is among the clients comes from where Eq. 7 puts them: "
        "far up, where the loss falls. No assumption of the theorem says so."
    )
