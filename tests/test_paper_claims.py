"""Claims judged on made-up results: where they hold, where they fail, and with which numbers."""

import pytest
from rich.console import Console

from fedsac.paper.claims import claims
from fedsac.paper.facts import distances, not_first, plateau
from fedsac.paper.printed import printed, standalone_later
from fedsac.paper.tables import table
from fedsac.paper.verdicts import failing, markdown_claims, terminal_claims
from tests.made_up import column, results, run


def claim(key, *runs):
    (found,) = [one for one in claims(results(*runs)) if one.key == key]
    return found


def test_first_in_k_of_n():
    """FedSAC is first in POW and DIR(1.0), second to q-FFL in CLA; at the last round it is first in POW only."""
    made = [
        *column("pow", fedsac=(90.0, 0.4)),
        *column("cla", fedsac=(90.0, 0.4), qffl=(95.0, 0.2)),
        *column("dir:1.0")[:-1],
        run(scene="dir:1.0", best=(99.0,), last=(40.0,)),
    ]
    found = claim("fairness-first", *made)
    assert found.cells == 15
    assert found.count("best") == (2, 3)
    assert found.count("last") == (1, 3)
    (failed,) = found.failures("best")
    assert str(failed.column) == "CIFAR-10 CLA"
    assert failed.numbers == "FedSAC 90.00, q-FFL 95.00"
    assert [str(one.column) for one in found.failures("last")] == ["CIFAR-10 CLA", "CIFAR-10 DIR(1.0)"]
    assert found.verdicts_other_beta == {}  # nobody ran the other beta


def test_a_tie_is_not_first():
    assert claim("fairness-first", *column(fedsac=(50.0, 0.4))).count("best") == (0, 1)


def test_a_column_counts_only_when_every_method_was_run():
    assert claim("fairness-first", *column(fedsac=(90.0, 0.4))[1:]).count("best") == (0, 0)
    assert not claim("fairness-first").tested


def test_an_undefined_gamma_is_never_first():
    nobody, other = column(fedsac=(None, 0.4)), column(fedsac=(60.0, 0.4), cffl=(None, 0.4))
    assert claim("fairness-first", *nobody).failures("best")[0].numbers == "FedSAC -, FedAvg 50.00"
    assert claim("fairness-first", *other).count("best") == (1, 1)


def test_both_settings_side_by_side():
    """POW: 90 at beta 5 and 99 at beta 10, q-FFL 95. CLA has one setting, and fails in both for the same reason."""
    made = [*column("pow", qffl=(95.0, 0.2), fedsac=(90.0, 0.4)), run(beta=10.0, best=(99.0, 0.4))]
    made += column("cla", qffl=(95.0, 0.2), fedsac=(90.0, 0.4))
    found = claim("fairness-first", *made)
    assert found.count("best") == (0, 2)
    assert found.count("best", other_beta=True) == (1, 2)
    assert found.failures("best", other_beta=True) == []  # told once is enough
    assert "best 0 of 2, last 0 of 2 | best 1 of 2, last 1 of 2 |" in markdown_claims([found])


def test_accuracy_and_the_common_model():
    """Above every reward (.40 against .30), below FedAvg's common model (.45)."""
    made = [*column(fedsac=(90.0, 0.40))[1:], run("fedavg", best=(50.0, 0.30, 0.45))]
    assert claim("accuracy-first", *made).count("best") == (1, 1)
    assert claim("accuracy-common", *made).count("best") == (0, 1)
    assert claim("accuracy-common", *made).failures("best")[0].numbers == "FedSAC 40.00, FedAvg's common model 45.00"
    made = column(fedsac=(90.0, 0.40), fedavg=(50.0, 0.50))
    assert claim("accuracy-first", *made).failures("best")[0].numbers == "FedSAC 40.00, FedAvg 50.00"


def test_standing_alone_can_be_best():
    made = [run(one.method, best=(50.0, one.labels["best"].max), contributions=(0.6,) * 10) for one in column()]
    assert claim("accuracy-first", *made).failures("last")[0].numbers == "FedSAC 30.00, Standalone 60.00"


@pytest.mark.parametrize(("gamma", "held"), [(95.80, 1), (95.79, 0), (99.9, 1), (None, 0)])
def test_within_three_points(gamma, held):
    """98.80 is printed."""
    assert claim("fairness-close", run(best=(gamma,))).count("best") == (held, 1)


def test_the_distance_is_said():
    assert claim("fairness-close", run(best=(95.0,))).failures("best")[0].numbers == "95.00, printed 98.80 (-3.80)"


