"""What several tests share: the reference material and real data beside the repository, where there is any."""

import subprocess
import sys
from pathlib import Path

import pytest

import fedsac  # noqa: F401 (before torch, as users should: its threads then leave room for other processes)

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    import torch

    torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared() -> Path:
    if not (SHARED / "paper" / "tables.json").exists():
        pytest.skip("needs the paper's tables, in a folder shared/ beside the repository")
    return SHARED


@pytest.fixture(scope="session")
def real_data(tmp_path_factory) -> Path:
    """Fashion-MNIST, CIFAR-10 and SVHN in their published formats."""
    script = SHARED / "data" / "unpack.py"
    if not script.exists():
        pytest.skip("needs real data, in a folder shared/data beside the repository")
    folder = tmp_path_factory.mktemp("real-data")
    subprocess.run([sys.executable, str(script), str(folder)], check=True)
    return folder
