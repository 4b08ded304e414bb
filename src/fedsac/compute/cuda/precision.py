"""The precision of matrix products on a GPU: float32, or less and faster where a run asks for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_current = "float32"


def current() -> str:
    """The precision of this package's kernels: float32, tf32 or bf16."""
    return _current


@contextmanager
def using(name: str, device: torch.device) -> Iterator[None]:
    """Set the precision inside a `with` block: of this package's kernels and of torch's own products and convolutions
    on a GPU. Torch uses TF32 for both tf32 and bf16. On a CPU nothing changes."""
    global _current
    if device.type != "cuda":
        yield
        return
    before, torch_before = _current, _torch_precision()
    _current = name
    wanted = "ieee" if name == "float32" else "tf32"
    _set_torch_precision(wanted, wanted)
    try:
        yield
    finally:
        _current = before
        _set_torch_precision(*torch_before)


# torch has an old and a new attribute for it, and raises when the old one is read after the new one was set.
_matmul = torch.backends.cuda.matmul
_NEW = hasattr(_matmul, "fp32_precision")


_conv: Any = getattr(torch.backends.cudnn, "conv", None)  # of convolutions, which have TF32 unless somebody says no


def _torch_precision() -> tuple[str, str]:
    """Of matrix products, and of convolutions."""
    if _NEW:
        return str(_matmul.fp32_precision), "ieee" if _conv is None else str(_conv.fp32_precision)
    cudnn = torch.backends.cudnn
    return "tf32" if _matmul.allow_tf32 else "ieee", "tf32" if cudnn.allow_tf32 else "ieee"


def _set_torch_precision(products: str, convolutions: str) -> None:
    if _NEW:
        _matmul.fp32_precision = products
        if _conv is not None:
            _conv.fp32_precision = convolutions
    else:
        _matmul.allow_tf32 = products == "tf32"
        torch.backends.cudnn.allow_tf32 = convolutions == "tf32"
