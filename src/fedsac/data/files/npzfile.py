"""Reading an .npz file: arrays `x` and `y`, and `x_test` and `y_test` if there is a test set."""

import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from fedsac.data.files.labels import label_texts
from fedsac.data.files.tables import Table
from fedsac.data.messages import cause, some, unreadable
from fedsac.errors import FedsacError

MAX_CHANNELS = 4  # of an image: grey, colour, colour with transparency
SAVE_HINT = "save the arrays again with np.savez"


def npz_names(path: Path) -> set[str]:
    """The names of the arrays in the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as err:
        raise FedsacError(f"{path}: not an .npz file that can be read ({cause(err)}); {SAVE_HINT}") from err
    except OSError as err:
        raise unreadable(path, err) from err


def read_npz(path: Path, require_label: bool, part: str = "") -> Table:
    """The samples in the arrays `x` and `y` of the file, or `x_test` and `y_test` if `part` is "_test"."""
    x_name, y_name = f"x{part}", f"y{part}"
    names = npz_names(path)
    for key in (x_name, y_name) if require_label else (x_name,):
        if key not in names:
            raise FedsacError(
                f"{path}: no array {key} (there are: {some(sorted(names))}); {SAVE_HINT} as {x_name}= and {y_name}="
            )
    stored = _array(path, x_name)
    x, channel = samples(stored, f"{path}: {x_name}")
    labels = _labels(_array(path, y_name), len(x), f"{path}: {y_name}") if y_name in names else None
    return Table(x, labels, (), channel, top=255.0 if x.dtype == np.uint8 else 1.0, image=image_shape(stored.shape))


def _array(path: Path, key: str) -> np.ndarray:
    try:
        with np.load(path, allow_pickle=False) as file:
            array = file[key]
        if not isinstance(array, np.ndarray):  # numpy returns the bytes of a member that is not an array
            raise ValueError("not an array")
        return array
    # Damage may show in zipfile, zlib or numpy's header parser, each with exceptions of its own.
    except (ValueError, TypeError, SyntaxError, tokenize.TokenError, NotImplementedError, MemoryError) as err:
        if "Object arrays" in str(err):
            raise FedsacError(
                f"{path}: {key} holds Python objects, which are never loaded; {SAVE_HINT} as numbers or text"
            ) from err
        raise _damaged(path, key, err) from err
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError) as err:
        raise _damaged(path, key, err) from err
    except OSError as err:
        raise unreadable(path, err) from err


def _damaged(path: Path, key: str, err: Exception) -> FedsacError:
    return FedsacError(f"{path}: {key} cannot be read ({cause(err)}); {SAVE_HINT}")


def samples(x: np.ndarray, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Samples as rows [n, d] of uint8 or float64, and the channel of each feature [d]."""
    shape = "x".join(map(str, x.shape))
    if x.dtype.kind not in "biuf":
        raise FedsacError(f"{where} is {x.dtype}, not numbers; save it as uint8 or as a float type")
    if x.ndim not in (2, 3, 4):
        raise FedsacError(
            f"{where} has shape {shape or '()'}; use [n, d] for a table, [n, h, w] or [n, h, w, c] for images "
            "(or [n, c, h, w])"
        )
    if x.size == 0:
        raise FedsacError(f"{where} has shape {shape}, so it holds no sample; save at least one")
    n, d = len(x), x.size // len(x)
    if x.ndim == 2:
        channel = np.arange(d)
    else:
        channels = 1 if x.ndim == 3 else x.shape[1] if channels_first(x.shape) else x.shape[3]
        spread = np.repeat if channels_first(x.shape) else np.tile
        channel = spread(np.arange(channels), d // channels)
    rows = x.reshape(n, d)
    if x.dtype != np.uint8:
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        _refuse_non_finite(rows, x.shape, where)
    return rows, channel.astype(np.int64)


def channels_first(shape: tuple[int, ...]) -> bool:
    """Whether images [n, ...] have their channels before the pixels: one to four channels there, and more at the end.

    >>> channels_first((10, 3, 32, 32)), channels_first((10, 32, 32, 3))
    (True, False)
    """
    return len(shape) == 4 and shape[1] <= MAX_CHANNELS < shape[3]


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Channels, height and width of images stored as [n, ...]; None where it is a table."""
    if len(shape) == 4:
        return shape[1:] if channels_first(shape) else (shape[3], shape[1], shape[2])
    return (1, shape[1], shape[2]) if len(shape) == 3 else None


def _refuse_non_finite(rows: np.ndarray, shape: tuple[int, ...], where: str) -> None:
    finite = np.isfinite(rows)
    if finite.all():
        return
    row, column = (int(i) for i in np.argwhere(~finite)[0])
    index = ", ".join(str(int(i)) for i in np.unravel_index(row * rows.shape[1] + column, shape))
    raise FedsacError(
        f"{where}[{index}] (row {row}, column {column}, counting from 0) is {rows[row, column]}; "
        "fill it in or drop the sample"
    )


def _labels(y: np.ndarray, n: int, where: str) -> list[str]:
    if y.ndim != 1:
        raise FedsacError(f"{where} has shape {'x'.join(map(str, y.shape)) or '()'}; use [n], one label a sample")
    if len(y) != n:
        raise FedsacError(f"{where} has {len(y)} labels for {n} samples; give each sample one label")
    texts = label_texts(y, where)
    if y.dtype.kind in "if" and (bad := np.flatnonzero(y < 0)).size:
        i = int(bad[0])
        raise FedsacError(f"{where}[{i}] (row {i}, counting from 0) is {y[i]}; number classes from 0 up")
    return texts