def test_standalone_against_table_2_and_the_later_lists():
    """Printed 41.23, later 40.7 at best. Seeds with .40 and .46 for the best: mean 43."""
    later = standalone_later()["cifar10", "pow"]
    made = [run(seed=0, contributions=(*later[:9], 0.40)), run(seed=1, contributions=(*later[:9], 0.46))]
    assert claim("standalone-close", *made).count("alone") == (1, 1)
    assert claim("standalone-later", *made).count("alone") == (1, 1)
    each = claim("standalone-clients", *made)
    assert each.cells == 7
    assert each.verdicts["alone"][0].numbers == "mean difference 0.23, largest 2.30"  # (43 - 40.7) / 10
    away = run(contributions=tuple(value + 0.04 for value in later))
    assert claim("standalone-clients", away).failures("alone")[0].numbers == "mean difference 4.00, largest 4.00"
    assert claim("standalone-close", away).failures("alone")[0].numbers == "44.70, printed 41.23 (+3.47)"


def test_in_dir_the_later_lists_are_compared_by_rank():
    published = standalone_later()["svhn", "dir:2.0"]
    shuffled = run(data="svhn", scene="dir:2.0", contributions=tuple(value + 0.01 for value in reversed(published)))
    found = claim("standalone-clients", shuffled).verdicts["alone"]
    assert [verdict.numbers for verdict in found] == ["mean difference 1.00, largest 1.00"]


def test_ablations_in_the_printed_order():
    """POW: FedSAC 98.80, w/o aggregation 98.64, w/o allocation 79.99. DIR(1.0): w/o aggregation is first."""

    def three(scene, *gammas):
        names = ("fedsac", "fedsac-no-aggregation", "fedsac-no-allocation")
        return [run(name, scene=scene, best=(gamma,)) for name, gamma in zip(names, gammas, strict=True)]

    made = [*three("pow", 99.0, 90.0, 10.0), *three("dir:1.0", 99.0, 90.0, 10.0)]
    found = claim("ablation-fairness", *made)
    assert found.count("best") == (1, 2)
    assert found.failures("best")[0].numbers == (
        "FedSAC 99.00 > w/o aggregation 90.00 > w/o allocation 10.00, printed w/o aggregation > FedSAC > w/o allocation"
    )
    # FedSAC alone was run at the other beta: nothing to compare it with there.
    assert claim("ablation-fairness", *made, run(beta=10.0)).verdicts_other_beta == {}


def test_more_clients():
    made = column("pow", clients=20, fedsac=(90.0, 0.4)) + column("cla", clients=20, fedave=(60.0, 0.5))
    assert claim("clients-fairness", *made).count("best") == (1, 2)
    assert claim("clients-accuracy", *made).count("best") == (1, 2)
    assert claim("clients-accuracy", *made).failures("best")[0].numbers == "FedSAC 30.00, FedAVE 50.00"
    assert claim("clients-fairness", *made).cells == 14


def test_beta():
    """Fair rounds' best falls with beta but for 5 and 10; the lowest falls throughout; beta 20 has no fair round."""
    numbers = {2.0: (0.50, 0.40), 5.0: (0.48, 0.35), 10.0: (0.49, 0.30), 20.0: (0.45, 0.20)}
    made = [run(beta=beta, best=(97.0, top), fair=(3, top, low)) for beta, (top, low) in numbers.items()]
    assert claim("beta-accuracy", *made).count("fair") == (1, 1)
    assert claim("beta-lowest", *made).count("fair") == (1, 1)
    assert claim("beta-lowest", *made).count("last") == (0, 1)  # the lowest is .8 of the best there: .384 before .392
    unfair = [*made[:3], run(beta=20.0, best=(90.0, 0.45))]
    assert claim("beta-accuracy", *unfair).count("fair") == (1, 1)
    (failed,) = claim("beta-lowest", *unfair).failures("fair")
    assert failed.numbers == "beta 2: 40.00, beta 5: 35.00, beta 10: 30.00, beta 20: -"


@pytest.mark.parametrize(("size", "held"), [(24.7, 1), (22.4, 1), (24.8, 0), (22.3, 0)])
def test_megabytes_within_five_percent(size, held):
    """23.57 is printed: from 22.3915 to 24.7485."""
    assert claim("megabytes-close", run(megabytes=size, counted=23.57)).count("mean") == (held, 1)
    assert claim("megabytes-close", run(megabytes=size, counted=23.57)).count("last") == (1, 1)


