"""Networks that are no perceptrons over Flower: earned submodels, in one process, with messages as on the wire."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("flwr")

import fedsac
from fedsac import Config
from fedsac.cli import main
from fedsac.core.module_layout import ModuleLayout
from fedsac.errors import FedsacError
from fedsac.federation import admission
from fedsac.federation.declining import DeclinedError
from fedsac.federation.folder import Federation, SiteSettings
from fedsac.federation.module_disclosure import module_disclosed
from fedsac.federation.networks import built_here, first_units, received_vector, structure
from fedsac.federation.verifying import verify
from fedsac.federation.wire import submodel
from fedsac.models.files import ModelFile
from fedsac.models.start import NetworkSpec, initial_network
from tests.flower_grid import SIZES, InProcessGrid, coordinate, coordinator, federation, nodes, of_kind, order_of
from tests.networks import sentences, tiny
from tests.test_flower_server import signed_again

TINY, TEXT, LORA = "tests.networks:tiny", "tests.networks:small_text", "tests.networks:small_lora"
RUN = {"rounds": 3, "local_steps": 4, "batch": 20, "lr": 0.2, "standalone_steps": 30, "seed": 3, "dtype": "float64"}


def silos_of(folder, x, y, sizes):
    folder.mkdir()
    start = 0
    for name, size in sizes.items():
        np.savez(folder / f"{name}.npz", x=x[start : start + size], y=y[start : start + size])
        start += size
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """The digits as images of 8 x 8 pixels."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(7).permutation(len(y))
    sizes = {"a": 40, "b": 60, "c": 150, "validation": 120, "test": 100}
    return silos_of(tmp_path_factory.mktemp("images") / "silos", x[order].reshape(-1, 8, 8), y[order], sizes)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    x, y = sentences()
    sizes = {"a": 40, "b": 50, "c": 90, "validation": 60, "test": 60}
    return silos_of(tmp_path_factory.mktemp("texts") / "silos", x.astype(np.float64), y, sizes)


def federated(folder, silos, network, *, limits=False, settings="", **run):
    """A federation with a network that its sites have allowed."""
    made = federation(folder, silos, settings=f'model = "{network}"\n{settings}', limits=limits, **RUN | run)
    for name in SIZES:
        allow(made / name, network)
    return made


def allow(site, network):
    toml = site / "site.toml"
    toml.write_text(toml.read_text().replace('model = ""', f'model = "{network}"'))


def tensors_of(path):
    return ModelFile.load(path, SiteSettings.load(path.parent).model or None).network.state()


@pytest.mark.parametrize("method", ["fedsac", "fedavg", "fedsac-plus"])
@pytest.mark.parametrize("network", [TINY, TEXT, LORA])
def test_agrees_with_the_local_engine(network, method, images, texts, tmp_path):
    silos, settings = (images if network == TINY else texts), {"method": method}
    if network == TINY:
        settings |= {"momentum": 0.5, "augment": "flip+crop", "lr_schedule": "cosine"}
    folder = federated(tmp_path / "fed", silos, network, **settings)
    found = coordinate(folder)
    local = fedsac.run(Config(data=str(silos), network=network, **RUN | settings))
    assert isinstance(found.prepared.layout, ModuleLayout) and found.prepared.layout == local.layout
    assert [m.validation for _, m in sorted(found.members.items())] == list(local.contributions.validation)
    for ours, theirs in zip(found.records, local.records, strict=True):
        assert ours["neurons"] == theirs["neurons"] and ours["bytes"] == theirs["bytes"]
    if method == "fedsac":
        assert min(found.records[-1]["neurons"]) < found.prepared.layout.neurons
    whole = found.prepared.layout.views(found.state["model"])
    statistics = {name for name in whole if "running_" in name}
    for name, tensor in local.global_model.state().items():
        if name in whole and name not in statistics:
            assert (tensor - whole[name]).abs().max() <= 1e-9, name
    for name, reward in zip(local.clients, local.reward_models, strict=True):
        delivered, wanted = tensors_of(folder / name / "reward.safetensors"), reward.state()
        assert delivered.keys() == wanted.keys()
        # After the extra epoch of fedavg, a site has no validation data to measure statistics on.
        for part in wanted.keys() - (statistics if method == "fedavg" else set()):
            assert delivered[part].shape == wanted[part].shape
            assert (delivered[part] - wanted[part]).abs().max() <= 1e-9, part
    assert len(verify(Federation.load(folder))) == 2 + 3 * (2 if method == "fedavg" else 3)


