"""The numbers of docs/results/paper/theorems.md: from the raw numbers of the study and, where they follow from the
problem itself, worked out once more."""

import json
import re

import numpy as np
import pytest

from fedsac.paper import theorem2
from tests import paper_page as page
from tests.test_claims import shown
from tests.test_paper_account import says

TEXT = (page.PAPER / "theorems.md").read_text()
WORDS = re.sub(r"\s+", " ", TEXT)
RAW = json.loads((page.PAPER / "theorems.json").read_text())
NETWORK, SGD = RAW["network"], RAW["convergence"]
TABLES = [rows for tables in shown("paper/theorems").values() for _, rows in tables]


def count(c):
    return f"{c['reversed']} of {c['pairs']}"


def share(c):
    return f"{100 * c['reversed'] / c['pairs']:.1f} %" if c["reversed"] else "0 %"


def test_the_page_is_in_the_readme():
    assert TEXT.strip() in page.TEXT and len(TABLES) == 9


def test_in_short():
    training, single = NETWORK["on"][0], SGD["bounded"][0]
    both = [RAW["isotropic"][0][key] for key in ("by_importance", "at_random")]
    worst = RAW["quadratics"][-1]
    ends = {(e["holding"], e["coupled"], e["differ"]): e for e in SGD["endings"]}
    floor, curve = SGD["floors"][0], training["curvature"]
    verdicts = [row[1] for row in TABLES[0]]
    parts = [
        [f"On the network {count(NETWORK['delta'])} neighbouring"],
        [f"Holds: {sum(c['reversed'] for c in both)} of {sum(c['pairs'] for c in both)} pairs"],
        [
            f"L/mu = {worst['ratio']:g}: {share(worst['prefixes_by_importance'])} of neighbouring prefixes, "
            f"{share(worst['clients_by_importance'])} of pairs of clients."
        ],
        [
            f"eigenvalues from {curve['smallest']:.3f} to {curve['largest']:.2f}. The",
            f"submodels: {count(training['clients']['loss'])} pairs reversed in the last round, "
            f"{count(NETWORK['every_round']['loss'])} over all rounds. Neighbouring prefixes: "
            f"{count(training['prefixes']['loss'])} reversed.",
        ],
        [
            f"slope {SGD['bounded'][1]['slope']:.2f} (log-log). With E = {single['local_steps']} F - F* comes to "
            f"{single['largest_share']:.2f} of the bound",
        ],
        [
            f"at F - F* = {ends['allotted', True, True]['gap']:.3f} where everybody with everything ends at "
            f"{ends['everything', True, True]['gap']:.0e}."
        ],
        [
            f"at {floor['rate']:g} F - F* stays at {floor['measured']:.4f} even with E = {floor['local_steps']} and",
            f"(exactly: {floor['exact']:.4f}).",
        ],
    ]
    for verdict, texts in zip(verdicts, parts, strict=True):
        assert all(text in verdict for text in texts), (verdict, texts)
    assert TABLES[0][3][0] == f"The same on FedSAC's network (digits, round {NETWORK['rounds']})"
    assert f"seed {RAW['seed']}." in WORDS


def test_quadratics():
    heads, low = [], None
    for one in RAW["isotropic"]:
        high = one["at_most"]
        heads.append(", ".join(f"{text} {end:g}" for text, end in (("above", low), ("at most", high)) if end))
        low = high
    expected = [
        [head, *(text for c in (one["by_importance"], one["at_random"]) for text in (str(c["pairs"]), share(c)))]
        for head, one in zip(heads, RAW["isotropic"], strict=True)
    ]
    assert TABLES[1] == expected
    keys = ("prefixes_by_importance", "prefixes_at_random", "clients_by_importance", "clients_at_random", "uncoupled")
    assert TABLES[2] == [[f"{one['ratio']:g}", *(share(one[key]) for key in keys)] for one in RAW["quadratics"]]
    says("**L = mu.** # isotropic quadratics in 20 parameters, gradients", RAW["trials"], text=WORDS)
    says("How often it happens: # random quadratics each", RAW["trials"], text=WORDS)
    keys = ("prefixes_by_importance", "prefixes_at_random")
    assert TABLES[3] == [
        [f"{r['ridge']:g}", f"{r['ratio']:.1f}", f"{r['gradient_norm']:.0e}", *(share(r[key]) for key in keys)]
        for r in RAW["ridge"]
    ]
    ratios = [(r["ratio"] - 1) * r["ridge"] for r in RAW["ridge"]]  # half the largest eigenvalue of X'X/n
    assert ratios == pytest.approx([ratios[0]] * len(ratios))


