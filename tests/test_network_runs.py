"""Runs with networks that are no perceptrons, in the engine that runs use."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save
from torch import nn
from torch.nn import functional

import fedsac
from fedsac.clients.training import Job, _batches, train
from fedsac.compute import evaluation
from fedsac.compute.modules.inputs import augmented
from fedsac.compute.modules.scoring import Scorer
from fedsac.compute.modules.stacked_training import train_stacked
from fedsac.compute.modules.training import train_modules
from fedsac.config import Config
from fedsac.core.aggregation import aggregate_submodels
from fedsac.core.module_layout import ModuleLayout
from fedsac.doors import METHODS
from fedsac.models.batch_norm import with_statistics_of
from fedsac.models.files import ModelFile, serialised_bytes
from fedsac.models.module_network import ModuleNetwork
from fedsac.rng import stream
from fedsac.runs.setup import prepare

TINY = Config(network="tests.networks:tiny", clients=3, rounds=2, local_steps=3, scene="iid", samples_per_client=60)
DOUBLE = TINY.replace(dtype="float64")


def some_masks(layout: ModuleLayout, count: int, seed: int = 0) -> torch.Tensor:
    """Random masks of units, none of which leaves a group empty."""
    rng = torch.Generator().manual_seed(seed)
    masks = torch.rand(count, layout.neurons, generator=rng) < 0.5
    return layout.completed(masks, torch.rand(layout.neurons, generator=rng))


def inputs_of(prepared, rows):
    samples = prepared.clients.pool
    return (samples.x[rows].double() * samples.scale + samples.shift).reshape(-1, 1, 8, 8)


def steps_by_torch(module, batches, optimiser, clip=None, changes=None):
    """Plain training by torch's own optimiser."""
    module.train()
    losses = []
    for k, (x, y) in enumerate(batches):
        x = x if changes is None else augmented(x, torch.from_numpy(changes[k]))
        loss = functional.cross_entropy(module(x), y)
        optimiser.zero_grad()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimiser.step()
        losses.append(float(loss.detach()))
    return sum(losses) / len(losses)


@pytest.mark.parametrize(
    "recipe",
    [
        {},
        {"momentum": 0.9, "weight_decay": 0.01},
        {"clip": 0.5},
        {"augment": "flip+crop"},
        {"lr_schedule": "cosine"},
        {"batch_norm": "running"},
        {"batch_norm": "frozen"},
    ],
    ids=lambda recipe: "+".join(recipe) or "plain",
)
def test_clients_train_their_submodel_as_a_plain_loop_does(recipe):
    """Each client's masked training in the engine, against torch's SGD on the module that was cut out for it."""
    config = DOUBLE.replace(**recipe)
    (prepared,) = prepare([config])
    layout, clients = prepared.layout, prepared.clients
    masks = some_masks(layout, 3)
    job = Job(clients, prepared.initial.unsqueeze(0), masks, (3, 2, 3), "batches", 1, progress=0.5)
    (trained,) = train([job])
    lr = config.lr * (0.5 if config.lr_schedule == "cosine" else 1)
    for i, name in enumerate(clients.names):
        module = fedsac.smaller(layout.template, layout.table, masks[i]).double()
        if config.batch_norm == "frozen":
            for part in module.modules():
                if isinstance(part, nn.BatchNorm2d):
                    part.train = lambda mode=True, part=part: nn.Module.train(part, False)
        rng = stream(config.seed, "batches", 1, name)
        order = np.concatenate([rng.permutation(60)[:32] for _ in range(3)])
        rows = [torch.from_numpy(clients.rows[i][order[k * 32 : k * 32 + 32]]) for k in range(job.steps[i])]
        batches = [(inputs_of(prepared, own), clients.pool.y[own]) for own in rows]
        changes = None
        if config.augment:
            draws = stream(config.seed, "augmentation", "batches", 1, name)
            flips = draws.integers(2, size=(job.steps[i], 32))
            shifts = [draws.integers(-1, 2, size=(job.steps[i], 32)) for _ in range(2)]
            changes = np.stack([flips, *shifts], -1)
        optimiser = torch.optim.SGD(
            module.parameters(), lr=lr, momentum=config.momentum, weight_decay=config.weight_decay
        )
        loss = steps_by_torch(module, batches, optimiser, config.clip, changes)
        expected = module.state_dict()
        got = ModuleNetwork(layout, masks[i], layout.table.extract(layout.state(trained.models[i]), masks[i])).tensors
        assert float(trained.losses[i]) == pytest.approx(loss, abs=1e-10)
        for key, tensor in got.items():
            if "running" in key and config.batch_norm == "validation":
                continue  # left as they were: measured anew before anything is scored
            if tensor.is_floating_point():
                assert (tensor - expected[key]).abs().max() < 1e-10, key
        outside = ~layout.held(masks[i])
        assert torch.equal(trained.models[i][outside], prepared.initial[outside])


