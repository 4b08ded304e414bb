"""Tables built from made-up results: means, deviations, ranks, gaps, and how they are shown."""

import csv

import pytest
from rich.console import Console

from fedsac.paper.page import write_page
from fedsac.paper.printed import TABLES, Column
from fedsac.paper.render import cell_text, markdown, terminal, write_csv
from fedsac.paper.tables import contradictions, table, tables
from tests.made_up import column, results, run

SCENES = {"POW", "CLA", "DIR(1.0)", "DIR(2.0)", "DIR(3.0)"}
POW = TABLES["table1"].index(Column("cifar10", 10, "pow"))


def cell(built, key, position=POW):
    return built.row(key).cells[position]


def test_mean_and_deviation_over_seeds():
    """98, 99 and 97: mean 98, deviation sqrt((0 + 1 + 1) / 2) = 1."""
    made = [run(seed=seed, best=(gamma,), last=(90 + seed,)) for seed, gamma in enumerate((98.0, 99.0, 97.0))]
    one = cell(table("table1", results(*made)), "fedsac")
    assert (one.ours["best"].mean, one.ours["best"].deviation, one.ours["best"].seeds) == (98.0, 1.0, 3)
    assert (one.ours["last"].mean, one.ours["last"].deviation) == (91.0, 1.0)
    assert one.paper == (98.80, 0.2, None)


def test_what_was_not_run_stays_empty():
    built = table("table1", results(run(best=(98.0,))))
    assert cell(built, "fedavg").ours == {}
    assert cell(built, "fedsac", POW + 1).ours == {}
    assert cell_text(built, cell(built, "fedavg"), "best") == "-"
    assert cell_text(built, cell(built, "fedsac"), "best") == "98.00"  # one seed: no deviation
    assert [row.key for row in built.rows][-1] == "fedsac"  # no row for a beta that nobody ran
    assert table("table1", results()).empty
    assert "not run" in table("table1", results()).headline


def test_an_undefined_gamma_is_not_averaged_and_said():
    built = table("table1", results(*(run(seed=seed, best=(gamma,)) for seed, gamma in enumerate((98.0, None, 96.0)))))
    one = cell(built, "fedsac")
    assert (one.ours["best"].mean, one.ours["best"].seeds) == (97.0, 3)
    assert cell_text(built, one, "best") == "97.00 ±1.4 2/3"
    nobody = table("table1", results(run(best=(None,))))
    assert cell_text(nobody, cell(nobody, "fedsac"), "best") == "- 0/1"
    assert cell(nobody, "fedsac").ranks == {}


def test_a_seed_counts_once_and_another_beta_not_at_all():
    made = [run("fedavg", best=(10.0,)), run("fedavg", beta=20.0, best=(30.0,)), run(beta=2.0, best=(80.0,))]
    built = table("table1", results(*made))
    assert cell(built, "fedavg").ours["best"].values == (10.0,)
    assert cell(built, "fedsac").ours == {}


def test_both_settings_of_beta():
    """Table 9 names 5 for CIFAR-10 POW, Tables 2 and 7 agree at 10; for DIR(1.0) both say 10."""
    made = [run(beta=5.0, best=(97.0,)), run(beta=10.0, best=(99.0,)), run(scene="dir:1.0", beta=10.0, best=(96.0,))]
    built = table("table1", results(*made))
    assert cell(built, "fedsac").mean("best") == 97.0
    assert cell(built, "fedsac:other-beta").mean("best") == 99.0
    position = POW + 2
    assert cell(built, "fedsac", position).mean("best") == 96.0
    assert cell(built, "fedsac:other-beta", position).same
    assert cell_text(built, cell(built, "fedsac:other-beta", position), "best") == "="


def test_ranks_and_what_they_mark():
    """CIFAR-10 POW in the paper: FedSAC, CFFL, CGSV, FedAVE, q-FFL, FedAvg. Here CFFL and CGSV change places."""
    gammas = {"fedavg": 10, "qffl": 20, "cffl": 70, "cgsv": 80, "fedave": 60, "fedsac": 90}
    built = table("table1", results(*column(**{name: (float(gamma), 0.4) for name, gamma in gammas.items()})))
    assert cell(built, "cffl").ranks["best"] == (2, 3)
    assert cell(built, "cgsv").ranks["best"] == (3, 2)
    assert [row.key for row in built.rows if row.cells[POW].moved("best")] == ["cffl", "cgsv"]
    assert built.moved("best") == (2, 6)
    assert cell(built, "fedsac").first == {"paper", "best", "last"}
    assert cell(built, "cgsv").first == set()


def test_a_missing_method_shifts_nobody():
    """Without CFFL, second in the paper, CGSV is second on both sides."""
    gammas = {"fedavg": 10, "qffl": 20, "cgsv": 80, "fedave": 60, "fedsac": 90}
    made = [run(name, best=(float(gamma),)) for name, gamma in gammas.items()]
    built = table("table1", results(*made))
    assert cell(built, "cgsv").ranks["best"] == (2, 2)
    assert built.moved("best") == (0, 5)


