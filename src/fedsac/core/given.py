"""Numbers as users give them to the public functions: lists, numpy arrays and tensors alike, checked before anything is
computed with them. Loads no torch."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fedsac.errors import FedsacError

if TYPE_CHECKING:
    from torch import Tensor

Values: TypeAlias = "Sequence[float] | np.ndarray | Tensor"
LARGEST = 1e150  # of a number, so that squares of it and their sums are finite, too


def numbers(name: str, values: Any) -> np.ndarray:
    """One finite number per client, or whatever `values` has one of: float64 [n], n > 0.

    >>> numbers("contributions", [1, .5]).tolist()
    [1.0, 0.5]
    >>> numbers("contributions", [.1, float("nan")])
    Traceback (most recent call last):
    fedsac.errors.FedsacError: contributions: number 2 is nan; only numbers that are finite will do
    """
    array = _array(name, values)
    if array.ndim != 1 or not len(array):
        raise FedsacError(f"{name} must be a list of numbers, at least one, not {_shape(array)}")
    usable = np.abs(array) <= LARGEST
    if not usable.all():
        first = int(np.argmin(usable))
        wanted = f"of at most {LARGEST:g}" if np.isfinite(array[first]) else "that are finite"
        raise FedsacError(f"{name}: number {first + 1} is {array[first]}; only numbers {wanted} will do")
    return array


def pairs(name: str, values: Any, other_name: str, others: Any) -> tuple[np.ndarray, np.ndarray]:
    """Two such lists of the same clients: of one length.

    >>> pairs("contributions", [.1, .2], "rewards", [.3])
    Traceback (most recent call last):
    fedsac.errors.FedsacError: as many rewards as contributions are needed, one of each client, not 1 and 2
    """
    first, second = numbers(name, values), numbers(other_name, others)
    if len(first) != len(second):
        raise FedsacError(
            f"as many {other_name} as {name} are needed, one of each client, not {len(second)} and {len(first)}"
        )
    return first, second


def number(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """One finite number, from `least` to `most`.

    >>> number("beta", -5, least=0)
    Traceback (most recent call last):
    fedsac.errors.FedsacError: beta must be a number of at least 0, not -5
    """
    array = _array(name, value)
    given = float(array) if array.ndim == 0 else math.nan
    if not (math.isfinite(given) and least <= given <= most):
        bounds = [f"of at least {least:g}"] * (least > -math.inf) + [f"at most {most:g}"] * (most < math.inf)
        raise FedsacError(f"{name} must be a number {' and '.join(bounds)}".rstrip() + f", not {value!r}")
    return given


def tensor(name: str, values: Any) -> "Tensor":
    """A tensor as it is, detached; of lists and arrays, one with their numbers, float64 where they are Python's.

    >>> tensor("x", [[1, .5]])
    tensor([[1.0000, 0.5000]], dtype=torch.float64)
    """
    import torch

    if isinstance(values, torch.Tensor):
        return values.detach()
    array = plain(name, values)
    if array.dtype.kind not in "biuf":
        raise FedsacError(f"{name} must be numbers, not {_described(values, array)}")
    # A copy, since torch takes no array that cannot be written to, nor one that is not in native order.
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("=")))


def finite_tensor(name: str, values: Any) -> "Tensor":
    """`tensor`, all of whose entries are finite."""
    given = tensor(name, values)
    if not given.isfinite().all():
        raise FedsacError(f"{name}: {int((~given.isfinite()).sum())} of {given.numel()} entries are NaN or infinite")
    return given


def samples(what: str, x: Any, y: Any) -> "tuple[Tensor, Tensor]":
    """Inputs [n, ...] and targets [n, ...], n > 0, all of them finite."""
    inputs, targets = finite_tensor(f"{what}: x", x), finite_tensor(f"{what}: y", y)
    if not inputs.ndim or not targets.ndim or not len(targets) or len(inputs) != len(targets):
        raise FedsacError(
            f"{what} needs as many targets as samples, at least one, not x of shape {tuple(inputs.shape)} and y of "
            f"{tuple(targets.shape)}"
        )
    return inputs, targets


def module(what: str, value: Any) -> None:
    """Raise unless this is a torch module."""
    from torch import nn

    if not isinstance(value, nn.Module):
        raise FedsacError(f"{what} takes a torch module (nn.Module), not {type(value).__name__}")


def placed(module: Any, values: Any, given: "Tensor") -> "Tensor":
    """What `tensor` made of `values`, where and of the type that a module takes; a tensor stays as it is."""
    import torch

    first = next(module.parameters(), None)
    if isinstance(values, torch.Tensor) or first is None:
        return given
    return given.to(first.device, first.dtype if given.is_floating_point() and first.is_floating_point() else None)


def mask(name: str, values: Any, length: int, each: str) -> "Tensor":
    """A boolean mask [length], one entry for `each` of something."""
    import torch

    given = tensor(name, values)
    if given.dtype != torch.bool or tuple(given.shape) != (length,):
        raise FedsacError(
            f"{name} must be a boolean mask of length {length}, one entry for each {each}, not {given.dtype} of shape "
            f"{tuple(given.shape)}"
        )
    return given


def _array(name: str, values: Any) -> np.ndarray:
    """Real numbers as float64, of any shape."""
    array = plain(name, values)
    if array.dtype.kind not in "iuf":
        raise FedsacError(f"{name} must be numbers, not {_described(values, array)}")
    return array.astype(np.float64)


def plain(name: str, values: Any) -> np.ndarray:
    """An array with what was given: a list, an array or a tensor."""
    if hasattr(values, "detach"):  # a tensor: torch need not be loaded to know
        values = values.detach().cpu().numpy()
    elif isinstance(values, Sequence) and any(hasattr(value, "detach") for value in values):
        values = [value.detach().cpu().numpy() if hasattr(value, "detach") else value for value in values]
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        raise FedsacError(f"{name} must be numbers in equal rows, not {_described(values, None)}") from None


def _described(values: Any, array: np.ndarray | None) -> str:
    if isinstance(values, str | bool | None) or (array is not None and array.ndim == 0):
        return repr(values)[:60]
    return type(values).__name__ + ("" if array is None else f" of {array.dtype}")


def _shape(array: np.ndarray) -> str:
    return "a single number" if array.ndim == 0 else f"an array of shape {array.shape}"