def test_the_counterexample():
    """H, the model, and what follows from them: importance, distances, losses, reputations of the clients."""
    found = re.search(
        r"theta_g = \((.*?)\), with H = \[(.*?)\] \(eigenvalues (.*?)\)\. Importance is \((.*?)\)\.", WORDS
    )
    model, rows, values, importance = (
        np.array([[float(x) for x in row.split(",")] for row in text.split(";")]) for text in found.groups()
    )
    assert (rows == rows.T).all() and np.linalg.eigvalsh(rows) == pytest.approx(values[0])
    theta = model[0]
    alone = [theta * (np.arange(3) == j) for j in range(3)]
    assert [away @ rows @ away / 2 for away in alone] == pytest.approx(importance[0])
    lost = [theta * (np.arange(3) >= held) for held in (1, 2)]  # what clients j and i do not hold
    says(
        "holds parameter #: delta_j^2 = #, F = #. Client i with r_i = # holds # and #: delta_i^2 = #, F = #.",
        *(1, lost[0] @ lost[0], lost[0] @ rows @ lost[0] / 2),
        *(RAW["counterexample"]["reputations"][1], 1, 2, lost[1] @ lost[1], lost[1] @ rows @ lost[1] / 2),
        text=WORDS,
    )
    says("Client j with r_j = # holds", RAW["counterexample"]["reputations"][0], text=WORDS)
    assert theta[2] == (values[0][2] + 1) / (values[0][2] - 1)


def test_on_the_network():
    n = NETWORK
    curved = [on for on in n["on"] if on["curvature"]]
    assert TABLES[4] == [
        [
            on["name"],
            f"{on['curvature']['loss']:.4f}",
            *(f"{on['curvature'][key]:.3f}" for key in ("largest", "smallest", "gradient_norm")),
            count(on["near"]),
        ]
        for on in curved
    ]
    orders = ("prefixes", "prefixes_at_random", "clients")
    rows = [[on["name"], *(count(on[o][key]) for o in orders for key in ("loss", "accuracy"))] for on in n["on"]]
    every = [count(n["every_round"][key]) for key in ("loss", "accuracy")]
    assert TABLES[5] == [*rows, [f"clients' data, all {n['rounds']} rounds", *[""] * 4, *every]]
    sizes = len(n["samples"]), n["neurons"], n["parameters"], n["rounds"]
    says("scene POW, # clients, # neurons, # parameters, after # rounds", *sizes, text=WORDS)
    assert n["parameters"] == 64 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10 and n["neurons"] == 2 * 200
    losses = [n[key] for key in ("first_loss", "peak_loss", "peak_length", "last_loss")]
    says("goes from # (one neuron) through its highest, # (at #), to # (all)", *losses, text=WORDS)
    for before, key in (("Prefixes reversed: ", "everywhere"), (" neurons on: ", "among_clients")):
        assert before + ", ".join(f"{a['neurons']} apart {count(a[key])}" for a in n["apart"]) + "." in WORDS
    says("From the smallest client's # neurons on", n["shortest"], text=WORDS)
    says("(1, 2, ... # neurons)", n["neurons"], text=WORDS)
    inverse = sum(1 / p for p in n["size_shares"])
    says("on the digits # for # clients)", inverse, len(n["size_shares"]), text=WORDS)
    held = [100 * n[key] for key in ("held_least", "held_most", "held_median")]
    says("held in # % to # % (median # %)", *held, text=WORDS)


def task(coupled, differ):
    problem = theorem2.problem(RAW["seed"], coupled=coupled, differ=differ)
    return problem, problem.hessians.numpy(), problem.optima.numpy()