@pytest.mark.parametrize(
    "recipe",
    [
        {"momentum": 0.9, "weight_decay": 0.01, "clip": 0.5, "augment": "flip+crop"},
        {"batch_norm": "running"},
        {"batch_norm": "frozen"},
    ],
    ids=str,
)
def test_a_stack_by_vmap_trains_as_one_by_one_does(recipe):
    """What a GPU does with many members at a time, here on a CPU: fewer steps and smaller batches of some included."""
    (prepared,) = prepare([DOUBLE.replace(**recipe)])
    layout, clients = prepared.layout, prepared.clients
    clients = replace(clients, rows=(clients.rows[0][:20], *clients.rows[1:]))
    masks, steps = some_masks(layout, 3), (2, 3, 1)
    job = Job(clients, prepared.initial.unsqueeze(0), masks, steps, "batches", 0)
    drawn = _batches([job], torch.device("cpu"), torch.float64)
    sent = layout, job.models, masks, clients.pool, drawn, torch.full((3,), 0.1, dtype=torch.float64)
    (models, losses), (stacked, stacked_losses) = train_modules(*sent), train_stacked(*sent)
    assert (losses - stacked_losses).abs().max() < 1e-10
    assert (models - stacked).abs().max() < 1e-10


def test_a_stack_by_vmap_scores_as_one_by_one_does():
    (prepared,) = prepare([DOUBLE])
    layout, masks = prepared.layout, some_masks(prepared.layout, 5)
    scorer = Scorer(layout, prepared.initial.unsqueeze(0), masks, prepared.test)
    logits = torch.empty(5, len(prepared.test.y), 10, dtype=torch.float64)
    for members, rows, some, _ in scorer.stacked(5):
        logits[members, rows] = some
    for i in range(5):
        one = torch.cat([own for _, own, _ in scorer.logits(i)])
        assert (one - logits[i]).abs().max() < 1e-10


def test_what_is_scored_is_what_is_cut_out():
    """Masked submodels in the engine's evaluation, against the modules of their own that clients are paid with."""
    (prepared,) = prepare([DOUBLE])
    layout, test = prepared.layout, prepared.test
    model = prepared.initial + 0.3 * torch.randn(layout.parameters, generator=torch.Generator().manual_seed(1)).double()
    masks = some_masks(layout, 4)
    scores, losses = evaluation.evaluate(layout, model.unsqueeze(0), masks, test)
    x = (test.x.double() * test.scale + test.shift).reshape(-1, 1, 8, 8)
    v = prepared.validation
    on_v = (v.x.double() * v.scale + v.shift).reshape(-1, 1, 8, 8)
    for i, mask in enumerate(masks):
        state = layout.table.extract(layout.state(model), mask)
        module = fedsac.smaller(layout.template, layout.table, mask).double()
        module.load_state_dict(state)
        module = with_statistics_of(module, on_v).eval()
        paid = ModuleNetwork.of_vector(layout, model, mask).module()
        with torch.no_grad():
            logits = module(x)
            assert (paid(x) - logits).abs().max() < 1e-10
        assert float(losses[i]) == pytest.approx(float(functional.cross_entropy(logits, test.y)), abs=1e-10)
        assert float(scores[i]) == float((logits.argmax(1) == test.y).double().mean())


@pytest.mark.parametrize("trained_by", [train_modules, train_stacked], ids=["one by one", "stack"])
def test_what_is_not_held_is_never_looked_at(trained_by):
    """A canary: NaN in every entry that a client does not hold changes nothing of what it trains or is scored."""
    (prepared,) = prepare([DOUBLE])
    layout, masks = prepared.layout, some_masks(prepared.layout, 3)
    held = layout.held(masks)
    spoilt = torch.where(held, prepared.initial, torch.nan)
    job = Job(prepared.clients, spoilt, masks, (2, 2, 2), "batches", 0)
    drawn = _batches([job], torch.device("cpu"), torch.float64)
    lr = torch.full((3,), 0.1, dtype=torch.float64)
    clean = prepared.initial.expand(3, -1)
    (got, losses), (expected, _) = (
        trained_by(layout, models, masks, prepared.clients.pool, drawn, lr) for models in (spoilt, clean)
    )
    assert losses.isfinite().all() and torch.equal(got[held], expected[held]) and got[~held].isnan().all()
    scores = [evaluation.evaluate(layout, models, masks, prepared.test)[1] for models in (spoilt, clean)]
    assert torch.equal(*scores)
    for i, mask in enumerate(masks):
        assert all(t.isfinite().all() for t in ModuleNetwork.of_vector(layout, spoilt[i], mask).state().values())


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_no_group_is_ever_empty_and_submodels_stay_nested(seed):
    """However importance falls; the bytes of a submodel are those of its parameters."""
    layout = prepare_once()
    rng = torch.Generator().manual_seed(seed)
    importance = torch.randn(layout.neurons, generator=rng).double() ** 3
    contributions = torch.rand(5, generator=rng).double()
    r = fedsac.reputation(contributions, 20.0)
    masks = layout.completed(fedsac.allocate(importance, r), importance)
    for mask in masks:
        layout.table.check(mask)
    ordered = masks[contributions.argsort()]
    assert (ordered[:-1] <= ordered[1:]).all() and ordered[-1].all()
    sizes = [shape.parameters for shape in layout.submodels(masks)]
    assert sizes == layout.held(masks).sum(1).tolist()


