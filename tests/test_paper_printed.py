"""The printed values in the package are the paper's."""

import json

import pytest

from fedsac.errors import FedsacError
from fedsac.paper.printed import TABLES, Column, Printed, printed, standalone_later
from fedsac.paper.settings import BATCH, SCENES, TABLE9

NAMES = {
    "CIFAR10": "cifar10",
    "SVHN": "svhn",
    "FashionMNIST": "fashion-mnist",
    "Standalone": "standalone",
    "FedAvg": "fedavg",
    "q-FFL": "qffl",
    "CFFL": "cffl",
    "CGSV": "cgsv",
    "FedAVE": "fedave",
    "FedSAC": "fedsac",
    "w/o allocation": "fedsac-no-allocation",
    "w/o aggregation": "fedsac-no-aggregation",
    "eta": "lr",
    "E": "local_steps",
    "beta": "beta",
    **{f"FedSAC(beta={beta})": f"beta={beta}" for beta in (2, 5, 10, 20)},
}


def test_every_cell_is_the_papers(shared):
    whole = json.loads((shared / "paper" / "tables.json").read_text())
    assert {name.partition("_")[0] for name in whole} == set(TABLES)
    for name, cells in whole.items():
        table = name.partition("_")[0]
        ours = {(column, row): value for column, rows in printed(table).items() for row, value in rows.items()}
        theirs = {}
        for cell in cells:
            scene = cell["scene"].lower().replace("(", ":").replace(")", "")
            column = Column(NAMES[cell["dataset"]], cell["clients"], scene)
            value = cell["value"] if "value" in cell else cell["max"]
            theirs[column, NAMES[cell["method"]]] = Printed(value, cell.get("std"), cell.get("min"))
        assert ours == theirs, table


@pytest.mark.parametrize(
    ("table", "column", "row", "value"),
    [
        ("table1", ("cifar10", 10, "pow"), "fedsac", Printed(98.80, 0.2)),
        ("table1", ("svhn", 10, "pow"), "fedavg", Printed(-19.24, 26.7)),
        ("table1", ("fashion-mnist", 10, "dir:3.0"), "fedsac", Printed(98.62, 0.3)),
        ("table2", ("cifar10", 10, "pow"), "standalone", Printed(41.23, 0.1)),
        ("table2", ("svhn", 10, "cla"), "qffl", Printed(54.71, 1.52)),
        ("table3", ("cifar10", 10, "dir:3.0"), "fedsac-no-allocation", Printed(-14.61)),
        ("table3", ("fashion-mnist", 10, "dir:2.0"), "fedsac-no-aggregation", Printed(27.40)),
        ("table4", ("fashion-mnist", 10, "cla"), "fedsac-no-aggregation", Printed(85.95)),
        ("table5", ("cifar10", 60, "dir:2.0"), "fedsac", Printed(95.12, 0.3)),
        ("table6", ("fashion-mnist", 20, "dir:3.0"), "cgsv", Printed(88.07, 0.2)),
        ("table7", ("cifar10", 10, "dir:3.0"), "beta=2", Printed(51.37, None, 43.19)),
        ("table8", ("svhn", 10, "dir:2.0"), "fedsac", Printed(15.51)),
        ("table8", ("fashion-mnist", 10, "pow"), "cffl", Printed(7.97)),
        ("table9", ("fashion-mnist", 10, "dir:3.0"), "beta", Printed(25.0)),
    ],
)
def test_values_read_off_the_page(table, column, row, value):
    assert printed(table)[Column(*column)][row] == value


def test_the_tables_have_the_papers_columns():
    assert [len(columns) for columns in TABLES.values()] == [15, 15, 15, 15, 14, 14, 4, 15, 15]
    assert [len(printed(table)[columns[0]]) for table, columns in TABLES.items()] == [6, 7, 3, 3, 6, 7, 4, 6, 3]
    assert {column.clients for column in TABLES["table5"]} == {20, 40, 60}
    assert TABLES["table5"] == TABLES["table6"]


def test_table_9_is_the_one_the_runs_are_made_with():
    for column, rows in printed("table9").items():
        for row, number in rows.items():
            assert TABLE9[column.data][row][SCENES.index(column.scene)] == number.value
        assert column.data in BATCH


def test_the_authors_later_lists():
    lists = standalone_later()
    scenes = {"cifar10": ("pow", "cla", "dir:3.0"), "svhn": ("pow", "cla", "dir:2.0", "dir:3.0")}
    assert list(lists) == [(data, scene) for data in scenes for scene in scenes[data]]
    assert all(len(values) == 10 for values in lists.values())
    assert lists["cifar10", "pow"][:4] == (0.282, 0.343, 0.360, 0.354)  # not ascending: as published
    assert [max(values) for values in lists.values()] == [0.407, 0.369, 0.3213, 0.6833, 0.591, 0.5863, 0.6143]


def test_a_table_that_is_not_there():
    with pytest.raises(FedsacError, match="no 'table10'; there are table1, table2"):
        printed("table10")


def test_columns_say_what_they_are():
    assert str(Column("cifar10", 10, "pow")) == "CIFAR-10 POW"
    assert str(Column("fashion-mnist", 20, "dir:2.0")) == "Fashion-MNIST DIR(2.0), 20 clients"