def test_a_variant_is_ranked_in_the_place_of_its_method():
    """At Table 9's beta FedSAC is second to CFFL; at the other it is first, and CFFL is compared with the first."""
    made = [run("cffl", best=(95.0,)), run(beta=5.0, best=(90.0,)), run(beta=10.0, best=(99.0,))]
    built = table("table1", results(*made))
    assert cell(built, "fedsac").ranks["best"] == (1, 2)
    assert cell(built, "fedsac:other-beta").ranks["best"] == (1, 1)
    assert cell(built, "cffl").ranks["best"] == (2, 1)
    assert built.moved("best") == (2, 2)  # variants are not counted


def test_equal_numbers_share_a_rank():
    sizes = {"fedavg": 26.27, "qffl": 26.27, "fedsac": 23.0}
    made = [run(name, megabytes=size, counted=size, serialised=size + 1) for name, size in sizes.items()]
    built = table("table8", results(*made))
    assert [cell(built, name).ranks["mean"] for name in sizes] == [(2, 2), (2, 2), (1, 1)]
    assert cell_text(built, cell(built, "fedsac"), "paper") == "23.57"
    assert [cell_text(built, cell(built, "fedsac"), label) for label in built.labels] == ["23.00", "23.00", "24.00"]


def test_accuracies_in_percent_and_standalone_from_contributions():
    """Two seeds alone: the best have .30 and .40, mean 35 %; rewards .45 and .47, mean 46 %."""
    made = [
        run("fedavg", seed=0, best=(50.0, 0.45, 0.48), contributions=(0.30, 0.1)),
        run("fedavg", seed=1, best=(50.0, 0.47, 0.50), contributions=(0.2, 0.40)),
    ]
    built = table("table2", results(*made))
    assert cell(built, "standalone").mean("best") == pytest.approx(35.0)
    assert cell(built, "standalone").mean("last") == pytest.approx(35.0)
    assert cell(built, "standalone").ours["best"].seeds == 2
    assert cell(built, "fedavg").mean("best") == pytest.approx(46.0)
    assert cell(built, "fedavg:common").mean("best") == pytest.approx(49.0)
    assert cell(built, "fedavg:common").paper == cell(built, "fedavg").paper
    assert built.row("fedavg:common").name == "FedAvg, common model"


def test_more_clients_have_the_settings_of_ten():
    made = [run(clients=20, beta=5.0, best=(97.0,)), run(clients=20, beta=10.0, best=(99.0,)), run(best=(1.0,))]
    built = table("table5", results(*made))
    position = TABLES["table5"].index(Column("cifar10", 20, "pow"))
    assert [cell(built, key, position).mean("best") for key in ("fedsac", "fedsac:other-beta")] == [97.0, 99.0]


def test_the_other_reading_of_eq_9_is_a_variant_of_fedsac():
    made = [run(best=(90.0,)), run("fedsac-over-n", best=(99.0,)), run("fedsac-over-n", beta=10.0, best=(98.0,))]
    built = table("table1", results(*made, run("qffl", best=(95.0,))))
    assert [row.name for row in built.rows if row.of == "fedsac" and row.variant] == [
        "FedSAC, updates over N",
        "FedSAC, updates over N, beta of Tables 2 and 7",
    ]
    found = [cell(built, key).mean("best") for key in ("fedsac", "fedsac-over-n", "fedsac-over-n:other-beta")]
    assert found == [90.0, 99.0, 98.0]
    # It is ranked in FedSAC's place, and takes nobody's rank away.
    assert cell(built, "fedsac-over-n").first == {"paper", "best", "last"} and cell(built, "qffl").first == {
        "best",
        "last",
    }
    without = table("table1", results(made[0]))
    assert not any(row.key == "fedsac-over-n" for row in without.rows)


def test_ablations():
    made = [run(name, best=(90.0, 0.4)) for name in ("fedsac-no-allocation", "fedsac-no-aggregation", "fedsac")]
    assert [cell(table("table3", results(*made)), run.method).mean("last") for run in made] == [90.0] * 3
    assert [cell(table("table4", results(*made)), run.method).mean("last") for run in made] == [40.0] * 3


def test_table_7_has_the_best_and_the_lowest_and_how_many_seeds_were_fair():
    """Fair rounds .50 (.40) and .48 (.30) and none: 49 (35) for two of three seeds."""
    rounds = [(10, 0.50, 0.40), (20, 0.48, 0.30), None]
    made = [run(seed=seed, beta=2.0, best=(90.0, 0.6), fair=fair) for seed, fair in enumerate(rounds)]
    built = table("table7", results(*made))
    one = cell(built, "beta=2", 0)
    assert (one.ours["fair"].mean, one.ours["fair"].lowest) == (pytest.approx(49.0), pytest.approx(35.0))
    assert cell_text(built, one, "fair") == "49.00 (35.00) 2/3"
    assert cell_text(built, one, "last") == "60.00 (48.00)"
    assert cell_text(built, one, "paper") == "49.23 (44.77)"
    assert cell(built, "beta=5", 0).ours == {}