def test_where_submodels_end():
    kinds = [(False, False), (False, True), (True, False), (True, True)]
    ends = {(e["holding"], e["coupled"], e["differ"]): e for e in SGD["endings"]}
    for (title, *texts), (holding, meaning) in zip(TABLES[6], theorem2.HOLDINGS.items(), strict=True):
        assert title == meaning
        for text, kind in zip(texts, kinds, strict=True):
            one = ends[holding, *kind]
            limit = "" if one["limit"] is None else f" [{one['limit'] if one['limit'] > 1e-20 else 0:.2g}]"
            slope = f"{one['slope']:.2f}".replace("-0.00", "0.00")
            assert text == f"{one['gap']:.2g}; {slope}{limit}"
            if holding != theorem2.ALLOTTED:
                assert one["limit"] == pytest.approx(limit_of(holding, *kind), rel=1e-6, abs=1e-20)


def limit_of(holding, coupled, differ):
    """F - F* where each parameter's mean of its holders' gradients, each at its own submodel, is 0 over the cycle."""
    problem, hessians, optima = task(coupled, differ)
    matrix, target = np.zeros((10, 10)), np.zeros(10)
    for masks in theorem2.submodels(problem, holding).numpy():
        for mask, h, a in zip(masks, hessians, optima, strict=True):
            matrix += (mask / masks.sum(0))[:, None] * h * mask
            target += mask / masks.sum(0) * (h @ a)
    return gap(np.linalg.solve(matrix, target), hessians, optima)


def gap(model, hessians, optima):
    """F - F* of a model."""
    best = np.linalg.solve(hessians.mean(0), np.mean([h @ a for h, a in zip(hessians, optima, strict=True)], axis=0))
    return (model - best) @ hessians.mean(0) @ (model - best) / 2


def test_constants_bound_and_floors():
    _, hessians, optima = task(True, True)
    pairs = list(zip(hessians, optima, strict=True))
    best = np.linalg.solve(hessians.mean(0), np.mean([h @ a for h, a in pairs], axis=0))
    gamma = np.mean([(best - a) @ h @ (best - a) / 2 for h, a in pairs])
    says("F - F* is # at the start.", gap(0 * best, hessians, optima), text=WORDS)
    says("(coupled, different; Gamma = #)", gamma, text=WORDS)
    sizes = np.array(NETWORK["samples"]) / sum(NETWORK["samples"])
    weighted = np.einsum("n,nij->ij", sizes, hessians)
    away = best - np.linalg.solve(weighted, sum(n * h @ a for n, (h, a) in zip(sizes, pairs, strict=True)))
    says("unweighted mean is # above that of Eq. 1", away @ weighted @ away / 2, text=WORDS)
    known = re.search(
        r"Tried on (.*?) clients .*? in (\d+) parameters, mu = (.*?), L = (.*?), noise of deviation", WORDS
    )
    assert [float(x) for x in known.groups()] == [10, 10, 1, 4] and hessians.shape == (10, 10, 10)
    eigenvalues = np.linalg.eigvalsh(hessians)
    assert (eigenvalues.min(), eigenvalues.max()) == pytest.approx((1, 4))
    constants = theorem2.NOISE, SGD["local_steps"], SGD["steps"], theorem2.RUNS, theorem2.BETA
    says("deviation # in each entry of a gradient, E = #, T = #, mean of # runs, Eq. 9 for aggregation, beta = #.",
         *constants, text=WORDS)  # fmt: skip
    expected = []
    for b in SGD["bounded"]:
        e, shift = b["local_steps"], max(8 * 4, b["local_steps"]) - 1
        noise = 10 * 10 * theorem2.NOISE**2 / 10**2  # of 10 clients with weight 1/10 in 10 parameters
        top = 2 * (noise + 6 * 4 * gamma + 8 * (e - 1) ** 2 * b["gradient"]) + (shift + 1) / 2 * (best @ best)
        assert b["bound"] == pytest.approx(4 / (shift + SGD["steps"]) * top, rel=1e-3)
        texts = f"{b['gap']:.2g}", f"{b['bound']:.2g}", f"{b['largest_share']:.2g}", f"{b['gradient']:.1f}"
        expected.append([f"{e}", f"{b['slope']:.2f}", *texts])
    assert TABLES[7] == expected
    assert TABLES[8] == [
        [
            f"{f['rate']:g}",
            f"{f['local_steps']}",
            *(f"{f[key]:.2g}" for key in ("measured", "exact")),
            f"{f['drift']:.2g}" if f["local_steps"] > 1 else "0",
        ]
        for f in SGD["floors"]
    ]
    says("as in Table 9 (# with E = # are our defaults)", 0.05, 20, text=WORDS)
