"""What single operations do to a network's units: in small networks around one operation each, worked out by hand."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedsac.models.finding.finder import find_units
from fedsac.models.finding.shrinking import smaller


class Around(nn.Module):
    """Layers by name, and what is done with them."""

    def __init__(self, run, **layers):
        super().__init__()
        self.run = run
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.run(self, x)


class Heads(nn.Module):
    """Attention with numbers beside its tensors: as many heads as a head is wide, unless told otherwise. `positions`
    turns queries and keys (RoPE); `shared` heads of queries have one of keys and values; `distances`: a
    number for each distance and head is added."""

    def __init__(self, heads=4, wide=4, shared=1, positions=False, distances=0):
        super().__init__()
        width = heads * wide
        self.heads, self.head_width, self.shared, self.positions = heads, wide, shared, positions
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.key, self.value = nn.Linear(width, width // shared), nn.Linear(width, width // shared)
        self.distances = nn.Parameter(torch.randn(distances, heads)) if distances else None

    def forward(self, x):
        q, k, v = (
            layer(x).view(*x.shape[:2], -1, self.head_width).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        if self.positions:
            angle = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * torch.arange(1, self.head_width + 1)
            q, k = (each * angle.cos() + turned(each) * angle.sin() for each in (q, k))
        mask = None
        if self.distances is not None:
            at = torch.arange(x.shape[1])
            mask = self.distances[(at[:, None] - at).abs()].permute(2, 0, 1)[None]
        mixed = functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=self.shared > 1)
        return self.out(mixed.transpose(1, 2).reshape(*x.shape[:2], self.heads * self.head_width))


def turned(x):
    one, two = x.chunk(2, -1)
    return torch.cat([-two, one], -1)


class Transposed(nn.Module):
    """A linear layer as Hugging Face's GPT-2 has it."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight, self.bias = nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], self.nf)


Transposed.__name__ = "Conv1D"


def tied():
    network = Around(lambda m, x: m.read(torch.relu(m.inner(m.words(x).mean(1)))), words=nn.Embedding(7, 6),
                     inner=nn.Linear(6, 6), read=nn.Linear(6, 7, bias=False))  # fmt: skip
    network.read.weight = network.words.weight
    return network


def recurrent(kind, directions=1, **options):
    """Words, two recurrent layers, and the last outputs."""
    layer = kind(5, 6, 2, batch_first=True, bidirectional=directions == 2, **options)
    return Around(lambda m, x: m.last(m.cell(m.words(x))[0][:, -1]), words=nn.Embedding(7, 5), cell=layer,
                  last=nn.Linear(6 * directions, 3))  # fmt: skip


def inner(run, inside=6, after=6):
    """Linear, an operation in between, linear."""
    return Around(lambda m, x: m.two(run(m.one(x))), one=nn.Linear(4, inside), two=nn.Linear(after, 3))


def frozen(m, x):
    with torch.no_grad():
        x = torch.relu(m.one(x))
    return m.two(x)


