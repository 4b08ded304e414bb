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
    """The first three outputs cannot be cut; of the last three, which nothing uses, nothing can be proved."""
    table = find_units(Sneaky(), images(2, 4))
    assert not table.groups
    failed = [whole for whole in table.whole if whole.name == "one" and "output" not in whole.reason]
    assert "smaller network" in failed[0].reason
    assert [whole.slots for whole in table.whole if "does not change the output" in whole.reason] == [3]


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
    with pytest.raises(FedsacError, match=r"Untraceable cannot be traced .*if x.sum\(\) > 0.*units_by_hand"):
        find_units(Untraceable(), images(2, 3))


# -- networks that could lead to a wrong table


class Calls(nn.Module):
    """Two linear layers (and whatever else is given), and what is done with them."""

    def __init__(self, forward, sizes=(4, 6, 3), **others):
        super().__init__()
        self.one, self.two = nn.Linear(sizes[0], sizes[1]), nn.Linear(sizes[1], sizes[2])
        for name, other in others.items():
            setattr(self, name, other)
        self.called = forward

    def forward(self, *inputs):
        return self.called(self, *inputs)


def hidden(net, x):
    return torch.relu(net.one(x))


def counts(module, *inputs):
    return {group.name: group.count for group in find_units(module, *inputs).groups}


