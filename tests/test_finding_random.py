"""Units of random small networks. Whatever their layers, a submodel computes what the whole network does without the
units it lacks, its entries come back where they were, nothing else gets into it, and its size is the table's."""

import copy
import json
from collections import OrderedDict
from itertools import islice

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from fedsac.models.finding.finder import find_units
from fedsac.models.finding.shrinking import smaller

FEW = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
CLASSES = 3


def pick(draw, *choices):
    return draw(st.sampled_from(choices))


# -- layers


class Sum(nn.Module):
    """x + inner(x)."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class Beside(nn.Module):
    """What is new is put beside what was there."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return torch.cat([x, self.inner(x)], 1)


class Gate(nn.Module):
    """Squeeze and excitation of the channels of an image."""

    def __init__(self, channels):
        super().__init__()
        self.down, self.up = nn.Linear(channels, 3), nn.Linear(3, channels)

    def forward(self, x):
        gate = torch.sigmoid(self.up(functional.elu(self.down(x.mean((2, 3))))))
        return x * gate[:, :, None, None]


class Shuffle(nn.Module):
    """A convolution in groups whose channels are dealt to the groups of another one."""

    def __init__(self, channels):
        super().__init__()
        self.one, self.two = (nn.Conv2d(channels, channels, 1, groups=2) for _ in range(2))

    def forward(self, x):
        x = torch.relu(self.one(x)).unflatten(1, (2, -1))
        return self.two(x.transpose(1, 2).flatten(1, 2))


class Fused(nn.Module):
    """Attention with its own heads, from one layer."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Separate(nn.Module):
    """Attention with its own heads, from three layers; the number of heads follows from their width."""

    def __init__(self, width, heads):
        super().__init__()
        self.of_head = width // heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (-1, self.of_head)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        weights = torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Gated(nn.Module):
    """A feed-forward layer with gates, both halves from one layer."""

    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 10), nn.Linear(5, width)

    def forward(self, x):
        value, gate = self.up(x).chunk(2, -1)
        return self.down(functional.silu(gate) * value)


class LoRA(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.base, self.a = nn.Linear(width, width).requires_grad_(False), nn.Linear(width, 3, bias=False)
        self.b = nn.Linear(3, width, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return self.base(x) + 0.5 * self.b(self.a(x))


class AlongTime(nn.Module):
    """A convolution over the positions of a sequence."""

    def __init__(self, width, groups):
        super().__init__()
        self.conv, self.back = nn.Conv1d(width, 6, 3, padding=1, groups=groups), nn.Linear(6, width)

    def forward(self, x):
        return self.back(torch.tanh(self.conv(x.transpose(1, 2))).transpose(1, 2))


class Twice(nn.Module):
    """One layer, called twice."""

    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


def head(inputs):
    """Its five hidden units are found whatever stands before."""
    return nn.Sequential(nn.Linear(inputs, 5), nn.ELU(), nn.Linear(5, CLASSES))


CHANNELWISE = {
    "batch": nn.BatchNorm2d,
    "group": lambda channels: nn.GroupNorm(2, channels),
    "instance": lambda channels: nn.InstanceNorm2d(channels, affine=True),
    "slope": nn.PReLU,
    "gate": Gate,
    "shuffle": Shuffle,
}


# -- networks


@st.composite
def image_networks(draw):
    """Convolutions of all kinds, norms, sums, concatenations, gates, pools, a head over channels or over pixels too."""
    channels, size = pick(draw, 4, 6), 8
    layers = [nn.Conv2d(2, channels, 3, padding=1)]
    kinds = ["conv", "strided", "grouped", "depthwise", "sum", "beside", "pool", "transposed", *CHANNELWISE]
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4)):
        new = channels
        if kind == "conv":
            new = pick(draw, 4, 6)
            layer = nn.Sequential(nn.Conv2d(channels, new, 3, padding=1, bias=draw(st.booleans())), nn.ReLU())
        elif kind == "strided":
            layer, size = nn.Conv2d(channels, channels, 3, stride=2, padding=1), (size + 1) // 2
        elif kind == "grouped":
            layer = nn.Conv2d(channels, channels, 3, padding=1, groups=2)
        elif kind == "depthwise":
            new = channels * pick(draw, 1, 2) if channels < 8 else channels
            layer = nn.Conv2d(channels, new, 3, padding=1, groups=channels)
        elif kind == "sum":
            inner = [nn.Conv2d(channels, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU(), nn.Conv2d(5, channels, 1)]
            layer = Sum(nn.Sequential(*inner))
        elif kind == "beside":
            layer, new = Beside(nn.Sequential(nn.Conv2d(channels, 2, 3, padding=1), nn.ReLU())), channels + 2
        elif kind == "pool":
            layer, size = pick(draw, nn.MaxPool2d(2, ceil_mode=True), nn.AvgPool2d(2, ceil_mode=True)), (size + 1) // 2
        elif kind == "transposed":
            layer = nn.ConvTranspose2d(channels, channels, 3, padding=1)
        else:
            layer = CHANNELWISE[kind](channels)
        layers.append(layer)
        channels = new
    pixels = draw(st.booleans())
    layers += [nn.Flatten()] if pixels else [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    ends = head(channels * size * size if pixels else channels)
    return nn.Sequential(OrderedDict(features=nn.Sequential(*layers), head=ends)), (torch.zeros(2, 2, 8, 8),)


class Sequence(nn.Module):
    """Tokens or vectors, blocks that add to them, and classes for the sequence; of tokens also the next ones, by the
    embedding's own weight."""

    def __init__(self, embedding, blocks, norm):
        super().__init__()
        self.embedding, self.blocks, self.norm = embedding, nn.ModuleList(blocks), norm
        self.head = head(8)
        if isinstance(embedding, nn.Embedding):
            self.next = nn.Linear(8, 11, bias=False)
            self.next.weight = embedding.weight

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = x + block(self.norm(x))
        classes = self.head(x.mean(1))
        return (classes, self.next(x)) if isinstance(self.embedding, nn.Embedding) else {"classes": classes}


