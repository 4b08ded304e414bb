"""Exact importance without running again what comes before a unit, against passes of the whole network."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedsac.compute import replayed
from fedsac.compute.unit_importance import unit_importance
from fedsac.models.finding.by_hand import units_by_hand
from fedsac.models.finding.finder import find_units
from fedsac.models.shipped.cnn import cnn
from fedsac.models.shipped.resnet import resnet18


def plain(model, units, x, y):
    """The increase of the loss without each unit, by a pass of the whole network for each."""
    increases = []
    with torch.no_grad():
        whole = functional.cross_entropy(model.eval()(x), y)
        for unit in range(units.units):
            without = copy.deepcopy(model)
            for name, axis in units.readers:
                if name in dict(without.named_parameters()) and units.axes[name][axis] is not None:
                    at = (units.axes[name][axis] == unit).nonzero().squeeze(1)
                    without.get_parameter(name).index_fill_(axis, at, 0)
            increases.append(float(functional.cross_entropy(without(x), y) - whole))
    return torch.tensor(increases, dtype=torch.float64)


class Counting(nn.Linear):
    """A layer that counts how often it runs."""

    runs = 0

    def forward(self, x):
        Counting.runs += 1
        return super().forward(x)


class WritesIntoIt(nn.Module):
    """What a layer said is changed in place: by the next layer, and by a sum."""

    def __init__(self):
        super().__init__()
        self.first, self.swish = Counting(6, 5), nn.Hardswish(inplace=True)
        self.second, self.back, self.last = nn.Linear(5, 4), nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        h = self.swish(self.first(x))
        h += self.back(torch.tanh(self.second(h)))
        return self.last(h)


class Twice(nn.Module):
    """A layer that is called twice, and one with two outputs."""

    def __init__(self):
        super().__init__()
        self.first, self.again, self.last = Counting(6, 5), nn.Linear(5, 4), nn.Linear(4, 3)
        self.recurrent = nn.GRU(3, 3, batch_first=True)
        self.up, self.out = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = self.first(x)
        h = self.again(torch.tanh(h)) + self.again(torch.relu(h))
        said, _ = self.recurrent(self.last(torch.tanh(h)).unsqueeze(1))
        return self.out(torch.tanh(self.up(said.squeeze(1))))


class BehindItsBack(nn.Module):
    """The weight of a layer is used before the layer is called."""

    def __init__(self):
        super().__init__()
        self.up, self.middle, self.down = nn.Linear(6, 4), nn.Linear(6, 6), nn.Linear(4, 6)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        early = functional.linear(torch.relu(self.up(x)), self.down.weight)
        return self.out(torch.tanh(self.down(torch.relu(self.up(self.middle(early))))))


TWICE = {"first": (5, {"first.weight": 0, "first.bias": 0, "again.weight": 1})}
X, Y = torch.randn(300, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), torch.arange(300) % 3
IMAGES = torch.randn(5, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("make", [lambda: cnn((3, 16, 16), 3), lambda: resnet18((3, 16, 16), 3, 2), WritesIntoIt])
@pytest.mark.parametrize("kept", [1 << 30, 20_000])
def test_the_same_as_passes_of_the_whole_network(make, kept, monkeypatch):
    monkeypatch.setattr(replayed, "KEPT_BYTES", kept)  # the second keeps what some layers said, not all
    torch.manual_seed(1)
    model = make().double().eval()
    x, y = (X, Y) if isinstance(model, WritesIntoIt) else (IMAGES, torch.arange(5) % 3)
    units = find_units(model, x[:2])
    found, expected = unit_importance(model, units, x, y, exact=True), plain(model, units, x, y)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)
    assert expected.abs().max() > 1e-4


def test_in_inference_mode():
    torch.manual_seed(1)
    model = WritesIntoIt().double()
    units = find_units(model, X[:2])
    expected = plain(model, units, X, Y)
    with torch.inference_mode():
        found = unit_importance(model, units, X.clone(), Y, exact=True)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("make", "written"),
    [
        (Twice, {"up": (4, {"up.weight": 0, "up.bias": 0, "out.weight": 1})}),
        (Twice, TWICE),
        (BehindItsBack, {"up": (4, {"up.weight": 0, "up.bias": 0, "down.weight": 1})}),
    ],
)
def test_unusual_networks(make, written):
    torch.manual_seed(1)
    model = make().double()
    units = units_by_hand(model, written, X[:2])
    torch.testing.assert_close(unit_importance(model, units, X, Y, exact=True), plain(model, units, X, Y))


@pytest.mark.parametrize(
    ("make", "written", "runs"),
    [
        # Two chunks of samples; in the first, the start of each hidden layer is tried against a whole pass.
        (lambda: nn.Sequential(Counting(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)), None, 2 + 2),
        (WritesIntoIt, None, 2 + 2 + 1),  # once more, since it was found to write into what was said
        (Twice, TWICE, 2 + 1),
    ],
)
def test_what_comes_before_is_not_run_again(make, written, runs):
    model = make().double()
    units = units_by_hand(model, written, X[:2]) if written else find_units(model, X[:2])
    Counting.runs = 0
    unit_importance(model, units, X, Y, exact=True)
    assert Counting.runs == runs
