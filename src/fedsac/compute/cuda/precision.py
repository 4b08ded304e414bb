"""How exact a GPU's products are: float32, or less and faster where a run asks for it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_now = "float32"


def now() -> str:
    """float32, tf32 or bf16: what the kernels compute in."""
    return _now


@contextmanager
def using(name: str, device: torch.device) -> Iterator[None]:
    """This precision for the kernels and, as TF32 if it is less than float32, for torch's own products on a GPU;
    afterwards as it was. A CPU's are never touched."""
    global _now
    if device.type != "cuda":
        yield
        return
    before, torchs = _now, _get()
    _now = name
    _set("ieee" if name == "float32" else "tf32")
    try:
        yield
    finally:
        _now = before
        _set(torchs)


# torch has two ways to say it, and refuses to be asked by the old one once the new one was used.
_matmul = torch.backends.cuda.matmul
_NEW = hasattr(_matmul, "fp32_precision")


def _get() -> str:
    return str(_matmul.fp32_precision) if _NEW else ("tf32" if _matmul.allow_tf32 else "ieee")


def _set(value: str) -> None:
    if _NEW:
        _matmul.fp32_precision = value
    else:
        _matmul.allow_tf32 = value == "tf32"