def test_table_9_shows_what_was_run_and_names_the_contradictions():
    built = table("table9", results(run(beta=5.0), run(beta=10.0), run("fedavg", beta=1.0)))
    says = {row.name: [cell_text(built, row.cells[0], line) for line in ("paper", "runs")] for row in built.rows}
    assert says == {
        "learning rate": ["0.05", "0.05"],
        "local steps": ["15", "15"],
        "batch size": ["32", "32"],
        "beta": ["5", "5, 10"],
        "beta of Tables 2 and 7": ["10", "10"],
    }
    assert len(contradictions()) == 3
    assert "CIFAR-10 POW: Table 9 names beta 5, at which Table 7 has 48.43; Table 2 has 48.61" in built.notes[0]


def everything(quick=False):
    made = [one for at in TABLES["table1"] + TABLES["table5"] for one in column(at.scene, at.data, at.clients)]
    made += [run(beta=10.0), run(beta=2.0, fair=(1, 0.5, 0.4)), run("fedsac-no-allocation")]
    return results(*made, quick=quick)


@pytest.mark.parametrize("width", [100, 80])
def test_the_terminal_version_fits(width):
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    for built in tables(everything()):
        with console.capture() as shown:
            console.print(terminal(built))
        lines = shown.get().splitlines()
        assert max(map(len, lines)) <= width
        assert lines[0].startswith(f"Table {built.name[-1]}")
        assert "…" not in shown.get()
        heads = [line.split() for line in lines if line.split() and set(line.split()) <= SCENES]
        assert sum(map(len, heads)) == len(built.columns)  # nothing is dropped


def test_the_terminal_version_marks_what_moved():
    built = table("table1", results(run("cffl", best=(95.0,)), run(best=(90.0,))))
    console = Console(width=100, highlight=False)
    with console.capture() as said:
        console.print(terminal(built))
    assert "95.00≠" in said.get()
    assert "best 2 of 2 cells, last 2 of 2 cells" in said.get().replace("\n", " ")


def test_markdown_rows_have_equal_numbers_of_cells():
    for built in tables(everything()):
        blocks = markdown(built).split("\n\n")
        found = [block.splitlines() for block in blocks if block.startswith("|")]
        assert found
        for block in found:
            assert len({line.count("|") for line in block}) == 1, block[0]
        assert sum(block[0].count("|") - 3 for block in found) == len(built.columns)


def test_markdown_marks_the_best_and_what_moved():
    text = markdown(table("table1", results(run("cffl", best=(95.0,)), run(best=(90.0,)))))
    assert "|  | best | **95.00** ≠ |" in text
    assert "| FedSAC | paper | **98.80 ±0.2** |" in text


def test_quick_is_in_every_headline(tmp_path):
    for built in tables(everything(quick=True)):
        assert "(quick)" in built.headline
        assert "(quick)" in markdown(built).splitlines()[0]
    path = write_page(everything(quick=True), [("Figure 3", "figure3.svg")], "It holds.", tmp_path)
    headings = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert len(headings) > 15
    assert [line for line in headings if "(quick)" not in line] == []
    slow = write_page(everything(), [], None, tmp_path).read_text(encoding="utf-8")
    assert "quick" not in slow


def test_the_page_keeps_the_account_and_shows_figures_and_theorems(tmp_path):
    (tmp_path / "account.md").write_text("### Why\n\nBecause | of ~this~.\n", encoding="utf-8")
    path = write_page(everything(), [("Figure 3", "figures/3.svg")], "Theorem 1: 5 of 5.", tmp_path)
    text = path.read_text(encoding="utf-8")
    assert text.endswith("### Why\n\nBecause | of ~this~.\n")
    assert "![Figure 3](figures/3.svg)" in text
    assert "Theorem 1: 5 of 5." in text
    assert "- commit: abc" in text
    assert text.index("claims") < text.index("## Table 1") < text.index("## Figures") < text.index("## Theorems")
    assert "Not run: Table 4" not in text
    assert (tmp_path / "account.md").read_text(encoding="utf-8").startswith("### Why")
    for name in TABLES:
        assert (tmp_path / f"{name}.csv").exists() == (f"({name}.csv)" in text)


def test_a_page_of_little_says_what_is_missing(tmp_path):
    text = write_page(results(run()), [], None, tmp_path).read_text(encoding="utf-8")
    assert "Not run: Table 5, 6." in text
    nothing = write_page(results(), [], None, tmp_path).read_text(encoding="utf-8")
    assert "Nothing was run." in nothing
    assert "None could be tested" in nothing


def test_csv(tmp_path):
    built = table("table1", results(run(seed=0, best=(98.0,)), run(seed=1, best=(99.0,)), run(beta=10.0)))
    write_csv(built, tmp_path / "table1.csv")
    with (tmp_path / "table1.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    wanted = {"row": "fedsac", "data": "cifar10", "scene": "pow", "label": "best"}
    (one,) = [row for row in rows if wanted.items() <= row.items()]
    assert (one["mean"], one["deviation"], one["seeds"], one["printed"]) == ("98.5", "0.707107", "2", "98.8")
    assert (one["rank"], one["printed_rank"]) == ("1", "1")
    # Six methods in 15 columns at two labels, and the other beta where it differs.
    assert len(rows) == 6 * 15 * 2 + 3 * 2
