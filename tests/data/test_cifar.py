from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsac.data.catalogue import load
from tests.data.made import cifar_content, cifar_records, images, put, refused, unhurried

FOLDER = "cifar-10-batches-bin"


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cifar")


def test_six_batches_are_a_set(tmp_path: Path) -> None:
    put(tmp_path / FOLDER, cifar_content(3))
    data = load("cifar10", tmp_path)
    assert np.array_equal(data.x, np.concatenate([images(3, 3072, i) for i in range(5)]))
    assert data.x_test is not None and np.array_equal(data.x_test, images(3, 3072, 5))
    assert data.y.tolist() == [i + k for i in range(5) for k in range(3)]
    assert data.channel.tolist() == [0] * 1024 + [1] * 1024 + [2] * 1024
    assert data.classes[0] == "airplane" and data.top == 255 and data.paper


def test_batches_may_differ_in_size(tmp_path: Path) -> None:
    content = cifar_content(3) | {"data_batch_2.bin": cifar_records(images(1, 3072), np.array([4]))}
    assert len(load("cifar10", put(tmp_path / FOLDER, content).parent).x) == 13


@unhurried
@given(st.integers(0, 2 * 3073).filter(lambda size: size % 3073 or size == 0))
def test_any_truncation_within_a_record_is_refused(root: Path, size: int) -> None:
    content = cifar_content(3)
    content["data_batch_4.bin"] = content["data_batch_4.bin"][:size]
    with refused(root / FOLDER / "data_batch_4.bin", "truncated", f"{size} bytes"):
        load("cifar10", put(root / FOLDER, content).parent)


def test_label_out_of_range(tmp_path: Path) -> None:
    content = cifar_content(3) | {"test_batch.bin": cifar_records(images(3, 3072), np.array([1, 2, 77]))}
    with refused(tmp_path / FOLDER / "test_batch.bin", "record 2", f"byte {2 * 3073}", "77"):
        load("cifar10", put(tmp_path / FOLDER, content).parent)
