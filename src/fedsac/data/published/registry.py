"""The sets that can be named: what they are, where their publishers keep them, where they lie here."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from fedsac.data.published.readers import (
    CIFAR_FILES,
    IDX_FILES,
    SVHN_FILES,
    Split,
    present,
    read_cifar,
    read_idx_set,
    read_svhn,
)
from fedsac.errors import FedsacError

DIGITS = "digits"
DATA_ENV = "FEDSAC_DATA"

TEN = tuple(map(str, range(10)))
CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class Published:
    """A set that somebody publishes and fedsac can find, fetch and read."""

    name: str
    folder: str  # below a root
    files: tuple[str, ...]  # what the reader needs in that folder
    read: Callable[[Path], Split]
    channels: int
    classes: tuple[str, ...]
    url: str  # the publisher's folder, with its last slash
    md5: Mapping[str, str]  # what is downloaded from there; one .tar.gz stands for all the files
    paper: bool = True
    system: Path | None = None  # where a Linux distribution's package puts the files


FASHION = Published(
    name="fashion-mnist",
    folder="fashion-mnist",
    files=IDX_FILES,
    read=read_idx_set,
    channels=1,
    classes=CLOTHES,
    url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    md5={
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    system=Path("/usr/share/datasets/fashion-mnist"),  # Debian's dataset-fashion-mnist
)
CIFAR10 = Published(
    name="cifar10",
    folder="cifar-10-batches-bin",
    files=CIFAR_FILES,
    read=read_cifar,
    channels=3,
    classes=THINGS,
    url="https://www.cs.toronto.edu/~kriz/",
    md5={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
)
SVHN = Published(
    name="svhn",
    folder="svhn",
    files=SVHN_FILES,
    read=read_svhn,
    channels=3,
    classes=TEN,
    url="http://ufldl.stanford.edu/housenumbers/",
    md5={
        "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
        "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    },
)
MNIST = Published(
    name="mnist",
    folder="mnist",
    files=IDX_FILES,
    read=read_idx_set,
    channels=1,
    classes=TEN,
    url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    md5={
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    paper=False,
)
PUBLISHED: dict[str, Published] = {s.name: s for s in (FASHION, CIFAR10, SVHN, MNIST)}


@dataclass(frozen=True)
class Found:
    """The outcome of a search: the folder that has all the files, or None and what was there in part."""

    folder: Path | None
    partial: tuple[str, ...]  # "FOLDER lacks A, B"


def find(wanted: Published, data_dir: Path | None) -> Found:
    """Look for all the files of a set in the places there are, the nearest to the user first."""
    partial = []
    for folder in _folders(wanted, data_dir):
        missing = [name for name in wanted.files if present(folder, name) is None]
        if not missing:
            return Found(folder, ())
        if len(missing) < len(wanted.files):
            partial.append(f"{folder} lacks {', '.join(missing)}")
    return Found(None, tuple(partial))


def _folders(wanted: Published, data_dir: Path | None) -> Iterator[Path]:
    if data_dir is not None:
        yield existing(data_dir, "--data-dir") / wanted.folder
        # MNIST's files have the names of Fashion-MNIST's: a folder named after another set is not ours.
        if data_dir.resolve().name not in {s.folder for s in PUBLISHED.values()} - {wanted.folder}:
            yield data_dir
    if env := os.environ.get(DATA_ENV):
        yield existing(Path(env), DATA_ENV) / wanted.folder
    yield cache() / wanted.folder
    if wanted.system is not None:
        yield wanted.system


def existing(root: Path, source: str) -> Path:
    """The folder itself; a misspelt one must not end in a silent download elsewhere."""
    if not root.is_dir():
        raise FedsacError(f"{root} ({source}) is not a folder; make it or name another")
    return root


def cache() -> Path:
    """Where downloads go when no folder was named."""
    return user_cache_path("fedsac")
