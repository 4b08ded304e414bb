"""Importance, allocation and aggregation for any network, against the perceptron's own and by hand."""

import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import fedsac
from fedsac.cli import main
from fedsac.compute.importance import first_order_importance
from fedsac.compute.unit_importance import unit_importance
from fedsac.errors import FedsacError
from fedsac.models.batch_norm import with_statistics_of
from fedsac.models.finding.by_hand import units_by_hand
from fedsac.models.finding.finder import find_units
from fedsac.models.finding.shrinking import smaller
from fedsac.models.network import Network
from fedsac.models.shipped.cnn import cnn
from fedsac.models.shipped.transformer import Attention, Block

RNG = torch.Generator().manual_seed(3)


def perceptron():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)).double()


X, Y = torch.randn(40, 6, generator=RNG, dtype=torch.float64), torch.randint(3, (40,), generator=RNG)


def test_exact_and_first_order_are_those_of_a_perceptron():
    model = perceptron()
    units = find_units(model, X[:2])
    torch.testing.assert_close(unit_importance(model, units, X, Y, exact=True), fedsac.importance(model, X, Y))
    torch.testing.assert_close(
        unit_importance(model, units, X, Y, exact=False), first_order_importance(Network.of(model), X, Y)
    )


@pytest.mark.parametrize("exact", [True, False])
def test_importance_leaves_the_model_as_it_is(exact):
    model = perceptron().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    unit_importance(model, find_units(model, X[:2]), X, Y, exact=exact)
    assert model.training and all(p.requires_grad and p.grad is None for p in model.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("make", [lambda: cnn((1, 16, 16), 3), lambda: nn.Sequential(Block(8, 2), nn.Linear(8, 3))])
def test_exact_importance_is_the_loss_without_the_unit(make):
    """By the other route: the extracted network's loss."""
    torch.manual_seed(1)
    model = make().double().eval()
    x = torch.randn(6, *((1, 16, 16) if isinstance(model[0], nn.Conv2d) else (5, 8)), dtype=torch.float64)
    y = torch.randint(3, (6,)) if x.ndim == 4 else torch.randint(3, (6, 5))

    def loss(outputs, targets):
        return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())

    units = find_units(model, x[:2])
    found = unit_importance(model, units, x, y, exact=True, loss=loss)
    with torch.no_grad():
        whole = loss(model(x), y)
        for unit in range(0, units.units, 7):
            mask = torch.ones(units.units, dtype=torch.bool)
            mask[unit] = False
            assert float(found[unit]) == pytest.approx(
                float(loss(smaller(model, units, mask)(x), y) - whole), abs=1e-10
            )


def test_allocation_is_nested_and_leaves_no_layer_empty():
    model = perceptron()
    units = find_units(model, X[:2])
    # All that matters is in the first layer: by Eq. 7 alone, the last client would hold the second layer only.
    importance = torch.tensor([5.0, 4, 3, 2, 1, 0, 0, 0, 0], dtype=torch.float64)
    masks = units.allocate(importance, [100, 50, 1])
    assert masks.tolist() == [
        [True] * 9,
        [False, False, True, True, True] + [True] * 4,  # shares 33, 27, 20, 13, 7: 7 + 13 + 20 fit into 50
        [False, False, False, False, True] + [True] * 4,  # the least important neuron of the first layer is added
    ]


def test_aggregation_is_the_mean_over_holders():
    """Two hidden neurons; both clients hold the first, one the second, nobody the third."""
    model = nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 2))
    units = find_units(model, torch.randn(2, 1))
    state = {name: torch.full_like(tensor, 9.0) for name, tensor in model.state_dict().items()}
    one, two = torch.tensor([True, False, False]), torch.tensor([True, True, False])
    sent = [
        (one, {k: torch.full_like(v, 1.0) for k, v in units.extract(state, one).items()}),
        (two, {k: torch.full_like(v, 4.0) for k, v in units.extract(state, two).items()}),
    ]
    new = units.aggregate(state, sent)
    assert new["0.weight"].tolist() == [[2.5], [4.0], [9.0]] and new["0.bias"].tolist() == [2.5, 4.0, 9.0]
    assert new["2.weight"].tolist() == [[2.5, 4.0, 9.0]] * 2 and new["2.bias"].tolist() == [2.5, 2.5]


def test_aggregation_agrees_with_the_perceptrons_own():
    model = perceptron()
    units, network = find_units(model, X[:2]), Network.of(model)
    masks = torch.rand(4, 9, generator=RNG) < 0.6
    masks[:, 0] = masks[:, 5] = True
    trained = [network.params + i for i in range(4)]
    expected = fedsac.aggregate(torch.stack(trained), network.layout.held(masks), network.params)
    states = [Network(network.layout, params).state() for params in trained]
    new = units.aggregate(model.state_dict(), [(m, units.extract(s, m)) for m, s in zip(masks, states, strict=True)])
    torch.testing.assert_close(Network.from_state(new).params, expected)