def images(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def halves(x):
    one, two = x.chunk(2, -1)
    return torch.cat([one.relu(), two.tanh()], -1)


def shuffled(m, x):
    x = m.one(x)
    x = x.view(len(x), 2, -1, *x.shape[2:]).transpose(1, 2).flatten(1, 2)
    return m.two(x).mean((2, 3))


FLAT, IMAGE, SEQUENCE = images(2, 4), images(2, 3, 4, 4), images(2, 5, 16)
TOKENS = torch.tensor([[1, 2], [3, 4]])
NETWORKS = {
    "in place": (lambda: inner(lambda x: functional.hardswish(x, inplace=True).add_(1)), FLAT, {"one": 6}),
    "where, with a number": (lambda: inner(lambda x: torch.where(x > 0, x, 0.5)), FLAT, {"one": 6}),
    "glu: gate and value": (lambda: inner(functional.glu, 6, 3), FLAT, {"one": 3}),
    "chunk: equal parts": (lambda: inner(halves), FLAT, {"one": 3}),
    "under no_grad": (lambda: Around(frozen, one=nn.Linear(4, 6), two=nn.Linear(6, 3)), FLAT, {"one": 6}),
    "an assertion": (lambda: inner(lambda x: x.to(torch.float64).to(x.dtype)), FLAT, {"one": 6}),
    "stack": (lambda: inner(lambda x: torch.stack([x, x.sigmoid()], 1).sum(1)), FLAT, {"one": 6}),
    "repeat": (lambda: inner(lambda x: x.repeat(1, 2), 6, 12), FLAT, {"one": 6}),
    "repeat_interleave": (lambda: inner(lambda x: x.repeat_interleave(2, 1), 6, 12), FLAT, {"one": 6}),
    "entries of other axes are picked": (
        lambda: inner(lambda x: x[torch.tensor([1, 0, 0])]), FLAT, {"one": 6}),
    "index_select along other axes": (
        lambda: inner(lambda x: x.index_select(0, torch.tensor([1, 0, 0]))), FLAT, {"one": 6}),
    "entries are picked": (lambda: inner(lambda x: x[:, torch.tensor([1, 0, 0])], 6, 3), FLAT, {}),
    "roll along other axes": (lambda: inner(lambda x: x.roll(1, 0)), FLAT, {"one": 6}),
    "roll": (lambda: inner(lambda x: x.roll(1, 1)), FLAT, {}),
    "einsum": (lambda: Around(lambda m, x: torch.einsum("bk,ok->bo", torch.einsum("bi,ik->bk", x, m.a), m.b),
                              a=nn.Parameter(torch.randn(4, 6)), b=nn.Parameter(torch.randn(3, 6))),
               FLAT, {"a[1]": 6}),
    "prelu": (lambda: Around(lambda m, x: m.two(m.act(m.one(x))).mean((2, 3)), one=nn.Conv2d(3, 6, 1), act=nn.PReLU(6),
                             two=nn.Conv2d(6, 2, 1)), IMAGE, {"one": 6}),
    "transposed convolution": (lambda: Around(lambda m, x: m.three(m.two(m.one(x))).mean((2, 3)),
                                              one=nn.Conv2d(3, 6, 1), two=nn.ConvTranspose2d(6, 5, 2, 2),
                                              three=nn.Conv2d(5, 2, 1)), IMAGE, {"one": 6, "two": 5}),
    "a grey image": (lambda: nn.Sequential(nn.Conv2d(1, 6, 3), nn.Flatten(), nn.Linear(24, 3)), IMAGE[:, :1], {"0": 6}),
    "many groups of channels": (
        lambda: Around(lambda m, x: m.three(m.two(m.one(x))).mean((2, 3)), one=nn.Conv2d(3, 8, 1),
                       two=nn.Conv2d(8, 12, 3, groups=4), three=nn.Conv2d(12, 2, 1)), IMAGE, {"one": 4}),
    "channels in two groups, shuffled": (lambda: Around(shuffled, one=nn.Conv2d(3, 6, 1), two=nn.Conv2d(6, 2, 1)),
                                         IMAGE, {"one": 3}),
    "tied": (tied, TOKENS, {"words.weight[1]": 6}),
    "LSTM": (lambda: recurrent(nn.LSTM), TOKENS, {"words.weight[1]": 5, "cell": 6}),
    "GRU in both directions": (lambda: recurrent(nn.GRU, 2), TOKENS, {"words.weight[1]": 5, "cell": 6}),
    "RNN without biases": (lambda: recurrent(nn.RNN, bias=False), TOKENS,
                           {"words.weight[1]": 5, "cell": 6}),
    "as many heads as a head is wide": (Heads, SEQUENCE, {"query": 4}),
    "rotary positions": (lambda: Heads(positions=True), SEQUENCE, {"query": 4}),
    "two heads of queries for one of keys": (lambda: Heads(8, 2, shared=2), SEQUENCE, {"query": 4}),
    "a bias for each head": (lambda: Heads(8, 2, distances=9), SEQUENCE, {"query": 8}),
    "Conv1D": (lambda: nn.Sequential(Transposed(16, 16), nn.GELU(), Transposed(16, 16)), SEQUENCE, {"0": 16}),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_units_around_an_operation(name):
    make, x, expected = NETWORKS[name]
    torch.manual_seed(0)
    module = make().eval()
    table = find_units(module, x)
    assert {group.name: group.count for group in table.groups} == expected
    for group in table.groups:  # in float32, with every number of units, and as users will call it
        for kept in range(1, group.count):
            units = torch.ones(table.units, dtype=torch.bool)
            units[group.first + kept : group.first + group.count] = False
            state = table.masked(module.state_dict(), units)
            masked = torch.func.functional_call(module, state, (x,), tie_weights=False)
            torch.testing.assert_close(smaller(module, table, units)(x), masked, rtol=1e-5, atol=1e-5)


def test_torchs_own_attention_keeps_its_heads():
    """It takes the width of a head from its input's."""
    table = find_units(nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), images(2, 5, 8))
    assert [group.name for group in table.groups] == ["linear1"]
    assert any("self_attn" in whole.name and "MultiheadAttention" in whole.reason for whole in table.whole)


def test_a_stream_is_named_once():
    """Whatever is added to what LayerNorm normalises stays whole for this one reason."""
    block = Around(lambda m, x: m.out(m.norm(x + m.two(torch.relu(m.one(m.norm(x)))))), norm=nn.LayerNorm(4),
                   one=nn.Linear(4, 6), two=nn.Linear(6, 4), out=nn.Linear(4, 3))  # fmt: skip
    whole = find_units(nn.Sequential(nn.Linear(4, 4), block), FLAT).whole
    assert [(each.name, each.slots) for each in whole] == [("0", 4), ("0.weight[1]", 4), ("1.out", 3)]
    assert "LayerNorm" in whole[0].reason


def test_tied_tensors_stay_tied():
    """An embedding that is the last layer, too, in a network whose width can be cut."""
    network = tied()
    table = find_units(network, TOKENS)
    assert torch.equal(table.axes["words.weight"][1], table.axes["read.weight"][1])
    small = smaller(network, table, torch.tensor([True, False] * 3))
    assert small.read.weight is small.words.weight and small.read.weight.shape == (7, 3)
    assert small.words.embedding_dim == small.read.in_features == 3


def test_attributes_that_only_look_like_sizes_are_named():
    table = find_units(Heads(), SEQUENCE)
    assert table.constants == {"head_width"}
    small = smaller(Heads(), table, torch.tensor([True, True, False, True]))
    assert (small.heads, small.head_width) == (3, 4)


def test_a_use_that_no_rule_knows_costs_units_only():
    """The largest value and its index, of two results; a product with a vector."""
    table = find_units(inner(lambda x: torch.cat([x.topk(3)[0], x @ torch.ones(6, 3)], 1)), FLAT)
    assert not table.groups
    assert any("topk" in whole.reason for whole in table.whole)