@cache
def prepare_once() -> ModuleLayout:
    return prepare([TINY])[0].layout


def test_a_holder_mean_by_hand():
    (prepared,) = prepare([DOUBLE])
    layout = prepared.layout
    masks = some_masks(layout, 3)
    models = torch.randn(3, layout.parameters, dtype=torch.float64)
    new = layout.views(aggregate_submodels(layout, models, masks, prepared.initial))
    views, before = layout.views(models), layout.views(prepared.initial)
    slots = {name: layout.table.axes.get(name, ()) for name in layout.names}

    def held(client, name, entry):
        units = [int(s[e]) for s, e in zip(slots[name], entry, strict=False) if s is not None]
        return all(unit < 0 or bool(masks[client, unit]) for unit in units)

    for name in ("0.weight", "1.running_var", "3.first.weight", "5.weight", "7.bias"):
        for entry in np.ndindex(*before[name].shape):
            own = [float(views[name][(i, *entry)]) for i in range(3) if held(i, name, entry)]
            expected = sum(own) / len(own) if own else float(before[name][entry])
            assert float(new[name][entry]) == pytest.approx(expected, abs=1e-12)


def test_rewards_are_files_that_load_without_this_package(tmp_path):
    result = fedsac.run(TINY, tmp_path / "run")
    layout = result.layout
    sizes = []
    for i, name in enumerate(result.clients):
        path = tmp_path / "run" / "rewards" / f"{name}.safetensors"
        state = load_file(path)
        loaded = ModelFile.load(path, TINY.network)
        module = loaded.network.module()
        assert type(module) is type(layout.template)
        module.load_state_dict(state)
        assert sum(t.numel() for t in state.values() if t.is_floating_point()) == result.last["parameters"][i]
        shape = layout.smaller(loaded.network.units)
        assert shape.neurons == result.last["neurons"][i]
        assert serialised_bytes(shape, torch.float32) == len(save(state))
        sizes.append(serialised_bytes(shape, torch.float32))
    assert result.reward_bytes["serialised"] == sum(sizes)
    # What is paid scores what was reported.
    prepared = prepare([TINY])[0]
    right = loaded.probabilities(prepared.split.x_test).argmax(1) == prepared.split.y_test
    assert right.mean() == pytest.approx(result.rewards[-1])


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_runs(method):
    """Two rounds of a convolutional network with batch norm; no group of units is ever empty."""
    result = fedsac.run(TINY.replace(method=method))
    assert len(result.records) == 2 and all(0 <= reward <= 1 for reward in result.rewards)
    for network in result.reward_models:
        result.layout.table.check(network.units)


@pytest.mark.parametrize("contribution", ["leave-one-out", "shapley", "cosine", "shapfed"])
def test_every_measure_of_contribution_runs(contribution):
    result = fedsac.run(TINY.replace(contribution=contribution, rounds=1))
    assert result.contributions.deciding is not None and len(result.contributions.deciding) == 3


@pytest.mark.parametrize("network", ["small_text", "small_lora"])
def test_a_transformer_and_its_adapters(network):
    config = TINY.replace(network=f"tests.networks:{network}", data="tests.networks:sentences", local_steps=20, lr=0.5)
    result = fedsac.run(config)
    groups = [group.name for group in result.layout.table.groups]
    if network == "small_lora":
        assert groups == ["blocks.0.attention.query.a", "blocks.0.attention.value.a"]
        initial = prepare([config])[0].initial
        fixed = result.layout.views(initial)["blocks.0.up.weight"]
        assert torch.allclose(result.global_model.state()["blocks.0.up.weight"], fixed, rtol=1e-6)  # a mean of equals
    else:
        assert any("up" in name for name in groups) and any("attention" in name for name in groups)
    assert max(result.rewards) > 0.55


