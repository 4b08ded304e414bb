"""The part on Theorem 2 of the page on the theorems, in Markdown. Every number comes from the study."""

from fedsac.config import Config
from fedsac.paper.theorem2 import BETA, CLIENTS, DIMENSION, HOLDINGS, MU, NOISE, RUNS, SMOOTH
from fedsac.paper.theorem_formatting import bullets, paragraph, table
from fedsac.paper.theorems import Convergence, Ending, Theorems

KINDS = ((False, False), (False, True), (True, False), (True, True))  # coupled, differ


def convergence(study: Theorems) -> list[str]:
    """Theorem 2: what its proof covers, where local SGD ends, the bound, and constant learning rates."""
    return [*_covered(study), *_endings(study), *_bounded(study.convergence), *_floors(study.convergence)]


def _covered(study: Theorems) -> list[str]:
    n = study.network
    inverse = sum(1 / p for p in n.size_shares)
    return [
        "## Theorem 2: convergence",
        paragraph(
            "The theorem: with eta_t = 2/(mu(gamma + t)), gamma = max(8 L/mu, E) - 1, under Assumptions 1 to 5, "
            "E F(theta_T) - F* <= L/(gamma + T) (2B/mu^2 + (gamma + 1)/2 Delta_1), T counting SGD steps. The proof is "
            "that of FedAvg on non-iid data (Li et al.) with 1/p_i for the weights, p_i being the share of the model "
            "that client i holds. With weights that add up to 1 it is right where everybody holds everything. It does "
            "not reach submodels:"
        ),
        bullets(
            "**1/p_i are no weights.** Eq. 22 uses them as probabilities; with p_i <= 1 their sum is at least N (on "
            f"the digits {inverse:.2f} for {len(n.size_shares)} clients), and with theta_i = p_i theta_g (Assumption "
            "5) the sum of theta_i/p_i is N theta_g. Divided by N they add up to 1 only if every p_i = 1.",
            "**theta_i = theta-bar for all i at each synchronisation** (before Eq. 22) is what bounds the clients' "
            "divergence by 4 eta^2 (E-1)^2 G^2. A client with a submodel starts from theta_g with parameters set to 0, "
            "at a distance delta_i that does not shrink with eta.",
            "**A submodel is not p_i theta_g.** A client's gradient is taken at its own submodel, not at theta_g, and "
            "is 0 in what it does not hold; the mean over holders is in general not the gradient of F.",
            "**Assumption 5**, each neuron allotted equally often: on the digits a neuron was held in "
            f"{100 * n.held_least:.0f} % to {100 * n.held_most:.0f} % (median {100 * n.held_median:.0f} %) of all "
            "clients' rounds. Eq. 7 gives out the least important first.",
            "**Client sizes.** Eq. 1 weighs clients by n_i/n, Eq. 9 does not. With the digits' n_i, the optimum of the "
            f"unweighted mean is {study.convergence.weighted_gap:.3f} above that of Eq. 1 in the problem below.",
            "Slips that do no harm: Assumptions 1 and 2 are stated for F and used for every F_i; squares are missing "
            "in Assumptions 3 and 4 and in Delta; Eq. 26 has grad F_i for grad F; Eq. 25 ends in v/(t+gamma-1) for "
            "v/(t+gamma+1). No strongly convex F has bounded gradients everywhere (Assumption 4); G is measured here "
            "along the path.",
        ),
    ]


def _endings(study: Theorems) -> list[str]:
    c = study.convergence
    return [
        paragraph(
            f"Tried on {CLIENTS} clients with quadratics of their own in {DIMENSION} parameters, mu = {MU:g}, "
            f"L = {SMOOTH:g}, noise of deviation {NOISE:g} in each entry of a gradient, E = {c.local_steps}, "
            f"T = {c.steps}, mean of {RUNS} runs, Eq. 9 for aggregation, beta = {BETA:g}. Parameters are coupled (H "
            "dense) or not (H diagonal); the clients' optima agree or differ. Coupled and different, F - F* is "
            f"{c.start:.2f} at the start. In each cell: F - F* at T; the slope of log(F - F*) against log T over the "
            "last factor of 10 in T; and in brackets F - F* at the limit, from its fixed-point equation (not worked "
            "out for FedSAC's own submodels, which follow the model):"
        ),
        table(
            ("who holds what", "uncoupled, agree", "uncoupled, differ", "coupled, agree", "coupled, differ"),
            [
                (meaning, *(_ending(study.ending(holding, coupled=c, differ=d)) for c, d in KINDS))
                for holding, meaning in HOLDINGS.items()
            ],
        ),
        paragraph(
            "With submodels it settles at another point than theta*, and F - F* does not go to 0, unless the "
            "parameters are uncoupled *and* the optima agree. Different optima: a parameter goes to its holders' "
            "optimum. Coupled parameters: what a client holds makes up for what it lacks, even if all want the same. "
            "In the last row every parameter is held equally often, as Assumption 5 asks, and a bias is left."
        ),
    ]


def _ending(end: Ending) -> str:
    # A limit that is 0 in exact arithmetic is shown as 0.
    limit = "" if end.limit is None else f" [{0 if end.limit < 1e-20 else end.limit:.2g}]"
    return f"{end.gap:.2g}; {round(end.slope, 2) + 0.0:.2f}{limit}"  # + 0.0: no "-0.00"


def _bounded(c: Convergence) -> list[str]:
    return [
        paragraph(f"The bound, where everybody holds everything (coupled, different; Gamma = {c.least:.2f}):"),
        table(
            ("E", "slope", "F - F* at T", "bound at T", "largest (F - F*)/bound on the way", "G^2 measured"),
            [
                (
                    f"{b.local_steps}",
                    f"{b.slope:.2f}",
                    f"{b.gap:.2g}",
                    f"{b.bound:.2g}",
                    f"{b.largest_share:.2g}",
                    f"{b.gradient:.1f}",
                )
                for b in c.bounded
            ],
        ),
    ]


def _floors(c: Convergence) -> list[str]:
    defaults = Config()
    return [
        paragraph(
            f"A constant learning rate, as in Table 9 ({defaults.lr:g} with E = {defaults.local_steps} are our "
            "defaults), is not the theorem's. F - F* then stops at a floor: noise, and for E > 1 drift, because "
            "clients go towards optima of their own between synchronisations. Everybody holds everything; *exactly* is "
            "the stationary mean of the linear recursion:"
        ),
        table(
            ("rate", "E", "floor measured", "exactly", "of it drift"),
            [
                (
                    f"{f.rate:g}",
                    f"{f.local_steps}",
                    f"{f.measured:.2g}",
                    f"{f.exact:.2g}",
                    f"{f.drift:.2g}" if f.local_steps > 1 else "0",
                )
                for f in c.floors
            ],
        ),
    ]