class Odd(nn.Module):
    """Control flow that depends on the data: it cannot be traced."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(6, 12), nn.Linear(4, 2)
        self.heads = 2

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        return self.out((q * k * v).flatten(-2)) if bool(x.sum() > -1e9) else x


def test_units_by_hand():
    model = Odd()
    with pytest.raises(FedsacError, match="Units by hand"):
        find_units(model, X[:2].float())
    written = {"heads": (2, {"qkv.weight": (0, 3), "qkv.bias": (0, 3), "out.weight": 1})}
    units = units_by_hand(model, written, X[:2].float())
    assert units.axes["qkv.weight"][0].tolist() == [0, 0, 1, 1] * 3
    small = smaller(model, units, torch.tensor([True, False]))
    assert small.heads == 1 and small.qkv.out_features == 6 and small.out.in_features == 2


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"heads": (2, {"qkv.weight": 0, "qkv.bias": 0, "out.weight": 1})}, "heads: the smaller network"),
        ({"heads": (5, {"qkv.weight": 0})}, "12 slots of qkv.weight are not 1 blocks of 5 units"),
        ({"heads": (2, {"qkv.wait": 0})}, "no tensor qkv.wait"),
        ({"heads": (2, {"qkv.bias": 1})}, "no tensor qkv.bias with an axis 1"),
    ],
)
def test_wrong_units_by_hand(written, message):
    with pytest.raises(FedsacError, match=message):
        units_by_hand(Odd(), written, X[:2].float())


def test_a_smaller_attention_is_an_ordinary_one():
    module = Attention(8, 4)
    units = find_units(module, torch.randn(2, 3, 8))
    small = smaller(module, units, torch.tensor([True, False, True, False]))
    assert small.query.out_features == 4 and small.head_width == 2


def test_batch_norm_of_a_submodel_measured_again():
    torch.manual_seed(4)
    model = nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.BatchNorm2d(4), nn.Flatten(),
        nn.Linear(64, 3),
    ).double()  # fmt: skip
    x = torch.randn(600, 2, 8, 8, dtype=torch.float64)
    units = find_units(model, x[:2])
    small = smaller(model, units, torch.tensor([True, True, False, False, True, False, True, True, True, False]))
    before = {name: tensor.clone() for name, tensor in small.state_dict().items()}
    found = with_statistics_of(small, x)
    assert all(torch.equal(before[name], tensor) for name, tensor in small.state_dict().items())
    # By hand: what reaches each batch norm, chunk by chunk.
    inner, means, variances = small[0](x), [], []
    for part in inner.chunk(2):
        means.append(part.mean((0, 2, 3)))
        variances.append(part.transpose(0, 1).flatten(1).var(1))
    torch.testing.assert_close(found[1].running_mean, torch.stack(means).mean(0))
    torch.testing.assert_close(found[1].running_var, torch.stack(variances).mean(0))
    assert found[1].momentum == 0.1 and int(found[1].num_batches_tracked) == 0 and found.training
    assert not torch.allclose(found[4].running_mean, small[4].running_mean)


# -- fedsac inspect


def test_inspect(capsys):
    assert main(["inspect", "cnn", "--input", "1,28,28"]) == 0
    said = capsys.readouterr().out
    assert "252 units" in said and "the network's output" in said and "The proof held" in said


def test_inspect_as_json(capsys):
    assert main(["inspect", "text:20", "--tokens", "20", "--input", "5", "--classes", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {g["name"]: g["units"] for g in found["groups"]} == {
        f"blocks.{i}.{name}": n for i in range(2) for name, n in (("attention.query", 4), ("up", 512))
    }
    # All but one of 512 hidden units of width 128: a row, a bias and a column each.
    assert found["groups"][1]["parameters"] == 511 * (128 + 1 + 128)


def failing(shape, classes):
    raise ValueError("no such thing")


def not_a_module():
    return 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resnt"], "did you mean resnet18"),
        (["resnet18:x"], "a whole number above 0"),
        (["cnn", "--input", "a"], "name the sizes of one sample"),
        (["cnn", "--input", "5,5"], "is for images"),
        (["cnn", "--classes", "0"], "at least 1"),
        ([f"{__name__}:failing"], "fails: ValueError: no such thing"),
        ([f"{__name__}:not_a_module"], "must return a torch module"),
    ],
)
def test_inspect_in_one_line(arguments, message, capsys):
    assert main(["inspect", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


# -- the page


def test_the_examples_of_the_page_run():
    page = (Path(__file__).resolve().parents[1] / "docs" / "any-network.md").read_text(encoding="utf-8")
    fair, by_hand = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    names = {}
    exec(compile(fair, "any-network.md", "exec"), names)
    counts = names["masks"].sum(1).tolist()
    assert counts[0] <= counts[1] < counts[2] == names["units"].units == 24
    exec(compile(by_hand, "any-network.md", "exec"), names)
    assert names["units"].units == 2
