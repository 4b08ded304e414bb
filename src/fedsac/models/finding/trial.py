"""What the units of a network are proved on: a copy in float64, with parameters and inputs that hide no errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from fedsac.errors import FedsacError
from fedsac.models.finding.shrinking import copied


class Trial:
    """A copy of a network in float64, whose parameters can be drawn anew, and its inputs."""

    def __init__(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.module = copied(module).double().eval()
        self._start = {name: tensor.clone() for name, tensor in self._drawn().items()}
        self._rng = torch.Generator().manual_seed(1)
        tensors = [each for each in pytree.tree_leaves(inputs) if isinstance(each, Tensor)]
        if tensors and all(not each.is_floating_point() and (each == each.flatten()[:1]).all() for each in tensors):
            raise FedsacError(
                "all numbers of the inputs are the same, which would hide errors (what attends to equal things attends "
                "to all alike); give inputs as they are in the data"
            )
        self.inputs = pytree.tree_map(self._input, inputs)
        self.draw()

    def draw(self, strength: float = 1.0) -> None:
        """Other parameters near the network's own, further away the greater the `strength`: what is 0 at first, as a
        bias or half of a LoRA adapter, or very small, would hide errors."""
        with torch.no_grad():
            for name, tensor in self._drawn().items():
                start = self._start[name]
                if name.endswith("running_var"):
                    tensor.copy_(start * (1 + 0.5 * torch.rand(start.shape, generator=self._rng).to(start)))
                else:
                    tensor.copy_(start + strength * self._noise(start))

    def _drawn(self) -> dict[str, Tensor]:
        """The tensors that are drawn: of the buffers, only the statistics of a batch norm."""
        statistics = {
            name: buffer
            for name, buffer in self.module.named_buffers()
            if name.endswith(("running_mean", "running_var"))
        }
        return {name: p for name, p in self.module.named_parameters() if p.is_floating_point()} | statistics

    def _noise(self, tensor: Tensor) -> Tensor:
        """Noise of a third of the tensor's spread, but no less than what makes itself felt."""
        inputs = tensor[0].numel() if tensor.ndim > 1 else 10
        spread = max(0.3 * float(tensor.std()) if tensor.numel() > 1 else 0.0, 0.3 / max(inputs, 1) ** 0.5)
        noise = torch.randn(tensor.shape, generator=self._rng, dtype=tensor.dtype)
        return noise.mul_(spread).to(tensor.device)

    def _input(self, value: Any) -> Any:
        """An input in float64. One that is the same everywhere (`torch.zeros`, to give a shape) would hide errors."""
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        value = value.detach().double()
        if value.numel() > 1 and (value == value.flatten()[0]).all():
            noise = torch.randn(value.shape, generator=self._rng, dtype=value.dtype).to(value.device)
            value = torch.where(value == 0, noise, value * (1 + 0.3 * noise))
        return value


@contextmanager
def in_double() -> Iterator[None]:
    """All that a network computes is in float64, also where its code asks for float32."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Double():
            yield
    finally:
        torch.set_default_dtype(default)


_CASTS: dict[Any, Any] = {Tensor.float: Tensor.double, Tensor.half: Tensor.double, Tensor.bfloat16: Tensor.double}
_WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


class _Double(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wide = [_wide(arg) for arg in args]
        return _CASTS.get(func, func)(*wide, **{name: _wide(arg) for name, arg in (kwargs or {}).items()})


def _wide(value: Any) -> Any:
    return _WIDE.get(value, value) if isinstance(value, torch.dtype) else value
