"""The precision of matrix products on a GPU: float32, or less and faster where a run asks for it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_current = "float32"


def current() -> str:
    """The precision of this package's kernels: float32, tf32 or bf16."""
    return _current


@contextmanager
def using(name: str, device: torch.device) -> Iterator[None]:
    """Set the precision inside a `with` block: of this package's kernels and of torch's own products on a GPU. Torch
    uses TF32 for both tf32 and bf16. On a CPU nothing changes."""
    global _current
    if device.type != "cuda":
        yield
        return
    before, torch_before = _current, _torch_precision()
    _current = name
    _set_torch_precision("ieee" if name == "float32" else "tf32")
    try:
        yield
    finally:
        _current = before
        _set_torch_precision(torch_before)


# torch has an old and a new attribute for it, and raises when the old one is read after the new one was set.
_matmul = torch.backends.cuda.matmul
_NEW = hasattr(_matmul, "fp32_precision")


def _torch_precision() -> str:
    return str(_matmul.fp32_precision) if _NEW else ("tf32" if _matmul.allow_tf32 else "ieee")


def _set_torch_precision(value: str) -> None:
    if _NEW:
        _matmul.fp32_precision = value
    else:
        _matmul.allow_tf32 = value == "tf32"