def test_megabytes_less_than_the_others():
    made = [run(one.method, megabytes=26.27, counted=26.27) for one in column()[:-1]]
    assert claim("megabytes-less", *made, run(megabytes=25.0, counted=26.27)).count("mean") == (1, 1)
    found = claim("megabytes-less", *made, run(megabytes=25.0, counted=26.27)).failures("last")
    assert found[0].numbers == "FedSAC 26.27, least of the others 26.27"


def test_the_papers_own_numbers_bear_out_its_claims():
    """Printed numbers as results: what Tables 1 and 2 claim holds in 15 of 15, and every distance is 0."""
    made = []
    for at, gammas in printed("table1").items():
        accuracy = {method: number.value / 100 for method, number in printed("table2")[at].items()}
        alone = (accuracy["standalone"],) * 10
        for method, gamma in gammas.items():
            made.append(run(method, at.data, at.scene, best=(gamma.value, accuracy[method]), contributions=alone))
    for key in ("fairness-first", "accuracy-first", "fairness-close"):
        assert claim(key, *made).count("best") == (15, 15), key
    away = distances(table("table1", results(*made)))
    assert {(one.within, one.cells, one.largest) for one in away} == {(15, 15, 0.0)}
    assert claim("standalone-close", *made).count("alone") == (15, 15)
    assert table("table1", results(*made)).moved("best") == (0, 6 * 15)
    assert table("table2", results(*made)).moved("last") == (0, 7 * 15)


def test_distances():
    """Printed 98.80 and 99.06: 96 is 2.80 away, 95.06 is 4."""
    made = [run(best=(96.0,)), run(scene="cla", best=(95.06,))]
    best = next(one for one in distances(table("table1", results(*made))) if one.label == "best")
    assert (best.name, best.within, best.cells) == ("FedSAC", 1, 2)
    assert (best.mean, best.largest) == (pytest.approx(3.40), pytest.approx(4.0))


def test_where_the_paper_marks_the_wrong_number():
    assert not_first() == [
        "Table 3, CIFAR-10 DIR(1.0): FedSAC's 99.14 is marked as best; w/o aggregation has 99.22.",
        "Table 4, Fashion-MNIST CLA: FedSAC's 85.61 is marked as best; w/o aggregation has 85.95.",
    ]


def test_plateau():
    """A rise of .005 still counts as settled."""
    rises = [
        run(seed=seed, plateau=(0.3, 0.4, last))  # after half, three quarters and all of the rounds
        for seed, last in enumerate((0.4, 0.405, 0.42))
    ]
    fedsac, own = plateau(results(*rises, run("fedsac-plus", plateau=(0.3, 0.3, 0.31))))
    assert (fedsac.name, fedsac.runs, fedsac.settled) == ("FedSAC", 3, 2)
    assert (fedsac.quarter, fedsac.half) == (pytest.approx(0.005), pytest.approx(0.105))
    assert (own.name, own.settled) == ("fedsac-plus", 0)


def seeds_of_column(scene, **gammas):
    """A column with gammas by seed for some methods; for the others 10 to 12.5, seed by seed."""
    names = [one.method for one in column()]
    rest = (10.0, 12.5, 11.0, 10.5, 11.5)
    return [
        run(name, scene=scene, seed=seed, best=(gamma,))
        for name in names
        for seed, gamma in enumerate(gammas.get(name, rest))
    ]


def test_claims_are_counted_by_significance_too():
    """POW: above every method on each seed. CLA: above q-FFL on average, by one seed's luck. DIR(1.0): below q-FFL on
    each seed. DIR(2.0): below on average and no more. DIR(3.0): one seed, no statement."""
    high, near = (90.0, 91.0, 90.5, 91.5, 90.2), (89.0, 93.0, 90.0, 91.0, 88.0)
    made = [
        *seeds_of_column("pow", fedsac=high),
        *seeds_of_column("cla", fedsac=high, qffl=near),
        *seeds_of_column("dir:1.0", fedsac=high, qffl=(95.0, 95.9, 95.4, 96.6, 95.1)),
        *seeds_of_column("dir:2.0", fedsac=near, qffl=high),
        *column("dir:3.0", fedsac=(90.0, 0.4)),
    ]
    found = claim("fairness-first", *made)
    assert found.count("best") == (3, 5)
    assert found.significance("best") == (1, 1, 2)
    assert [one.significance for one in found.verdicts["best"]] == [
        "significantly first",
        "undecided",
        "beaten",
        "undecided",
        None,
    ]
    assert "best: 1 first, 1 beaten, 2 undecided" in markdown_claims([found])
    assert [line.count("|") for line in markdown_claims([found]).splitlines() if line.startswith("|")] == [4] * 6