def test_resumed_ends_with_the_same_bytes(tmp_path):
    config = TINY.replace(rounds=3, momentum=0.5, augment="flip", network="tests.networks:tiny")
    fedsac.run(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fedsac.run(config, tmp_path / "cut", watcher=Stop())
    fedsac.resume(tmp_path / "cut")
    for name in ("rounds.jsonl", "summary.json", "global.safetensors", "rewards/client-01.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


class Stop(fedsac.Watcher):
    def round(self, run, record):
        if record["round"] == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("network", ["dropping", "dropping_itself"])
def test_dropout_draws_from_each_clients_own_stream(network):
    """The same numbers however clients are grouped, and torch's own generator is left alone."""
    config = TINY.replace(network=f"tests.networks:{network}", method="fedavg")
    before = torch.get_rng_state()
    alone = fedsac.run(config)
    assert torch.equal(torch.get_rng_state(), before)
    together = fedsac.run_together([config.replace(method="fedsac"), config])[1]
    assert alone.records == together.records


def test_a_perceptron_with_momentum_is_still_one(tmp_path):
    """It goes the way of any network, starts from the same weights, and its rewards are files as ever."""
    plain, momentum = prepare(
        [TINY.replace(network="mlp", hidden=(8,)), TINY.replace(network="mlp", hidden=(8,), momentum=0.5)]
    )
    assert isinstance(momentum.layout, ModuleLayout) and momentum.layout.hidden == (8,)
    start = fedsac.Network(plain.layout, plain.initial).state()
    assert all(torch.equal(start[name], t) for name, t in momentum.layout.views(momentum.initial).items())
    result = fedsac.run(momentum.config, tmp_path / "run")
    assert isinstance(result.global_model, fedsac.Network)
    facts = json.loads((tmp_path / "run" / "summary.json").read_text())
    loaded = ModelFile.load(tmp_path / "run" / "rewards" / "client-01.safetensors")
    right = loaded.probabilities(momentum.split.x_test).argmax(1) == momentum.split.y_test
    assert right.mean() == pytest.approx(facts["rewards"][0])


def test_the_two_paths_train_a_perceptron_alike():
    """Its own kernels, and the way of any network."""
    config = DOUBLE.replace(network="mlp", hidden=(8, 7))
    plain, general = prepare([config, config.replace(clip=1e9)])
    jobs = [Job(p.clients, p.initial.unsqueeze(0), None, (3, 3, 3), "batches", 0) for p in (plain, general)]
    one, other = train(jobs)
    for i in range(3):
        state = fedsac.Network(plain.layout, one.models[i]).state()
        for name, tensor in general.layout.views(other.models[i]).items():
            assert (state[name] - tensor).abs().max() < 1e-10


def test_a_unit_that_costs_more_is_given_earlier():
    """With `by_cost`, units are given by importance for each of their parameters."""
    result = fedsac.run(TINY.replace(options={"by_cost": True}))
    assert len(result.records) == 2
    (prepared,) = prepare([TINY])
    costs = prepared.layout.costs
    # A channel of the stem: 9 weights, bias, four of batch norm, 5 x 9 inner readers, 5 x 9 + 1 that write to it, 16
    # pixels read by 8 neurons.
    assert costs[0] == 9 + 1 + 4 + 45 + 46 + 128


@pytest.mark.parametrize(
    ("network", "data"),
    [
        ("resnet18:4", "digits"),
        ("resnet18-gn:4", "digits"),
        ("text:20", "tests.networks:sentences"),
        ("text-lora:20", "tests.networks:sentences"),
        pytest.param("vit-tiny", "digits", marks=pytest.mark.slow),
    ],
)
def test_the_shipped_networks_run(network, data, tmp_path):
    """One round; what the least contributor is paid is smaller than the whole, and scores what was reported."""
    options = {"importance_samples": 8, "first_order": network in ("vit-tiny", "text:20")}  # of many units
    config = TINY.replace(network=network, data=data, rounds=1, local_steps=1, options=options, beta=50.0)
    result = fedsac.run(config, tmp_path / "run")
    least = int(np.argmin(result.contributions.validation))
    assert result.last["parameters"][least] < result.layout.parameters
    loaded = ModelFile.load(tmp_path / "run" / "rewards" / f"{result.clients[least]}.safetensors")
    prepared = prepare([config])[0]
    right = loaded.probabilities(prepared.split.x_test).argmax(1) == prepared.split.y_test
    assert right.mean() == pytest.approx(result.rewards[least])