@st.composite
def sequence_networks(draw):
    makers = [lambda: Fused(8, 4), lambda: Fused(8, 2), lambda: Separate(8, 2), lambda: Gated(8), lambda: LoRA(8),
              lambda: AlongTime(8, 1), lambda: AlongTime(8, 2), lambda: Twice(8),
              lambda: nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 8)),
              lambda: nn.Sequential(nn.Linear(8, 12), nn.GLU(), nn.Dropout(0.5), nn.Linear(6, 8))]  # fmt: skip
    blocks = [make() for make in draw(st.lists(st.sampled_from(makers), min_size=1, max_size=3))]
    norm = pick(draw, nn.LayerNorm(8), nn.RMSNorm(8), nn.Identity())
    tokens = torch.randint(11, (2, 5), generator=torch.Generator().manual_seed(0))
    if draw(st.booleans()):
        return Sequence(nn.Embedding(11, 8), blocks, norm), (tokens,)
    return Sequence(nn.Linear(3, 8), blocks, norm), (torch.zeros(2, 5, 3),)


class Two(nn.Module):
    """Two inputs that meet, two outputs; weights are used as they are and transposed."""

    def __init__(self, meet, one, two, width):
        super().__init__()
        self.meet, self.one, self.two = meet, one, two
        self.head = head(2 * width if meet == "cat" else width)
        self.code = nn.Parameter(torch.randn(width, 4))

    def forward(self, x, y):
        a, b = self.one(x), self.two(y)
        met = {"sum": lambda: a + b, "product": lambda: a * torch.sigmoid(b), "cat": lambda: torch.cat([a, b], 1),
               "stack": lambda: torch.stack([a, b], 1).mean(1)}[self.meet]()  # fmt: skip
        return self.head(met), (torch.tanh(a @ self.code) @ self.code.t()) @ self.code


@st.composite
def two_input_networks(draw):
    width = pick(draw, 4, 6)
    one, two = ([], [])
    for layers, inputs in ((one, 3), (two, 5)):
        for outputs in (*draw(st.lists(st.sampled_from([1, 2, 7]), max_size=2)), width):
            layers += [nn.Linear(inputs, outputs), pick(draw, nn.ReLU(), nn.Tanh(), nn.BatchNorm1d(outputs))]
            inputs = outputs
    network = Two(pick(draw, "sum", "product", "cat", "stack"), nn.Sequential(*one), nn.Sequential(*two), width)
    return network, (torch.zeros(4, 3), torch.zeros(4, 5))


# -- what must hold