def test_bytes_on_the_wire_are_the_submodels_and_a_stated_overhead(images, tmp_path):
    """As for perceptrons; and a message has the tensors of the submodel, each once, and no counters."""
    counted = {}
    for method in ("fedsac", "fedavg"):
        folder = federated(tmp_path / method, images, TINY, method=method)
        grid = InProcessGrid(nodes(folder))
        found = coordinate(folder, grid)
        sent = [body for body in of_kind(folder, "sent") if body["what"] == "round"]
        for body in sent:
            for site in body["sites"].values():
                assert set(site["arrays"]) == set(found.prepared.layout.names)
                assert site["payload"] == 8 * sum(int(np.prod(shape)) for shape in site["arrays"].values())
                assert 0 < site["bytes"] - site["payload"] <= 1500 + 500 * len(site["arrays"]) + 700
        counted[method] = sum(site["bytes"] for body in sent for site in body["sites"].values())
        assert [sum(s["payload"] for s in body["sites"].values()) for body in sent] == [
            record["bytes"]["down"] for record in found.records
        ]
        for name, messages in grid.sent.items():
            written = [body["sites"][name]["bytes"] for body in of_kind(folder, "sent") if name in body["sites"]]
            assert written == [len(message) for message in messages]
        if method == "fedsac":
            for name in SIZES:
                receipt = json.loads((folder / name / "receipt.json").read_text())["body"]
                rewarded = of_kind(folder, "sent")[-1]["sites"][name]
                assert rewarded["payload"] == 8 * receipt["parameters"] and rewarded["sha256"] == receipt["sha256"]
    assert counted["fedsac"] < counted["fedavg"]


def test_canaries_no_byte_holds_what_a_site_has_not_earned(images, tmp_path):
    """Every reply's numbers are replaced by values of their own; none reaches a site that lacks the unit."""
    folder = federated(tmp_path / "fed", images, TINY, settings="max_step = 1e12", batch_norm="running")
    rng = np.random.default_rng(1)

    def mark(site, message, reply):
        if order_of(message)["kind"] != "round":
            return reply
        arrays = reply.content.array_records["arrays"]
        marked = {name: rng.uniform(0.01, 0.1, array.numpy().shape) for name, array in arrays.items()}
        return signed_again(folder, site, reply, marked)

    grid = InProcessGrid(nodes(folder), spoil=mark)
    found = coordinator(folder, grid)
    looked = []

    def look(site, message):
        if order_of(message)["kind"] not in ("round", "reward") or order_of(message)["round"] == 0:
            return
        sent = grid.sent[site][-1]
        held = found.prepared.layout.held(found.method.assign(found.task, found.state).neurons)
        earned = held[found.clients.index(site)].tolist()
        for value, own in zip(found.state["model"].tolist(), earned, strict=True):
            assert (np.float64(value).tobytes() in sent) == own
        looked.append((site, sum(earned)))

    grid.before = look
    found.run()
    assert not of_kind(folder, "lost"), "what is asserted above would be taken for a site that raises"
    assert {site for site, _ in looked} == set(SIZES) and len(looked) == 9
    assert any(count < found.prepared.layout.parameters for _, count in looked)


