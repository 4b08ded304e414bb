"""A Triton kernel for the scores of many submodels of one model: what their neurons compute stays in registers.

With torch's operations every hidden layer of every submodel is written to memory and read again a few times: for the
180 prefixes that FedSAC+ measures in every round, gigabytes, and a third of the time that a GPU works for it. The
kernel has been tried in Triton's interpreter alone (tests/test_kernels.py), and the package does not use it yet.

    python -m benchmarks.submodel_kernel       # on a GPU: against torch's operations, for the shapes of three methods
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedsac.compute.cuda.kernels.products import chosen_precision, dot

MIN_MEMBERS_TO_SORT = 32  # neurons are put in order where that saves more than it costs


@triton.jit
def _logits(  # type: ignore[no-untyped-def]
    a, mask, weight, bias, next_mask, last_weight, last_bias, last_held, next_last_held, out, samples,
    width: tl.constexpr, next_width: tl.constexpr, classes: tl.constexpr, padded_classes: tl.constexpr,
    block_samples: tl.constexpr, block_neurons: tl.constexpr, block_next: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """The logits of one submodel for a block of samples, from the first hidden layer's activations `a` of the whole
    model. `last_held` and `next_last_held`: up to where the member holds neurons of the first and of the second hidden
    layer; what lies behind is skipped."""
    member = tl.program_id(0).to(tl.int64)
    m = tl.program_id(1).to(tl.int64) * block_samples + tl.arange(0, block_samples)
    c = tl.arange(0, padded_classes)
    in_samples = m < samples
    own, next_own = tl.load(last_held + member), tl.load(next_last_held + member)
    logits = tl.zeros((block_samples, padded_classes), dtype=tl.float32)
    for begin in range(0, next_own, block_next):
        k = begin + tl.arange(0, block_next)
        in_next = k < next_width
        z = tl.zeros((block_samples, block_next), dtype=tl.float32)
        for start in range(0, own, block_neurons):
            j = start + tl.arange(0, block_neurons)
            in_layer = j < width
            inside = in_samples[:, None] & in_layer[None, :]
            value = tl.load(a + m[:, None] * width + j[None, :], mask=inside, other=0.0)
            value *= tl.load(mask + member * width + j, mask=in_layer, other=0.0)[None, :]
            w_inside = in_layer[:, None] & in_next[None, :]
            w = tl.load(weight + j[:, None] * next_width + k[None, :], mask=w_inside, other=0.0)
            z = dot(value, w, z, precision)
        z += tl.load(bias + k, mask=in_next, other=0.0)[None, :]
        z = tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL)  # as torch's relu
        z *= tl.load(next_mask + member * next_width + k, mask=in_next, other=0.0)[None, :]
        v = tl.load(
            last_weight + k[:, None] * classes + c[None, :], mask=in_next[:, None] & (c < classes)[None, :], other=0.0
        )
        logits = dot(z, v, logits, precision)
    logits += tl.load(last_bias + c, mask=c < classes, other=0.0)[None, :]
    out_inside = in_samples[:, None] & (c < classes)[None, :]
    tl.store(out + (member * samples + m)[:, None] * classes + c[None, :], logits, mask=out_inside)


def submodel_logits(a: Tensor, layers: list[tuple[Tensor, Tensor]], masks: list[Tensor]) -> Tensor:
    """The logits [S, n, classes] of submodels of one model with two hidden layers.

    `a` [n, width] are the activations of its first hidden layer, `layers` the weights [width, next width] and [next
    width, classes] of the two after it with their biases, `masks` [S, width] and [S, next width] the neurons that each
    submodel holds, as numbers.
    """
    (weight, bias), (last_weight, last_bias) = layers
    mask, next_mask = masks
    if len(mask) >= MIN_MEMBERS_TO_SORT:
        # Neurons that most hold come first. Where submodels are nested, each then holds the first few, and no others.
        order, next_order = (held.sum(0).argsort(descending=True) for held in masks)
        a, mask, next_mask = a[:, order], mask[:, order], next_mask[:, next_order]
        weight, bias, last_weight = weight[order][:, next_order], bias[next_order], last_weight[next_order]
    samples, width = a.shape
    next_width, classes = last_weight.shape
    out = a.new_empty(len(mask), samples, classes)
    block_samples = 64
    _logits[(len(mask), triton.cdiv(samples, block_samples))](
        a.contiguous(), mask.contiguous(), weight.contiguous(), bias.contiguous(), next_mask.contiguous(),
        last_weight.contiguous(), last_bias.contiguous(), _last_held(mask), _last_held(next_mask), out, samples,
        width=width, next_width=next_width, classes=classes,
        padded_classes=max(16, triton.next_power_of_2(classes)), block_samples=block_samples, block_neurons=32,
        block_next=64, precision=chosen_precision(), num_warps=4,
    )  # fmt: skip
    return out


def _last_held(mask: Tensor) -> Tensor:
    """One more than the highest index of a neuron that each submodel holds [S]; 0 where it holds none."""
    number = torch.arange(1, mask.shape[1] + 1, device=mask.device, dtype=torch.int32)
    return torch.where(mask > 0, number, 0).amax(1)


def plain_logits(a: Tensor, layers: list[tuple[Tensor, Tensor]], masks: list[Tensor]) -> Tensor:
    """`submodel_logits` by torch's operations, as `compute.evaluation` has them."""
    (weight, bias), (last_weight, last_bias) = layers
    members, next_mask = len(masks[0]), masks[1].unsqueeze(1)
    hidden = torch.bmm(a * masks[0].unsqueeze(1), weight.expand(members, -1, -1)).add_(bias).relu_() * next_mask
    return torch.bmm(hidden, last_weight.expand(members, -1, -1)).add_(last_bias)


def main() -> None:
    for name, members, samples in (("FedSAC+", 180, 2500), ("FedRAC", 50, 5000), ("rewards", 10, 10000)):
        drawn = torch.Generator("cuda").manual_seed(0)
        numbers = [
            torch.randn(shape, generator=drawn, device="cuda") for shape in ((samples, 200), (200, 200), (200, 10))
        ]
        a, layers = numbers[0].relu(), [(weight, weight[0]) for weight in numbers[1:]]
        rank = torch.randperm(400, generator=drawn, device="cuda")
        held = (rank < torch.linspace(1, 400, members, device="cuda").unsqueeze(1)).float()
        inputs = a, layers, [held[:, :200], held[:, 200:]]
        error = (submodel_logits(*inputs) - plain_logits(*inputs)).abs().max() / plain_logits(*inputs).abs().max()
        ours, plain = (_milliseconds(lambda: of(*inputs)) for of in (submodel_logits, plain_logits))  # noqa: B023
        print(f"{name:10} kernel {ours:.3f} ms, torch {plain:.3f} ms, {plain / ours:.1f} times; error {error:.1e}")


def _milliseconds(work: Callable[[], Tensor]) -> float:
    work()
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    for _ in range(50):
        work()
    after.record()
    torch.cuda.synchronize()
    return before.elapsed_time(after) / 50


if __name__ == "__main__":
    main()