def fresh(module, inputs, dtype, seed):
    """Other parameters than the units were found with, and other inputs."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng) * 0.5)
        for name, buffer in module.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer.copy_(torch.rand(buffer.shape, generator=rng) + 0.5)
    drawn = [torch.randn(x.shape, generator=rng).to(dtype) if x.is_floating_point() else x.flip(1) for x in inputs]
    return module.to(dtype).eval(), drawn


def random_units(table, seed):
    rng = torch.Generator().manual_seed(seed)
    units = torch.rand(table.units, generator=rng) < 0.2 + 0.6 * torch.rand((), generator=rng)
    for group in table.groups:
        units[group.first + int(torch.randint(group.count, (), generator=rng))] = True
    return units


def check_same_function(module, table, inputs, units, tolerance):
    """Masked equals extracted."""
    with torch.no_grad():
        small = pytree.tree_leaves(smaller(module, table, units)(*inputs))
        masked = copy.deepcopy(module)
        masked.load_state_dict(table.masked(module.state_dict(), units))
        expected = pytree.tree_leaves(masked(*inputs))
    for one, two in zip(small, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=tolerance * float(two.abs().max().clamp(min=1)))


def check_sizes(table, state, units):
    """The table's count is that of the submodel's numbers, and of a file's bytes after its header."""
    small = table.extract(state, units)
    count = table.parameters({name: value.shape for name, value in state.items()}, units)
    assert count == sum(value.numel() for value in small.values())
    file = save(small)
    header = int.from_bytes(file[:8], "little")
    assert len(json.loads(file[8 : 8 + header])) == len(state)
    assert len(file) - 8 - header == sum(value.numel() * value.element_size() for value in small.values())


def check_there_and_back(table, state, units):
    """merge(extract) is the identity, and nothing that is not held gets into a submodel."""
    merged = table.merge(state, units, table.extract(state, units))
    assert all(torch.equal(merged[name], state[name]) for name in state)
    canary = {
        name: torch.where(table.held(name, value, units), value, torch.nan) if value.is_floating_point() else value
        for name, value in state.items()
    }
    assert any(value.isnan().any() for value in canary.values()) or units.all()
    assert not any(value.isnan().any() for value in table.extract(canary, units).values())


def check_holder_mean(table, state, several):
    """What comes back from several submodels, each trained to other numbers, against a mean by hand: entry by entry,
    over those who hold the units of all its slots."""
    zeros = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in state.items()}
    trained = [
        {name: value.double() + i + 1 for name, value in table.extract(state, units).items()}
        for i, units in enumerate(several)
    ]
    merged = [table.merge(zeros, units, small) for units, small in zip(several, trained, strict=True)]
    for name, value in state.items():
        holders = sum(table.held(name, value, units).double() for units in several)
        mean = sum(one[name] for one in merged) / holders
        for at in islice(np.ndindex(*value.shape), 40):
            slots = [int(own[i]) for own, i in zip(table.axes.get(name, ()), at, strict=False) if own is not None]
            numbers = [float(value[at]) + i + 1 for i, units in enumerate(several)
                       if all(slot < 0 or units[slot] for slot in slots)]  # fmt: skip
            if numbers:
                assert abs(float(mean[at]) - sum(numbers) / len(numbers)) < 1e-12
            else:
                assert holders[at] == 0


def check(network, seed):
    """All of it. Returns what the proof, not a rule, has found to be never cut."""
    module, inputs = network
    table = find_units(module, *inputs)
    assert [group.count for group in table.groups if group.name == "head.0"] == [5]
    several = [random_units(table, seed + i) for i in range(3)]
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
        module, drawn = fresh(module, inputs, dtype, seed)
        check_same_function(module, table, drawn, several[0], tolerance)
        check_same_function(module, table, drawn, several[1], tolerance)
    state = module.state_dict()
    check_sizes(table, state, several[0])
    check_there_and_back(table, state, several[0])
    check_holder_mean(table, state, several)
    return [whole for whole in table.whole if "smaller network" in whole.reason or "cannot be cut" in whole.reason]


@FEW
@given(image_networks(), st.integers(0, 1000))
def test_image_networks(network, seed):
    assert not check(network, seed)


@FEW
@given(sequence_networks(), st.integers(0, 1000))
def test_sequence_networks(network, seed):
    """Here the proof may find some: a number of heads can be taken for that of the sequence's own units."""
    check(network, seed)


@FEW
@given(two_input_networks(), st.integers(0, 1000))
def test_networks_with_two_inputs(network, seed):
    assert not check(network, seed)