STEM = "0.weight"
SPOILED = {
    "a shape of another submodel": (lambda a: a | {STEM: a[STEM][:-1]}, f"shape: {STEM}"),
    "a tensor that is missing": (lambda a: {k: v for k, v in a.items() if k != STEM}, f"names: '{STEM}' is missing"),
    "a counter": (lambda a: a | {"1.num_batches_tracked": np.array(3)}, "there is no array '1.num_batches_tracked'"),
    "NaN": (lambda a: a | {STEM: np.full_like(a[STEM], np.nan)}, f"finite: {STEM}"),
    "a variance below 0": (lambda a: a | {"1.running_var": -a["1.running_var"]}, "range: 1.running_var is below 0"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_malformed_replies_are_refused_and_the_round_goes_on(what, images, tmp_path):
    folder, (change, says) = federated(tmp_path / "fed", images, TINY, rounds=1), SPOILED[what]

    def spoil(site, message, reply):
        if (site, order_of(message)["kind"]) != ("b", "round"):
            return reply
        arrays = {name: array.numpy() for name, array in reply.content.array_records["arrays"].items()}
        return signed_again(folder, site, reply, change(arrays))

    found = coordinate(folder, InProcessGrid(nodes(folder), spoil=spoil))
    assert found.records[0]["answered"] == ["a", "c"]
    assert says in of_kind(folder, "refused")[0]["reason"]


# -- who builds which network


def wider(shape, classes):
    """Another network under the same parameters' names."""
    made = tiny(shape, classes)
    made[5], made[7] = torch.nn.Linear(6 * 16, 9), torch.nn.Linear(9, classes)
    return made


def smoother(shape, classes):
    """All tensors and units are alike, and one layer is another."""
    made = tiny(shape, classes)
    made[2] = torch.nn.GELU()
    return made


def planted(shape, classes):
    raise AssertionError("a site has run code that the coordinator named")


@pytest.mark.parametrize("other", ["wider", "smoother"])
def test_a_site_with_another_network_declines_with_both_hashes(other, images, tmp_path):
    folder = federated(tmp_path / "fed", images, TINY, rounds=1)
    toml = folder / "b" / "site.toml"
    toml.write_text(toml.read_text().replace(TINY, f"tests.test_federated_networks:{other}"))
    found = coordinate(folder)
    assert found.clients == ("a", "c")
    shape = (1, 8, 8)
    spec = NetworkSpec(64, 10, (), 3, torch.float64, image=shape)
    ours, theirs = (
        structure(initial_network(n, spec).layout) for n in (TINY, f"tests.test_federated_networks:{other}")
    )
    assert ours != theirs
    (refusal,) = of_kind(folder, "refused")
    log = (folder / "b" / "site.log").read_text()
    assert refusal["site"] == "b" and ours in refusal["reason"] and theirs in refusal["reason"]
    assert ours in log and theirs in log and "networks differ" in log
    assert not (folder / "b" / "agreed.json").exists()


def test_code_that_a_site_has_not_allowed_is_not_run(images, tmp_path):
    """What the coordinator names is never imported at a site; a built-in network needs no leave."""
    folder = federated(tmp_path / "fed", images, TINY, rounds=1)
    for name in SIZES:
        toml = folder / name / "site.toml"
        toml.write_text(toml.read_text().replace(f'model = "{TINY}"', 'model = ""'))
    terms = {"named": "tests.test_federated_networks:planted", "structure": "0" * 64}
    with pytest.raises(DeclinedError, match=r'write model = "tests.test_federated_networks:planted" in'):
        built_here(SiteSettings.load(folder / "a"), terms)
    with pytest.raises(FedsacError, match=r"0 site\(s\) in the federation, .*; a: network: the site builds"):
        coordinate(folder)
    assert "which this site has not allowed" in (folder / "a" / "site.log").read_text()
    assert built_here(SiteSettings.load(folder / "a"), {"named": "resnet18:8"}) == "resnet18:8"


def test_settings_that_name_code_are_declined(images, tmp_path, monkeypatch):
    """A coordinator that hides a factory among the settings of training, where a perceptron needs none."""
    folder = federation(tmp_path / "fed", images, **RUN | {"hidden": (8,), "rounds": 1})
    honest = admission.training_settings
    hidden = {"network": "tests.test_federated_networks:planted"}
    monkeypatch.setattr(admission, "training_settings", lambda config, layout: honest(config, layout) | hidden)
    with pytest.raises(FedsacError, match="a: settings: other settings of training"):
        coordinate(folder)
    log = (folder / "a" / "site.log").read_text()
    assert "network are decided on" in log and "AssertionError" not in log
    assert not (folder / "a" / "agreed.json").exists()


def test_the_hash_is_of_the_structure_alone():
    spec = NetworkSpec(64, 10, (), 3, torch.float64, image=(1, 8, 8))
    one = initial_network(TINY, spec).layout
    again = initial_network(TINY, replace(spec, seed=4, dtype=torch.float32)).layout
    assert structure(one) == structure(again)
    assert structure(one) != structure(initial_network(TINY, replace(spec, classes=9)).layout)
    assert structure(one) != structure(replace(one, table=one.table.only(lambda name: name == "0"), _slots={}))


# -- what else a run may have


def agreement(folder, silos, network="mlp", **settings):
    """The coordinator's model, and the largest difference to a local run's."""
    made = folder / "fed"
    if network == "mlp":
        federation(made, silos, **RUN | settings)
    else:
        federated(made, silos, network, **settings)
    found = coordinate(made)
    local = fedsac.run(Config(data=str(silos), network=network, **RUN | settings))
    for ours, theirs in zip(found.records, local.records, strict=True):
        assert ours["neurons"] == theirs["neurons"] and ours["answered"] == ["a", "b", "c"]
    worst = [0.0]
    for name, reward in zip(local.clients, local.reward_models, strict=True):
        delivered, wanted = tensors_of(made / name / "reward.safetensors"), reward.state()
        assert delivered.keys() == wanted.keys()
        worst += [float((delivered[part] - wanted[part]).abs().max()) for part in wanted]
    verify(Federation.load(made))
    return found, max(worst)


@pytest.mark.parametrize("method", ["qffl", "cffl", "cgsv", "fedave", "rffl", "iafl", "fedrac", "aequa", "standalone"])
def test_every_method_pays_with_any_network(method, images, tmp_path):
    """With dropout, whose numbers are drawn from the client's own stream in both engines; no batch norm."""
    settings = {"method": method}
    if method in ("cgsv", "cffl", "fedave", "rffl"):
        settings["options"] = {"reward_by": "own"}
    _, worst = agreement(tmp_path, images, "tests.networks:dropping", **settings)
    assert worst <= 1e-9


@pytest.mark.parametrize("more", [{"lr_schedule": "cosine"}, {"momentum": 0.5, "lr_schedule": "step"}])
def test_a_perceptron_with_a_schedule_or_momentum(more, images, tmp_path):
    """With a schedule alone it is sent as ever; with momentum it goes the way of any network, and is a file as ever."""
    found, worst = agreement(tmp_path, images, hidden=(12, 8), **more)
    assert worst <= 1e-9
    assert isinstance(found.prepared.layout, ModuleLayout) == ("momentum" in more)
    reward = ModelFile.load(tmp_path / "fed" / "a" / "reward.safetensors").network
    assert isinstance(reward, fedsac.Network)


def test_batch_norm_with_running_statistics_agrees_entirely(images, tmp_path):
    found, worst = agreement(tmp_path, images, TINY, batch_norm="running", method="fedavg")
    assert worst <= 1e-9
    moved = found.prepared.layout.views(found.state["model"] - found.prepared.initial)
    assert moved["1.running_mean"].abs().min() > 0


def test_methods_that_ask_for_losses_run_with_batch_norm(images, tmp_path):
    found = coordinate(federated(tmp_path / "fed", images, TINY, method="qffl", rounds=1))
    assert found.records[0]["answered"] == ["a", "b", "c"]


def test_killed_and_started_again(images, tmp_path):
    whole = coordinate(federated(tmp_path / "whole", images, TINY, momentum=0.5)).state["model"]
    folder = federated(tmp_path / "cut", images, TINY, momentum=0.5)

    class Killed(BaseException):
        pass

    def kill(site, message):
        if (order_of(message)["kind"], order_of(message)["round"]) == ("round", 2):
            raise Killed

    with pytest.raises(Killed):
        coordinate(folder, InProcessGrid(nodes(folder), before=kill))
    assert torch.equal(coordinate(folder).state["model"], whole)
    assert of_kind(folder, "resumed")


def test_a_reward_predicts_and_loads_without_this_package(images, tmp_path, capsys):
    folder = federated(tmp_path / "fed", images, TINY, rounds=2)
    coordinate(folder)
    for name in SIZES:
        path = folder / name / "reward.safetensors"
        assert main(["predict", str(path), str(images / "test.npz"), "--network", TINY]) == 0
        shown = float(re.search(r"accuracy (\S+)", capsys.readouterr().err).group(1).rstrip(","))
        receipt = json.loads((folder / name / "receipt.json").read_text())["body"]
        assert shown == pytest.approx(receipt["accuracy_test"], abs=5e-4)
        plain = load_file(path)
        assert plain.keys() == tiny((1, 8, 8), 10).state_dict().keys()
        assert sum(plain[n].numel() for n in plain if "num_batches" not in n) == receipt["parameters"]


# -- sites' own limits


def test_a_site_with_privacy_declines(images, tmp_path):
    folder = federated(tmp_path / "fed", images, TINY, rounds=1)
    toml = folder / "b" / "site.toml"
    toml.write_text(toml.read_text().replace("clip = 0.0", "clip = 1.0").replace("noise = 0.0", "noise = 1.0"))
    assert coordinate(folder).clients == ("a", "c")
    assert of_kind(folder, "refused")[0]["reason"].startswith("private: this site trains with differential privacy")


def test_an_order_for_another_submodel_is_declined(images, tmp_path):
    """Numbers of units that the network does not have, and tensors that do not fit them."""
    layout = initial_network(TINY, NetworkSpec(64, 10, (), 3, torch.float64, image=(1, 8, 8))).layout
    like = torch.zeros(1, dtype=torch.float64)
    for counts in ([0, 5, 8], [7, 5, 8], [6, 5], [6, 5, 8, 1]):
        with pytest.raises(DeclinedError, match="units came, and"):
            first_units(layout, counts)
    units = first_units(layout, [2, 3, 4])
    arrays = submodel(layout, torch.arange(1.0, layout.parameters + 1, dtype=torch.float64), units)
    assert received_vector(layout, units, arrays, like).count_nonzero() == layout.held(units).sum()
    spoiled = [
        {name: array for name, array in arrays.items() if name != STEM},
        arrays | {"more": np.zeros(1)},
        arrays | {STEM: arrays[STEM][:1]},
        arrays | {STEM: arrays[STEM].astype(np.float32)},
    ]
    for wrong in spoiled:
        with pytest.raises(DeclinedError, match="no submodel of the network"):
            received_vector(layout, units, wrong, like)


def test_words_of_few_samples_go_back_as_they_came():
    """An embedding's row changes by the samples that have its word: with fewer than least_rows, it is kept back."""
    x, _ = sentences()
    start = initial_network(TEXT, NetworkSpec(6, 2, (), 3, torch.float64))
    layout, params = start.layout, start.params
    assert isinstance(layout, ModuleLayout)
    rows, labels = torch.from_numpy(x[:40]), torch.from_numpy(sentences()[1][:40])
    trained = params + 1e-3 * torch.from_numpy(np.random.default_rng(0).standard_normal(len(params)))
    sent = module_disclosed(layout, (params, trained), None, (rows, labels), (12, 0.0))
    (table,) = [name for name, shape in zip(layout.names, layout.shapes, strict=True) if shape == (20, 16)]
    before, after = layout.views(params)[table], layout.views(sent)[table]
    count = [int((x[:40] == word).any(1).sum()) for word in range(20)]
    for word in range(1, 20):
        assert torch.equal(before[word], after[word]) == (count[word] < 12), word
    assert {count[word] < 12 for word in range(1, 20)} == {True, False}
    assert torch.equal(sent, module_disclosed(layout, (params, trained), None, (rows, labels), (12, 0.0)))


def test_blur_is_a_share_of_the_change_and_new_every_time():
    start = initial_network(TINY, NetworkSpec(64, 10, (), 3, torch.float64, image=(1, 8, 8)))
    layout, params = start.layout, start.params
    trained = params + 1e-3 * torch.from_numpy(np.random.default_rng(0).standard_normal(len(params)))
    nothing = torch.zeros(0, 1, 8, 8, dtype=torch.float64), torch.zeros(0, dtype=torch.int64)
    one, two = (module_disclosed(layout, (params, trained), None, nothing, (0, 0.5)) for _ in range(2))
    assert not torch.equal(one, two)
    length = float((trained - params).norm())
    noise = layout.views(one - trained)
    # Eight neurons, each with noise of about half of the change; 96 inputs each.
    assert float(noise["5.weight"].norm(dim=1).mean()) == pytest.approx(0.5 * length, rel=0.15)
    assert not noise["1.running_var"].any() and not noise["1.running_mean"].any()
    quiet = module_disclosed(layout, (params, trained), None, nothing, (0, 0.0))
    assert torch.equal(quiet, trained)


def test_with_a_sites_own_limits_it_still_learns(images, tmp_path):
    """The default limits, but for the number of samples: what is sent is less than what was trained."""
    folder = federated(tmp_path / "fed", images, TINY, limits=True, local_steps=5, rounds=1)
    for name in SIZES:
        toml = folder / name / "site.toml"
        toml.write_text(toml.read_text().replace("least_samples = 50", "least_samples = 40"))
    limited = coordinate(folder)
    free = coordinate(federated(tmp_path / "free", images, TINY, local_steps=5, rounds=1))
    assert limited.records[0]["answered"] == ["a", "b", "c"]
    difference = (limited.state["model"] - free.state["model"]).norm()
    assert 0 < difference < (free.state["model"] - free.prepared.initial).norm()


def test_the_simulation_deals_out_images(tmp_path):
    """Its sites read the images as the data set has them, and have allowed the network."""
    from fedsac.federation.simulation import deal_out

    config = Config(clients=3, network=TINY, momentum=0.5, **RUN | {"rounds": 1, "lr": 0.1})
    deal_out(config, tmp_path / "fed")
    found = coordinate(tmp_path / "fed")
    local = fedsac.run(config)
    assert found.prepared.layout.input.shape == (1, 8, 8) and found.records[0]["neurons"] == local.records[0]["neurons"]
    ours, theirs = found.prepared.layout.views(found.state["model"]), local.global_model.state()
    assert all((ours[name] - theirs[name]).abs().max() <= 1e-9 for name in ours if "running_" not in name)
