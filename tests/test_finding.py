"""Units of any network: what goes together, what is never cut, and that a smaller network computes the same."""

import copy

import pytest
import torch
from torch import nn

from fedsac.errors import FedsacError
from fedsac.models.finding.finder import find_units
from fedsac.models.finding.proof import difference
from fedsac.models.finding.shrinking import smaller


class Residual(nn.Module):
    """x + conv2(relu(bn(conv1(x))))."""

    def __init__(self, channels, inner):
        super().__init__()
        self.conv1, self.bn = nn.Conv2d(channels, inner, 3, padding=1, bias=False), nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, channels, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(torch.relu(self.bn(self.conv1(x))))


class Attention(nn.Module):
    """Heads from one fused layer; the number of heads is an attribute."""

    def __init__(self, width, heads):
        super().__init__()
        self.num_heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down(nn.functional.gelu(self.up(x)))


class Dense(nn.Module):
    """What is new is put beside what was there, as in DenseNet; a gate on channels, as in squeeze-and-excitation."""

    def __init__(self):
        super().__init__()
        self.stem, self.grow = nn.Conv2d(2, 4, 1), nn.Conv2d(4, 3, 3, padding=1)
        self.squeeze, self.excite = nn.Linear(7, 2), nn.Linear(2, 7)
        self.head = nn.Linear(7, 3)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = torch.cat([x, torch.relu(self.grow(x))], 1)
        gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(x.mean((2, 3))))))
        return self.head((x * gate[:, :, None, None]).mean((2, 3)))


class LoRA(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.a, self.b = nn.Linear(5, 4), nn.Linear(5, 3, bias=False), nn.Linear(3, 4, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return self.base(x) + 2 * self.b(self.a(x))


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.block, self.head = nn.Embedding(11, 8), Block(8, 2), nn.Linear(8, 3)

    def forward(self, tokens):
        return self.head(self.block(self.embedding(tokens)).mean(1))


def images(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


NETWORKS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)),
            images(2, 6), {"0": 5, "2": 4}),
    "cnn": (lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 4, 3), nn.ReLU(),
                                  nn.Flatten(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 3)),
            images(2, 3, 10, 10), {"0": 6, "3": 4, "6": 5}),
    "resnet": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), Residual(4, 6), Residual(4, 5),
                                     nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)),
               images(2, 3, 8, 8), {"0": 4, "3.conv1": 6, "4.conv1": 5}),
    "depthwise": (lambda: nn.Sequential(nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 3, groups=6), nn.Conv2d(6, 4, 1),
                                        nn.Flatten(), nn.Linear(4 * 36, 3)),
                  images(2, 3, 8, 8), {"0": 6, "2": 4}),
    # Two groups of three input and two output channels: the k-th of both go together.
    "grouped": (lambda: nn.Sequential(nn.Conv2d(3, 6, 1), nn.Conv2d(6, 4, 3, groups=2), nn.Flatten(),
                                      nn.Linear(4 * 36, 3)),
                images(2, 3, 8, 8), {"0": 3, "1": 2}),
    # Six channels in three groups of two: a group is a unit.
    "groupnorm": (lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.GroupNorm(3, 6), nn.ReLU(), nn.Flatten(),
                                        nn.Linear(216, 3)),
                  images(2, 3, 8, 8), {"0": 3}),
    "transformer": (lambda: nn.Sequential(nn.Linear(5, 8), Block(8, 4), nn.LayerNorm(8), nn.Linear(8, 3)),
                    images(2, 7, 5), {"1.attention.qkv": 4, "1.up": 16}),
    "dense": (Dense, images(2, 2, 6, 6), {"stem": 4, "grow": 3, "squeeze": 2}),
    "lora": (LoRA, images(2, 5), {"a": 3}),
    "text": (Text, torch.tensor([[1, 2, 3], [4, 5, 6]]), {"block.attention.qkv": 2, "block.up": 16}),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_units_worked_out_by_hand(name):
    make, x, expected = NETWORKS[name]
    torch.manual_seed(0)
    assert {group.name: group.count for group in find_units(make(), x).groups} == expected


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masked_is_extracted_and_merged_is_the_same(name, dtype):
    make, x, _ = NETWORKS[name]
    torch.manual_seed(1)
    module = make().to(dtype).eval()
    x = x.to(dtype) if x.is_floating_point() else x
    table = find_units(module, x)
    state = module.state_dict()
    for seed in range(3):
        units = torch.rand(table.units, generator=torch.Generator().manual_seed(seed)) < 0.6
        for group in table.groups:
            units[group.first] = True
        small = smaller(module, table, units)
        masked = torch.func.functional_call(module, table.masked(state, units), (x,))
        tolerance = 1e-5 if dtype == torch.float32 else 1e-10
        torch.testing.assert_close(small(x), masked, rtol=tolerance, atol=tolerance)
        assert sum(p.numel() for p in small.state_dict().values()) == table.parameters(
            {key: value.shape for key, value in state.items()}, units
        )
        merged = table.merge(state, units, small.state_dict())
        assert all(torch.equal(merged[key], state[key]) for key in state)
        # Trained elsewhere, its entries come back, and nothing else changes.
        trained = {key: value + 1 if value.is_floating_point() else value for key, value in small.state_dict().items()}
        merged = table.merge(state, units, trained)
        for key in state:
            held = table.held(key, state[key], units)
            moved = state[key] + held if state[key].is_floating_point() else state[key]
            assert torch.equal(merged[key], moved)


