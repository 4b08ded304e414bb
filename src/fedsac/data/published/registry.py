"""The published data sets: their files, where to download them, and where to look for them on this machine."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedsac.data.published.readers import (
    CIFAR_FILES,
    IDX_FILES,
    SVHN_FILES,
    TrainTest,
    present,
    read_cifar,
    read_idx_set,
    read_svhn,
)
from fedsac.errors import FedsacError

DIGITS = "digits"
DATA_ENV = "FEDSAC_DATA"

DIGIT_CLASSES = tuple(map(str, range(10)))
FASHION_CLASSES = (
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
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class PublishedDataSet:
    """A published data set that fedsac can find, download and read."""

    name: str
    folder: str  # its name, below --data-dir, FEDSAC_DATA or the cache
    files: tuple[str, ...]  # that the reader needs in that folder
    read: Callable[[Path], TrainTest]
    channels: int
    classes: tuple[str, ...]
    url: str  # the publisher's folder, ending in a slash
    md5: Mapping[str, str]  # the files to download from there and their hashes; one .tar.gz holds all `files`
    paper: bool = True
    system: Path | None = None  # where a Linux distribution's package puts the files


FASHION = PublishedDataSet(
    name="fashion-mnist",
    folder="fashion-mnist",
    files=IDX_FILES,
    read=read_idx_set,
    channels=1,
    classes=FASHION_CLASSES,
    url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    md5={
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    system=Path("/usr/share/datasets/fashion-mnist"),  # Debian's dataset-fashion-mnist
)
CIFAR10 = PublishedDataSet(
    name="cifar10",
    folder="cifar-10-batches-bin",
    files=CIFAR_FILES,
    read=read_cifar,
    channels=3,
    classes=CIFAR10_CLASSES,
    url="https://www.cs.toronto.edu/~kriz/",
    md5={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
)
SVHN = PublishedDataSet(
    name="svhn",
    folder="svhn",
    files=SVHN_FILES,
    read=read_svhn,
    channels=3,
    classes=DIGIT_CLASSES,
    url="http://ufldl.stanford.edu/housenumbers/",
    md5={
        "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
        "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    },
)
MNIST = PublishedDataSet(
    name="mnist",
    folder="mnist",
    files=IDX_FILES,
    read=read_idx_set,
    channels=1,
    classes=DIGIT_CLASSES,
    url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    md5={
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    paper=False,
)
PUBLISHED: dict[str, PublishedDataSet] = {s.name: s for s in (FASHION, CIFAR10, SVHN, MNIST)}


@dataclass(frozen=True)
class SearchResult:
    """The folder that has all files of a data set; or None, and the folders that have some of them."""

    folder: Path | None
    partial: tuple[str, ...]  # "FOLDER lacks A, B"


def find(wanted: PublishedDataSet, data_dir: Path | None) -> SearchResult:
    """Look for the files of a data set: in `data_dir`, FEDSAC_DATA, the cache, the distribution's package."""
    partial = []
    for folder in _folders(wanted, data_dir):
        missing = [name for name in wanted.files if present(folder, name) is None]
        if not missing:
            return SearchResult(folder, ())
        if len(missing) < len(wanted.files):
            partial.append(f"{folder} lacks {', '.join(missing)}")
    return SearchResult(None, tuple(partial))


def _folders(wanted: PublishedDataSet, data_dir: Path | None) -> Iterator[Path]:
    if data_dir is not None:
        yield require_folder(data_dir, "--data-dir") / wanted.folder
        # MNIST's files have the same names as Fashion-MNIST's: skip a folder named after another data set.
        if data_dir.resolve().name not in {s.folder for s in PUBLISHED.values()} - {wanted.folder}:
            yield data_dir
    if env := os.environ.get(DATA_ENV):
        yield require_folder(Path(env), DATA_ENV) / wanted.folder
    yield cache_folder() / wanted.folder
    if wanted.system is not None:
        yield wanted.system


def require_folder(root: Path, source: str) -> Path:
    """Return the folder if it exists, else raise: a misspelt one must not lead to a silent download elsewhere."""
    if not root.is_dir():
        raise FedsacError(f"{root} ({source}) is not a folder; make it or name another")
    return root


def cache_folder() -> Path:
    """Where downloads go unless --data-dir names another folder."""
    from platformdirs import user_cache_path  # here: runs on data that is at hand need it not

    return user_cache_path("fedsac")
