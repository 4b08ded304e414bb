"""What a site answers is for the site to decide: limits of its own, codes instead of reasons, noise with a proof."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr")

from fedsac.core import accountant
from fedsac.core.units import Layout
from fedsac.errors import FedsacError
from fedsac.federation import privacy
from fedsac.federation.declining import CODES, shown
from fedsac.federation.disclosure import disclosed, secure_normal
from fedsac.federation.folder import SiteSettings
from fedsac.federation.history import History, signed_order
from fedsac.federation.ledger import Ledger
from fedsac.federation.site import Site
from fedsac.federation.wire import Order, arrays_of
from fedsac.models.network import Network
from tests.flower_grid import InProcessGrid, coordinate, digits_silos, federation, nodes, of_kind

RUN = {"rounds": 2, "hidden": (16, 16), "seed": 3, "dtype": "float64"}


@pytest.fixture(scope="module")
def silos(tmp_path_factory):
    return digits_silos(tmp_path_factory.mktemp("data") / "silos")


def edit(path, **changes):
    text = path.read_text()
    for name, value in changes.items():
        assert re.search(rf"^{name} = ", text, flags=re.MULTILINE), name
        text = re.sub(rf"^{name} = \S+", f"{name} = {value}", text, flags=re.MULTILINE)
    path.write_text(text)


def ordered(folder, order, site="a"):
    """An order as the coordinator would sign it."""
    ledger = Ledger(folder / "server" / "ledger.jsonl")
    ledger.append("sent")
    key, since = (folder / "server" / "receipts.key").read_bytes(), History(folder / site).head[0]
    return signed_order(site, order, ledger, since, key)


# -- floors and ceilings


@pytest.mark.parametrize(
    ("run", "code"),
    [
        ({"batch": 1}, "batch"),
        ({"batch": 15}, "batch"),
        ({"local_steps": 1}, "steps"),
        ({"lr": 1.5}, "lr"),
        ({"standalone_steps": 1}, "steps"),
    ],
)
def test_orders_beyond_a_sites_limits_are_declined_by_default(run, code, silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, limits=True, **RUN | run)
    with pytest.raises(FedsacError, match=f"{code}: {re.escape(CODES[code])}"):
        coordinate(folder)
    assert {body["reason"] for body in of_kind(folder, "refused")} == {f"{code}: {CODES[code]}"}
    assert not of_kind(folder, "contribution") and not of_kind(folder, "round")


def test_the_default_settings_are_within_the_default_limits(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, limits=True, **RUN)
    coordinate(folder)
    assert not of_kind(folder, "refused") and len(of_kind(folder, "reward")) == 3


def test_a_small_site_does_not_take_part(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, limits=True, **RUN)
    edit(folder / "a" / "site.toml", least_samples=61)
    coordinate(folder)
    assert {body["site"]: body["reason"] for body in of_kind(folder, "refused")}["a"] == shown("samples")
    assert [body["site"] for body in of_kind(folder, "reward")] == ["b", "c"]


def test_a_site_trains_as_often_as_it_says(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, limits=True, **RUN | {"rounds": 4})
    edit(folder / "b" / "site.toml", most_rounds=3)
    found = coordinate(folder)
    assert ["b" in record["answered"] for record in found.records] == [True, True, False, False]
    assert {body["reason"] for body in of_kind(folder, "refused")} == {shown("rounds")}
    assert json.loads((folder / "b" / "receipt.json").read_text())["body"]["rounds"] == [1, 2], "and it is paid"


def test_terms_are_frozen_after_joining(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, limits=True, **RUN)
    coordinate(folder)
    agreed = (folder / "a" / "agreed.json").read_text()
    facts = {name: value for name, value in json.loads(agreed).items() if name != "format_version"}
    changed = facts | {"settings": facts["settings"] | {"lr": 0.01}}
    assert Site(folder / "a").answer(ordered(folder, Order("join", 2, "t", changed))).facts == {"declined": "terms"}
    assert (folder / "a" / "agreed.json").read_text() == agreed
    again = Site(folder / "a").answer(ordered(folder, Order("join", 2, "t", facts)))
    assert again.facts["samples"] == 60, "the same terms once more are none that are new"
    (folder / "a" / "agreed.json").unlink()
    answer = Site(folder / "a").answer(ordered(folder, Order("join", 2, "t", changed)))
    assert answer.facts["samples"] == 60, "the site's operator has agreed anew"


@pytest.mark.parametrize("joined", [False, True])
def test_a_coordinator_cannot_name_code_that_a_site_runs(joined, silos, tmp_path, monkeypatch):
    """Settings that it does not decide, as the network, are declined when joining, and in terms that were agreed on."""
    folder = federation(tmp_path / "fed", silos, limits=True, **RUN)
    coordinate(folder)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "named_by_others.py").write_text(f"open({str(tmp_path / 'was-run')!r}, 'w').close()\n")
    agreed = folder / "a" / "agreed.json"
    facts = json.loads(agreed.read_text())
    facts["settings"]["network"] = "named_by_others:network"
    if joined:
        agreed.write_text(json.dumps(facts))
        layout = Layout((64, 16, 16, 10))
        arrays = arrays_of(Network(layout, torch.zeros(layout.parameters, dtype=torch.float64)))
        order = Order("round", 2, "t", {}, arrays)
    else:
        agreed.unlink()
        order = Order("join", 2, "t", {name: value for name, value in facts.items() if name != "format_version"})
    assert Site(folder / "a").answer(ordered(folder, order)).facts == {"declined": "settings"}
    assert not (tmp_path / "was-run").exists() and agreed.exists() is joined


@pytest.mark.parametrize("sizes", [(64, 17, 16, 10), (64, 16, 10), (64, 16, 16, 16, 10)])
def test_a_model_that_was_not_agreed_on_is_not_trained(sizes, silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, limits=True, **RUN)
    coordinate(folder)
    arrays = {}
    for i, (fan_in, out) in enumerate(pairwise(sizes)):
        arrays |= {f"{2 * i}.weight": np.ones((out, fan_in)), f"{2 * i}.bias": np.zeros(out)}
    reply = Site(folder / "a").answer(ordered(folder, Order("round", 2, "t", {}, arrays)))
    assert reply.facts == {"declined": "model"} and not reply.arrays


def test_terms_without_a_model_are_not_agreed_on(silos, tmp_path):
    """Else any model could be sent after joining. Terms that an earlier version agreed on, without one, still hold."""
    folder = federation(tmp_path / "fed", silos, limits=True, **RUN)
    coordinate(folder)
    agreed = folder / "a" / "agreed.json"
    terms = json.loads(agreed.read_text())
    del terms["sizes"]
    order = Order("join", 2, "t", {name: value for name, value in terms.items() if name != "format_version"})
    agreed.write_text(json.dumps(terms))
    assert Site(folder / "a").answer(ordered(folder, order)).facts["samples"] == 60
    agreed.unlink()
    assert Site(folder / "a").answer(ordered(folder, order)).facts == {"declined": "model"} and not agreed.exists()


# -- nothing of data, paths or errors leaves a site


def secret_csv(folder, silos):
    with np.load(silos / "b.npz") as data:
        head = ",".join([*(f"f{i}" for i in range(64)), "label"])
        rows = [",".join(map(str, [*x, y])) for x, y in zip(data["x"], data["y"], strict=True)]
    (folder / "b" / "data.csv").write_text("\n".join([head, "Jane Doe 1961-03-04" + rows[0][3:], *rows[1:]]) + "\n")
    edit(folder / "b" / "site.toml", data='"data.csv"')


def test_a_sites_error_text_stays_at_the_site(silos, tmp_path):
    folder, says = federation(tmp_path / "fed", silos, limits=True, **RUN), []
    secret_csv(folder, silos)
    grid = InProcessGrid(nodes(folder))
    heard = []
    grid.spoil = lambda site, message, reply: heard.append(repr(reply.content)) or reply
    coordinate(folder, grid, says)
    everything = "\n".join([*says, *heard, (folder / "server" / "ledger.jsonl").read_text()])
    assert "Jane" not in everything and str(folder / "b") not in everything and "data.csv" not in everything
    assert "data: the site cannot read its data" in everything
    assert "Jane Doe 1961-03-04" in (folder / "b" / "site.log").read_text()
    assert (folder / "b" / "site.log").stat().st_mode & 0o077 == 0


def test_an_unexpected_error_is_a_code_too(silos, tmp_path, monkeypatch):
    folder = federation(tmp_path / "fed", silos, limits=True, **RUN)

    def breaks(*args):
        raise MemoryError("at row 17: Jane Doe")

    monkeypatch.setattr("fedsac.federation.site.read_data", breaks)
    reply = Site(folder / "a").answer(ordered(folder, Order("join", 0, "t", {})))
    assert reply.facts == {"declined": "failed"}
    assert "KeyError" in (folder / "a" / "site.log").read_text()


@pytest.mark.parametrize("code", ["Jane Doe", 7, None, {"a": 1}, "batch "])
def test_a_code_that_is_none_is_not_repeated(code):
    assert shown(code) == "declined for an unknown reason"


# -- what of a model leaves a site


def test_units_that_few_samples_activate_go_back_as_they_came():
    layout = Layout((2, 3, 2))
    start = Network(layout, torch.zeros(layout.parameters, dtype=torch.float64))
    (weight, bias), (out, _) = layout.views(start.params)
    weight[0], bias[:] = torch.tensor([1.0, 1.0, -1.0]), torch.tensor([0.0, -3.5, 0.0])
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    # Units 0, 1 and 2 are activated by 4, 1 and 1 of the samples.
    trained = Network(layout, start.params + 0.125)
    sent = disclosed(start, trained, x, 2, 0.0)
    (new, new_bias), (new_out, new_out_bias) = layout.views(sent.params)
    assert torch.equal(new[:, 0], weight[:, 0] + 0.125) and torch.equal(new_out[0], out[0] + 0.125)
    assert torch.equal(new[:, 1:], weight[:, 1:]) and torch.equal(new_bias[1:], bias[1:])
    assert torch.equal(new_out[1:], out[1:]) and bool((new_out_bias == 0.125).all())
    assert torch.equal(disclosed(start, trained, x, 0, 0.0).params, trained.params)


def test_blur_is_as_long_as_it_says_and_never_the_same():
    layout = Layout((64, 200, 10))
    start = Network(layout, torch.zeros(layout.parameters, dtype=torch.float64))
    trained = Network(layout, torch.full((layout.parameters,), 0.01, dtype=torch.float64))
    x = torch.ones(20, 64, dtype=torch.float64)
    one, other = (disclosed(start, trained, x, 0, 0.01).params - trained.params for _ in range(2))
    length = float(trained.params.norm())
    (weight, bias), _ = layout.views(one)
    per_unit = torch.cat([weight, bias[None]]).norm(dim=0)
    assert float(per_unit.mean()) == pytest.approx(0.01 * length, rel=0.03)
    assert abs(float(one @ other)) / float(one.norm() * other.norm()) < 0.05


def test_secure_noise_is_normal():
    drawn = secure_normal(200_001)
    assert drawn.shape == (200_001,) and bool(drawn.isfinite().all())
    assert abs(float(drawn.mean())) < 0.02 and float(drawn.std()) == pytest.approx(1, abs=0.02)
    assert float((drawn.abs() > 1.959964).double().mean()) == pytest.approx(0.05, abs=0.004)


# -- differential privacy

OPACUS = [  # probability of a draw, noise, steps, delta; epsilon by Opacus 1.6.0 (its RDP analysis, orders 2 to 256)
    (256 / 60000, 1.1, 14063, 1e-5, 2.59707951965708),
    (0.01, 1.0, 1000, 1e-5, 2.107753075451561),
    (32 / 400, 1.5, 400, 1e-3, 4.715138500289327),
    (1.0, 5.0, 100, 1e-5, 10.801691480042896),
    (32 / 150, 2.0, 420, 1e-5, 13.310680747574096),
]


@pytest.mark.parametrize(("q", "noise", "steps", "delta", "expected"), OPACUS)
def test_epsilon_is_opacus(q, noise, steps, delta, expected):
    found = accountant.epsilon([steps * d for d in accountant.step_divergence(q, noise)], delta)
    assert found == pytest.approx(expected, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(q=st.floats(0.001, 1), noise=st.floats(0.5, 10), steps=st.integers(1, 1000))
def test_epsilon_grows_with_steps_and_draws_and_falls_with_noise(q, noise, steps):
    def epsilon(q, noise, steps):
        return accountant.epsilon([steps * d for d in accountant.step_divergence(q, noise)], 1e-5)

    here = epsilon(q, noise, steps)
    assert 0 <= here <= epsilon(q, noise, 2 * steps) + 1e-12
    assert here <= epsilon(min(1.0, 1.5 * q), noise, steps) + 1e-9
    assert epsilon(q, 2 * noise, steps) <= here + 1e-12


def test_clipped_gradients_by_hand():
    """Without noise, with every sample drawn: the step is the mean of the clipped gradients, each computed alone."""
    torch.manual_seed(0)
    layout, n = Layout((3, 4, 2)), 6
    start = Network(layout, torch.randn(layout.parameters, dtype=torch.float64))
    x, y = 5 * torch.randn(n, 3, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 1, 0])
    total = torch.zeros_like(start.params)
    for one, label in zip(x, y, strict=True):
        params = start.params.clone().requires_grad_()
        torch.nn.functional.cross_entropy(Network(layout, params).logits(one[None]), label[None]).backward()
        total += params.grad * min(1.0, 0.7 / float(params.grad.norm()))
    how = privacy.PrivateTraining(steps=1, batch=n, lr=0.3, clip=0.7, noise=0.0)
    found = privacy.train_privately(start, x, y, how).params
    assert torch.allclose(found, start.params - 0.3 * total / n, atol=1e-12)


def test_noise_is_a_multiple_of_clip():
    layout, n = Layout((40, 100, 10)), 50
    start = Network(layout, torch.zeros(layout.parameters, dtype=torch.float64))
    x, y = torch.zeros(n, 40, dtype=torch.float64), torch.zeros(n, dtype=torch.int64)
    how = privacy.PrivateTraining(steps=1, batch=n, lr=1.0, clip=2.0, noise=3.0)
    moved = n * (privacy.train_privately(start, x, y, how).params - start.params)
    assert float(moved.std()) == pytest.approx(6.0, rel=0.05)


def test_a_private_site_takes_part_counts_its_epsilon_and_stops_at_its_limit(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, limits=True, **RUN | {"rounds": 3})
    edit(folder / "b" / "site.toml", clip=1.0, noise=2.0)
    q, steps = 32 / 150, 20
    divergences = [(60 + 2 * steps) * d for d in accountant.step_divergence(q, 2.0)]
    after_two = accountant.epsilon(divergences, 1e-5)
    edit(folder / "b" / "site.toml", most_epsilon=after_two + 1e-6)
    found = coordinate(folder)
    assert ["b" in record["answered"] for record in found.records] == [True, True, False]
    assert {body["reason"] for body in of_kind(folder, "refused")} == {shown("epsilon")}
    assert privacy.spent(folder / "b") == pytest.approx(after_two) and privacy.spent(folder / "a") is None
    assert f"epsilon {after_two:.3f}" in (folder / "b" / "site.log").read_text()


def test_a_private_site_reports_no_losses(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, limits=True, **RUN | {"rounds": 1, "method": "qffl"})
    edit(folder / "b" / "site.toml", clip=1.0, noise=2.0)
    coordinate(folder)
    assert {body["reason"] for body in of_kind(folder, "refused")} == {shown("losses")}


@pytest.mark.parametrize(
    "change",
    [{"clip": 1.0}, {"noise": 1.0}, {"clip": -1.0, "noise": 1.0}, {"delta": 0.0}, {"blur": -0.1}, {"least_batch": -1}],
)
def test_limits_that_are_none_are_one_line(change, silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, limits=True, **RUN)
    edit(folder / "a" / "site.toml", **change)
    with pytest.raises(FedsacError, match=r"site\.toml"):
        SiteSettings.load(folder / "a")