def heads(net, x, shape):
    """Attention with heads from `net.one`, as the shape says, without positions."""
    q, k, v = net.one(x).unflatten(-1, shape).permute(2, 0, 3, 1, 4).unbind(0)
    return net.two(((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("forward", [
    lambda net, x: net.two(torch.cat([2 * hidden(net, x)[:, :1], hidden(net, x)[:, 1:]], 1)),
    lambda net, x: net.two(torch.cat([hidden(net, x)[:, :-1], 2 * hidden(net, x)[:, -1:]], 1)),
])  # fmt: skip
def test_a_single_unit_that_is_told_by_its_place_is_found_out(forward):
    """Half of all masks keep it in its place, and then all looks well."""
    assert counts(Calls(forward, (4, 64, 3)), images(2, 4)) == {}


def test_what_the_proof_cannot_see_is_not_proved():
    dead = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    nn.init.constant_(dead[0].bias, -1000)
    table = find_units(dead, images(5, 4))
    assert not table.groups and any("does not change the output" in whole.reason for whole in table.whole)
    # Cut, these would be wrong, and wrong by less than any fixed tolerance.
    swapped = Calls(lambda net, x: 1e-15 * net.two(hidden(net, x)[:, :3].repeat(1, 2)), (4, 6, 3))
    assert counts(swapped, images(5, 4)) == {}
    # Such a branch is cut only because it is proved with parameters that make it seen.
    lora = NETWORKS["lora"][0]()
    nn.init.normal_(lora.b.weight, std=1e-12)
    assert counts(lora, images(2, 5)) == {"a": 3}


def test_inputs_that_are_the_same_everywhere_hide_nothing():
    """On zeros, attention is uniform however its heads are cut; two heads are always two here, of whatever width."""
    fixed = Calls(lambda net, x: heads(net, x, (3, 2, -1)), (8, 24, 3))
    fixed.two = nn.Linear(8, 3)
    assert counts(fixed, images(2, 5, 8)) == counts(fixed, torch.zeros(2, 5, 8)) == {}
    fixed.called = lambda net, x: heads(net, x, (3, -1, 4))
    assert counts(fixed, images(2, 5, 8)) == counts(fixed, torch.zeros(2, 5, 8)) == {"one": 2}
    with pytest.raises(FedsacError, match="all numbers of the inputs are the same"):
        find_units(Text(), torch.zeros(2, 3, dtype=torch.long))


def test_sizes_of_two_groups_are_not_mixed_up():
    """Cut to five, the first has as many units as the second has in the whole network."""
    module = Calls(lambda net, x: net.three(torch.relu(net.two(hidden(net, x).view(-1, net.size)))), (4, 12, 5))
    module.size, module.three = 12, nn.Linear(5, 3)
    x = images(2, 4)
    table = find_units(module, x)
    units = torch.tensor([True] * 5 + [False] * 7 + [True] * 2 + [False] * 3)
    assert smaller(module, table, units)(x).shape == (2, 3)


# -- networks that must not break it


def tied():
    """The first of two tied layers is never called."""
    module = Calls(lambda net, x: net.three(torch.relu(net.two(hidden(net, x)))), (4, 6, 5), unused=nn.Linear(6, 5))
    module.three, module.two.weight = nn.Linear(5, 3), module.unused.weight
    return module


def shared():
    layer = nn.Linear(6, 6)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), layer, nn.ReLU(), layer, nn.Linear(6, 3))


def keeps_features():
    def forward(net, x):
        net.features = hidden(net, x)
        return net.two(net.features)

    module = Calls(forward)
    module(images(2, 4))
    return module


def under_no_grad(net, x):
    with torch.no_grad():
        h = hidden(net, x)
    return net.two(h)


def under_autocast(net, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return net.two(hidden(net, x))


def changes_its_input(net, x):
    x.mul_(2)
    return net.two(hidden(net, x))


UNUSUAL = {
    "casts to float32": (lambda: Calls(lambda net, x: net.two(hidden(net, x.float()).float())), {"one": 6}),
    "makes tensors": (lambda: Calls(lambda net, x: net.two(hidden(net, x)) @ torch.eye(3)), {"one": 6}),
    "tied": (tied, {"two": 5, "one": 6}),
    "shared": (shared, {"0": 6}),
    "keeps features": (keeps_features, {"one": 6}),
    "no_grad": (lambda: Calls(under_no_grad), {"one": 6}),
    "autocast": (lambda: Calls(under_autocast), {"one": 6}),
    "changes its input": (lambda: Calls(changes_its_input), {"one": 6}),
    "half": (lambda: Calls(lambda net, x: net.two(hidden(net, x.half()))).half(), {"one": 6}),
    "returns a condition": (lambda: Calls(lambda net, x: {"is": net.two(hidden(net, x)) > 0, "no": None}), {"one": 6}),
    "integer parameter": (lambda: Calls(lambda net, x: net.two(hidden(net, x)) * net.n,
                                        n=nn.Parameter(torch.arange(3), requires_grad=False)), {"one": 6}),
    "nothing to cut": (lambda: nn.Linear(4, 3), {}),
    "no parameters": (nn.ReLU, {}),
    "width 1": (lambda: nn.Sequential(nn.Linear(4, 1), nn.ReLU(), nn.Linear(1, 5), nn.ReLU(), nn.Linear(5, 1)),
                {"2": 5}),
    "weight norm": (lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 6)), nn.Linear(6, 3)), {}),
    "random": (lambda: Calls(lambda net, x: nn.functional.dropout(net.two(hidden(net, x)))), {"one": 6}),
    "random units": (lambda: Calls(lambda net, x: net.two(nn.functional.dropout(hidden(net, x)))), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_networks(name):
    make, expected = UNUSUAL[name]
    assert sorted(counts(make(), images(5, 4)).values()) == sorted(expected.values())


def test_tied_tensors_are_cut_alike():
    module = tied()
    table = find_units(module, images(2, 4))
    units = torch.ones(table.units, dtype=torch.bool)
    units[[group.first for group in table.groups]] = False
    small = smaller(module, table, units)
    assert small.two.weight is small.unused.weight and small.two.weight.shape == (4, 5)


def test_inputs_in_lists_and_dicts():
    module = Calls(lambda net, x: net.two(hidden(net, x["a"] + x["b"][0])))
    assert counts(module, {"a": images(2, 4), "b": [images(2, 4)]}) == {"one": 6}


def test_the_network_is_left_as_it_was():
    module = keeps_features().train()
    module.one.eval()
    before = module.features
    find_units(module, images(2, 4))
    assert module.training and not module.one.training and module.features is before


def test_a_submodel_has_nothing_of_the_whole_network_in_its_attributes():
    module = keeps_features()
    table = find_units(module, images(2, 4))
    units = torch.tensor([True] * 5 + [False])
    assert smaller(module, table, units).features.numel() == 0


@pytest.mark.parametrize("module", [nn.Linear(4, 3, device="meta"), nn.LazyLinear(3)])
def test_tensors_without_numbers(module):
    with pytest.raises(FedsacError, match="tensors without numbers"):
        find_units(module, images(2, 4))


# -- operations


def attention(net, x, change=lambda net, q, k: (q, k)):
    """Heads of width 4 from `net.one`."""
    q, k, v = net.one(x).unflatten(-1, (3, -1, 4)).permute(2, 0, 3, 1, 4).unbind(0)
    q, k = change(net, q, k)
    return net.two(nn.functional.scaled_dot_product_attention(q, k, v, net.bias).transpose(1, 2).flatten(2))


def with_heads(change=lambda net, q, k: (q, k), bias=None, **others):
    module = Calls(lambda net, x: attention(net, x, change), (8, 24, 3), bias=bias, **others)
    module.two = nn.Linear(8, 3)
    return module


def rotated(net, q, k):
    return (t * net.cos + torch.cat([-t[..., 2:], t[..., :2]], -1) * net.cos for t in (q, k))


OPERATIONS = {
    "einsum": (lambda: Calls(lambda net, x: torch.einsum("bh,oh->bo", hidden(net, x), net.two.weight)), {"one": 6}),
    "einsum sums": (lambda: Calls(lambda net, x: torch.einsum("bh,oi->bo", hidden(net, x), net.two.weight)),
                    {"one": 6}),
    "gated": (lambda: nn.Sequential(nn.Linear(4, 12), nn.GLU(), nn.Linear(6, 3)), {"0": 6}),
    "slopes": (lambda: nn.Sequential(nn.Unflatten(1, (2, 1, 2)), nn.Conv2d(2, 5, 1), nn.PReLU(5), nn.Flatten(),
                                     nn.Linear(10, 3)), {"1": 5}),
    "transposed": (lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.ConvTranspose1d(2, 5, 2), nn.ReLU(),
                                         nn.ConvTranspose1d(5, 6, 2), nn.ReLU(), nn.ConvTranspose1d(6, 3, 1)),
                   {"1": 5, "3": 6}),
    "stack": (lambda: Calls(lambda net, x: net.two(torch.stack([hidden(net, x), net.one(x)]).mean(0))), {"one": 6}),
    "pool over units": (lambda: Calls(lambda net, x: net.two(nn.functional.max_pool1d(net.one(x), 2)), (4, 6, 3),
                                      two=nn.Linear(3, 3)), {}),
    "largest": (lambda: Calls(lambda net, x: net.two(hidden(net, x)).topk(2, 1)[0]), {"one": 6}),
    "learned positions": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Unflatten(0, (1, 5)), nn.LayerNorm(8),
                                                with_heads(bias=nn.Parameter(images(2, 5, 5)))), {"3": 2}),
    "norm of a head": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Unflatten(0, (1, 5)), nn.LayerNorm(8), with_heads(
        lambda net, q, k: (net.norm(q), nn.functional.normalize(k, dim=-1)), norm=nn.LayerNorm(4))), {"3.one": 2}),
    "rotary": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Unflatten(0, (1, 5)), nn.LayerNorm(8),
                                     with_heads(rotated, cos=images(5, 4))), {"3.one": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name):
    make, expected = OPERATIONS[name]
    assert counts(make(), images(5, 4)) == expected


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