def test_significance_by_hand():
    """FedSAC less q-FFL is 1 2 3 4 5: t = 3 / sqrt(2.5 / 5) = 4.243, p = .0132 by itself. The other methods are far
    below, so this p is the largest and counts once. Against five such rivals it counts five times: .066."""
    base = (50.0, 40.0, 60.0, 55.0, 45.0)
    ours = tuple(gamma + d for gamma, d in zip(base, (1, 2, 3, 4, 5), strict=True))
    assert claim("fairness-first", *seeds_of_column("pow", fedsac=ours, qffl=base)).significance("best") == (1, 0, 0)
    same = dict.fromkeys(("qffl", "cffl", "cgsv", "fedave", "fedavg"), base)
    assert claim("fairness-first", *seeds_of_column("pow", fedsac=ours, **same)).significance("best") == (0, 0, 1)


def test_a_gamma_that_is_missing_for_some_seeds_is_paired_where_it_exists():
    ours = (None, 91.0, 90.5, 91.5, None)
    made = seeds_of_column("pow", fedsac=ours, qffl=(89.0, None, 50.0, 52.0, 88.0))
    found = table("table1", results(*made)).row("fedsac").cells[0].ours["best"]
    assert (found.values, found.of_seeds, found.seeds) == ((91.0, 90.5, 91.5), (1, 2, 3), 5)
    assert claim("fairness-first", *made).significance("best") == (1, 0, 0)  # with q-FFL: 40.5 and 39.5, p = .008


def test_less_is_better_for_megabytes_and_the_lowest_beta_leads_table_7():
    sizes = {"fedsac": (24.0, 24.1, 23.9)}
    made = [
        run(name, seed=seed, megabytes=size, counted=size)
        for name in (one.method for one in column())
        for seed, size in enumerate(sizes.get(name, (26.27,) * 3))
    ]
    assert claim("megabytes-less", *made).significance("mean") == (1, 0, 0)
    betas = [
        run(beta=beta, seed=seed, best=(97.0, top + 0.001 * seed * beta))
        for beta, top in ((2.0, 0.50), (5.0, 0.60), (10.0, 0.48), (20.0, 0.45))
        for seed in range(4)
    ]
    assert claim("beta-accuracy", *betas).significance("last") == (0, 1, 0)


@pytest.mark.parametrize("width", [100, 80])
def test_significance_on_the_terminal(width):
    high = (90.0, 91.0, 90.5, 91.5, 90.2)
    found = claims(results(*seeds_of_column("pow", fedsac=high), *seeds_of_column("cla", fedsac=high)))
    console = Console(width=width, highlight=False, markup=False)
    with console.capture() as said:
        console.print(terminal_claims(found, quick=False))
    assert max(map(len, said.get().splitlines())) <= width
    assert "best 2 / 0 / 0" in said.get()
    one_seed = claims(results(*column("pow")))
    with console.capture() as said:
        console.print(terminal_claims(one_seed, quick=False))
    assert "undecided" not in said.get()


@pytest.mark.parametrize("width", [100, 80])
def test_claims_on_the_terminal(width):
    found = claims(results(*column("pow"), *column("cla"), run(beta=10.0)))
    console = Console(width=width, highlight=False, markup=False)
    with console.capture() as said:
        console.print(terminal_claims(found, quick=True, failures=True))
    lines = said.get().splitlines()
    assert "(quick)" in lines[0]
    assert max(map(len, lines)) <= width
    assert "[2 of 15 cells run]" in markdown_claims(found)


def test_failures_are_told_once_each_in_the_tables_order():
    made = [*column("cla", qffl=(95.0, 0.2)), *column("pow", qffl=(95.0, 0.2), fedsac=(90.0, 0.4)), run(beta=10.0)]
    told = dict(failing([claim("fairness-first", *made)]))
    assert told["FedSAC has the highest gamma (Table 1)"] == [
        (
            "CIFAR-10 POW",
            "best: FedSAC 90.00, q-FFL 95.00; best, beta of Tables 2 and 7: FedSAC 90.00, q-FFL 95.00; "
            "last: FedSAC 90.00, q-FFL 95.00; last, beta of Tables 2 and 7: FedSAC 90.00, q-FFL 95.00",
        ),
        ("CIFAR-10 CLA", "best: FedSAC 50.00, q-FFL 95.00; last: FedSAC 50.00, q-FFL 95.00"),
    ]
