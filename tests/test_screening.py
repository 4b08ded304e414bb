"""Replies that wreck the model are refused, by both engines; who does not take part is not paid as if."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import fedsac
from fedsac import Config
from fedsac.cli import main
from fedsac.compute.samples import Samples
from fedsac.core.units import Layout
from fedsac.defences.harm import _surely_rises, harmful, without
from fedsac.errors import FedsacError
from fedsac.methods.base import Assignment, Updates

QUICK = Config(rounds=6, hidden=(32,), seed=2, standalone_steps=60, clients=5, dtype="float64")


# -- by hand: one feature, hidden neurons relu(x) and relu(-x), logits (-w x, w x): the more w, the better


def line(*weights, sent=1.0):
    """Replies of clients that were sent a model of weight `sent` and have trained it to these weights."""
    layout = Layout((1, 2, 2))
    rows = [[1.0, -1.0, 0.0, 0.0, -w, w, w, -w, 0.0, 0.0] for w in (*weights, sent)]
    models, given = torch.tensor(rows, dtype=torch.float64).split([len(weights), 1])
    n = len(weights)
    everything = torch.ones(n, 2, dtype=torch.bool)
    x = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    one, zero = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    validation = Samples(x, torch.tensor([0, 1]), one, zero)
    return layout, validation, Updates(0, tuple(range(n)), models, Assignment(given, everything))


@pytest.mark.parametrize(
    ("weights", "refused"),
    [
        ((1.1, 1.2, 1.15), ()),  # honest
        ((1.1, 1.2, -5.0), (2,)),  # flipped
        ((1.1, 1.2, 1.15, -5.0, -6.0), (3, 4)),  # two of them; neither hides the other
        ((1.1, 1.2, 6.0), ()),  # a long step that helps
        ((1.1, 1.2, 0.9), ()),  # a short one that does not
        ((1.0, 1.0, 1.1), ()),  # the others stood still: a step that helps
        ((1.0, 1.0, -3.0), (2,)),
        ((1.1, -5.0), (1,)),
        ((-5.0,), ()),  # nobody to compare with
    ],
)
def test_which_replies_do_harm(weights, refused):
    layout, validation, updates = line(*weights)
    found = harmful(layout, validation, updates)
    assert tuple(found) == refused
    assert all(reason.startswith("harm: ") for reason in found.values())


def test_a_rise_that_may_be_chance_is_no_harm():
    """On one of a hundred samples the loss rises by 5: by .05 on average, with a standard error of .05."""
    differences = torch.zeros(100, dtype=torch.float64)
    differences[0] = 5.0
    assert float(differences.mean()) == pytest.approx(0.05)
    assert float(differences.std(correction=1)) / 10 == pytest.approx(0.05, abs=1e-12)
    assert not _surely_rises(differences)
    assert _surely_rises(differences + 0.11)  # .16 with the same error: 3.2 of them
    assert not _surely_rises(differences + 0.09)  # 2.8
    assert _surely_rises(torch.tensor([0.1, math.nan])) and _surely_rises(torch.tensor([math.inf, 0.0]))


def test_the_numbers_in_the_reason():
    """Steps of length 2 |dw|, and mean losses log(1 + exp(-2 w))."""
    layout, validation, updates = line(1.1, 1.2, -5.0)
    said = harmful(layout, validation, updates)[2]

    def loss(w):
        return np.log1p(np.exp(-2 * w))

    calm, all_of_them = loss(1.15), loss((1.1 + 1.2 - 5) / 3)
    for number in (6 / 0.15, calm, all_of_them, loss(1.0), loss(-5.0)):
        assert f"{number:.3g}" in said


def test_updates_without_some():
    _, _, updates = line(1.1, 1.2, 1.3)
    updates = replace(updates, clients=(1, 4, 7), local_losses=torch.tensor([1.0, 2.0, 3.0]))
    kept = without(replace(updates, batch_losses=[torch.tensor([float(i)]) for i in range(3)]), (4,))
    assert kept.clients == (1, 7) and kept.local_losses.tolist() == [1.0, 3.0]
    assert [t.item() for t in kept.batch_losses] == [0.0, 2.0] and kept.params[:, 5].tolist() == [1.1, 1.3]
    assert without(updates, ()) is updates


# -- the local engine


@pytest.mark.parametrize("method", ["fedsac", "fedavg"])
def test_a_run_with_hostile_clients_is_one_without_them(method):
    base = QUICK.replace(method=method)
    names = fedsac.run(base.replace(rounds=1)).clients
    assert {"client-01", "client-04"} < set(names)
    refused = fedsac.run(base.replace(behaviour="tests.hostile:flipped", refuse="harmful"))
    absent = fedsac.run(base.replace(behaviour="tests.hostile:silent"))
    assert (refused.global_model.params == absent.global_model.params).all()
    taken_in = fedsac.run(base.replace(behaviour="tests.hostile:flipped"))
    lost = refused.records[-1]["global_accuracy"] - taken_in.records[-1]["global_accuracy"]
    assert lost > 0.3, "as the paper has it, they wreck the model"
    assert all(set(record["refused"]) == {"client-01", "client-04"} for record in refused.records)


@pytest.mark.parametrize("scene", ["pow", "cla", "dir:0.1", "dir:1", "iid"])
@pytest.mark.parametrize("method", ["fedsac", "fedavg"])
def test_honest_clients_of_unlike_data_are_not_refused(scene, method):
    settings = {"scene": scene, "method": method, "clients": 10, "rounds": 10, "dtype": "float32"}
    checked = fedsac.run(QUICK.replace(refuse="harmful", **settings))
    assert not any("refused" in record for record in checked.records)
    plain = fedsac.run(QUICK.replace(**settings))
    assert (plain.global_model.params == checked.global_model.params).all()


def test_what_can_be_refused_is_checked():
    with pytest.raises(FedsacError, match="refuse must be harmful"):
        Config(refuse="everything")


def test_the_command_says_who_is_left_out(capsys, tmp_path):
    settings = ["--clients", "5", "--rounds", "2", "--hidden", "16", "--standalone-steps", "20", "--out"]
    attack = ["--behaviour", "tests.hostile:flipped", "--refuse", "harmful"]
    assert main(["run", *settings, str(tmp_path / "run"), *attack]) == 0
    said = capsys.readouterr()
    assert "client-01 is left out: harm" in said.err + said.out
    assert 'refuse = "harmful"' in (tmp_path / "run" / "config.toml").read_text()


# -- a federation

pytest.importorskip("flwr")

from fedsac.federation.folder import Federation  # noqa: E402
from fedsac.federation.verifying import verify, verify_site  # noqa: E402
from tests.flower_grid import InProcessGrid, coordinate, digits_silos, federation, nodes, of_kind, order_of  # noqa: E402
from tests.test_flower_server import signed_again  # noqa: E402

RUN = {"rounds": 5, "hidden": (16, 16), "seed": 3, "dtype": "float64"}


@pytest.fixture(scope="module")
def silos(tmp_path_factory):
    return digits_silos(tmp_path_factory.mktemp("data") / "silos")


def sending(folder, change, site="c"):
    """A grid on which a site sends something else in rounds: `change(sent, trained)`, by array."""

    def spoil(name, message, reply):
        if (name, order_of(message)["kind"]) != (site, "round"):
            return reply
        sent = message.content.array_records["arrays"]
        arrays = {k: change(sent[k].numpy(), v.numpy()) for k, v in reply.content.array_records["arrays"].items()}
        return signed_again(folder, name, reply, arrays)

    return InProcessGrid(nodes(folder), spoil=spoil)


def never_there(folder, site="c"):
    def spoil(name, message, reply):
        return None if (name, order_of(message)["kind"]) == (site, "round") else reply

    return InProcessGrid(nodes(folder), spoil=spoil)


def flipped(sent, trained):
    return -5 * trained


def receipt(folder, site):
    return json.loads((folder / site / "receipt.json").read_text())["body"]


def test_a_site_that_wrecks_the_model_is_refused_and_counted(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN)
    found = coordinate(folder, sending(folder, flipped))
    refused = of_kind(folder, "refused")
    assert [(body["site"], body["in_a_row"], body["aside"]) for body in refused] == [
        ("c", 1, False),
        ("c", 2, False),
        ("c", 3, True),
    ]
    assert all(body["reason"].startswith("harm: ") for body in refused)
    assert [body["answered"] for body in of_kind(folder, "round")] == [["a", "b"]] * 5
    quick = federation(tmp_path / "absent", silos, settings="aside_after = 1", **RUN)
    toml = quick / "federation.toml"
    toml.write_text(toml.read_text().replace("timeout = 30", "timeout = 0.5"))
    absent = coordinate(quick, never_there(quick))
    assert (found.state["model"] == absent.state["model"]).all(), "the aggregate is one without that site"
    verify(Federation.load(folder))
    for name in "abc":
        verify_site(folder / name, folder / "server" / "ledger.jsonl")


def test_refuse_nothing_takes_it_in(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, settings='refuse = "nothing"', **RUN)
    coordinate(folder, sending(folder, flipped))
    assert of_kind(folder, "refused") == []
    assert [body["answered"] for body in of_kind(folder, "round")] == [["a", "b", "c"]] * 5


@pytest.mark.parametrize("change", [flipped, lambda sent, trained: sent], ids=["refused every round", "unchanged"])
def test_who_does_not_take_part_is_not_paid_as_if(change, silos, tmp_path):
    """c has the most data, and the highest contribution of all."""
    paid = {}
    for rule in ("taking-part", "contribution"):
        folder = federation(tmp_path / rule, silos, settings=f'pay = "{rule}"', **RUN)
        coordinate(folder, sending(folder, change))
        paid[rule] = {name: receipt(folder, name) for name in "abc"}
        verify(Federation.load(folder))
    paper, ours = paid["contribution"], paid["taking-part"]
    assert paper["c"]["reputation"] == max(body["reputation"] for body in paper.values()) == 100
    assert paper["c"]["taking_part"] is None and paper["c"]["neurons"] == paper["c"]["of_neurons"]
    assert ours["c"]["taking_part"] == 0 and ours["c"]["contribution"] == paper["c"]["contribution"]
    assert ours["c"]["neurons"] < min(ours["a"]["neurons"], ours["b"]["neurons"])
    assert ours["c"]["accuracy_validation"] < ours["b"]["accuracy_validation"]
    assert [ours[name]["taking_part"] for name in "ab"] == [1, 1]


def test_who_misses_less_than_half_is_paid_in_full(silos, tmp_path):
    """Networks fail: two rounds of five are nobody's fault."""
    folder = federation(tmp_path / "fed", silos, **RUN)
    toml = folder / "federation.toml"
    toml.write_text(toml.read_text().replace("timeout = 30", "timeout = 0.5"))

    def spoil(name, message, reply):
        order = order_of(message)
        return None if (name, order["kind"]) == ("c", "round") and order["round"] in (1, 3) else reply

    found = coordinate(folder, InProcessGrid(nodes(folder), spoil=spoil))
    body = receipt(folder, "c")
    assert body["rounds"] == [1, 3, 5] and body["taking_part"] == 1 and body["reputation"] == 100
    assert found.records[1]["answered"] == ["a", "b"]


def test_rules_that_do_not_exist(silos, tmp_path):
    for line, text in (('pay = "all"', "pay must be taking-part or contribution"), ('refuse = "x"', "refuse must be")):
        folder = federation(tmp_path / line[:3], silos, **RUN)
        toml = folder / "federation.toml"
        toml.write_text(toml.read_text().replace("[federation]\n", f"[federation]\n{line}\n"))
        with pytest.raises(FedsacError, match=text):
            Federation.load(folder)