def test_what_is_never_cut_is_named_with_its_reason():
    make, x, _ = NETWORKS["transformer"]
    reasons = {whole.name: whole.reason for whole in find_units(make(), x).whole}
    assert "LayerNorm" in reasons["0"] and "output" in reasons["3"]


class TwoHeads(Attention):
    """The number of heads stands in the code, where no attribute can change it."""

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, 2, -1).permute(2, 0, 3, 1, 4).unbind(0)
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


def test_a_group_that_fails_the_proof_is_kept_whole():
    table = find_units(nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 8), TwoHeads(8, 2)), images(2, 5, 3))
    assert [group.name for group in table.groups] == ["0", "1"]
    assert [whole.name for whole in table.whole if "smaller network" in whole.reason] == ["2.qkv"]


class Sneaky(nn.Module):
    """Depends on a channel by its index, where no trace can see what is meant."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 6), nn.Linear(3, 2)

    def forward(self, x):
        return self.two(torch.relu(self.one(x))[:, :3])


def test_slices_at_fixed_places_are_found_out():
    """The first three outputs cannot be cut; the last three, which nothing uses, can."""
    table = find_units(Sneaky(), images(2, 4))
    failed = [whole for whole in table.whole if "smaller network" in whole.reason]
    assert [(whole.name, whole.slots) for whole in failed] == [("one", 3)]
    assert table.axes["one.weight"][0].tolist() == [-1, -1, -1, 0, 1, 2]


def test_the_proof_finds_a_wrong_table():
    make, x, _ = NETWORKS["cnn"]
    module = make().double().eval()
    table = find_units(module, x.double())
    axes = dict(table.axes)
    axes["6.weight"] = (axes["6.weight"][0], axes["6.weight"][1].flip(0))  # the flattened channels in reverse
    wrong = type(table)(axes, table.groups)
    units = torch.ones(table.units, dtype=torch.bool)
    units[table.groups[1].first] = False
    assert difference(module, table, units, (x.double(),)) is None
    assert "something else" in difference(module, wrong, units, (x.double(),))


def test_a_submodel_is_an_ordinary_module_and_the_whole_one_is_untouched():
    make, x, _ = NETWORKS["resnet"]
    module = make().eval()
    before = copy.deepcopy(module.state_dict())
    table = find_units(module, x)
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    units = torch.ones(table.units, dtype=torch.bool)
    units[table.groups[0].first] = False
    small = smaller(module, table, units)
    assert type(small) is nn.Sequential and small[0].out_channels == 3 and small[1].num_features == 3
    small(x).sum().backward()
    assert small[0].weight.grad is not None


@pytest.mark.parametrize(
    ("units", "message"),
    [
        (torch.ones(3, dtype=torch.bool), "boolean mask of length 9"),
        (torch.ones(9), "boolean mask of length 9"),
        (torch.tensor([False] * 5 + [True] * 4), "none of the 5 units of 0 is kept"),
    ],
)
def test_a_mask_that_is_none(units, message):
    make, x, _ = NETWORKS["mlp"]
    module = make()
    with pytest.raises(FedsacError, match=message):
        smaller(module, find_units(module, x), units)


class Untraceable(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_a_module_that_cannot_be_traced():
    with pytest.raises(FedsacError, match=r"Untraceable cannot be traced .*write its units by hand"):
        find_units(Untraceable(), images(2, 3))


class OneOrTheOther(nn.Module):
    """Two hidden layers that work with fewer neurons each, and not both."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        if self.one.out_features < 6 and self.two.out_features < 6:
            raise ValueError("too small")
        return self.three(torch.relu(self.two(torch.relu(self.one(x)))))


def test_groups_that_can_only_be_cut_without_another():
    table = find_units(OneOrTheOther(), images(2, 4))
    assert [group.name for group in table.groups] == ["one"]
    assert {whole.name: whole.reason for whole in table.whole}["two"] == "cannot be cut together with others"
