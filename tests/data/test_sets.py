import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsac.data.catalogue import check, fetch, listing, load
from fedsac.data.published import registry
from fedsac.data.published.registry import PUBLISHED
from tests.data.made import cifar_content, idx_content, put, put_svhn, refused


def test_digits_are_embedded() -> None:
    data = load("digits")
    assert data.x.shape == (1797, 64) and data.x.dtype == np.uint8 and data.x.max() == data.top == 16
    assert data.y.dtype == np.int64 and data.classes == tuple("0123456789")
    assert data.channel.tolist() == [0] * 64 and data.x_test is None and not data.paper
    assert check("digits").startswith("digits: 1,797 samples, 64 features, 10 classes")
    assert (fetch("digits") / "digits.csv.gz").is_file()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("fashion_mnist", "did you mean fashion-mnist?"),
        ("CIFAR10", "did you mean cifar10?"),
        ("nowhere/at/all.csv", "'nowhere/at/all.csv'"),
    ],
)
def test_unknown_name(name: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with refused(told, "digits, fashion-mnist, cifar10, svhn, mnist", ".npz, .csv, .parquet", "folder"):
        load(name)


def test_only_names_can_be_fetched(tmp_path: Path) -> None:
    with refused("digits, fashion-mnist"):
        fetch(str(tmp_path))


def test_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_text("x")
    with refused(tmp_path / "a.xlsx", ".xlsx", ".npz, .csv, .parquet"):
        load(str(tmp_path / "a.xlsx"))


def test_import_needs_only_numpy() -> None:
    lazy = ["pooch", "requests", "tqdm", "sklearn", "pyarrow", "scipy", "torch"]
    # A bare package in the place of fedsac: its own __init__ may well import more.
    code = (
        "import sys, types; bare = types.ModuleType('fedsac'); bare.__path__ = [sys.argv[1]]; "
        "sys.modules['fedsac'] = bare; import fedsac.data.catalogue; "
        f"print([m for m in {lazy} if m in sys.modules])"
    )
    package = str(Path(registry.__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", code, package], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_order_of_the_places(tmp_path: Path, own_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, env, system = tmp_path / "given", tmp_path / "env", tmp_path / "system"
    wanted = replace(PUBLISHED["fashion-mnist"], system=system)
    monkeypatch.setitem(PUBLISHED, "fashion-mnist", wanted)
    monkeypatch.setenv("FEDSAC_DATA", str(env))
    given.mkdir()
    env.mkdir()
    # From the last place to the first: each new copy takes precedence over those before it.
    for n, folder in enumerate(
        [system, own_machine / wanted.folder, env / wanted.folder, given, given / wanted.folder], 1
    ):
        put(folder, idx_content(n, 1))
        assert len(load(wanted.name, given).x) == n
        assert fetch(wanted.name, given) == folder


def test_files_of_another_set_in_its_own_folder_are_not_taken(tmp_path: Path) -> None:
    folder = put(tmp_path / "fashion-mnist", idx_content())
    assert load("fashion-mnist", folder).name == "fashion-mnist"
    with refused("mnist is not on this machine"):
        load("mnist", folder)
    folder = put(tmp_path / "files", idx_content())
    assert load("mnist", folder).name == "mnist"


@pytest.mark.parametrize("name", ["cifar10", "svhn"])
def test_data_dir_may_be_the_folder_itself(tmp_path: Path, name: str) -> None:
    put(tmp_path / "cifar-10-batches-bin", cifar_content())
    put_svhn(tmp_path / "svhn")
    assert len(load(name, tmp_path / PUBLISHED[name].folder).x) == len(load(name, tmp_path).x)


def test_places_that_do_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(tmp_path / "no", "--data-dir", "not a folder"):
        load("mnist", tmp_path / "no")
    with refused(tmp_path / "no", "--data-dir", "not a folder"):
        fetch("mnist", tmp_path / "no")
    monkeypatch.setenv("FEDSAC_DATA", str(tmp_path / "gone"))
    with refused(tmp_path / "gone", "FEDSAC_DATA", "not a folder"):
        load("mnist")
    put(tmp_path / "mnist", idx_content())
    assert load("mnist", tmp_path).name == "mnist"  # found before the wrong setting matters


def test_listing(tmp_path: Path) -> None:
    put(tmp_path / "mnist", idx_content())
    put(tmp_path / "cifar-10-batches-bin", {"test_batch.bin": b""})  # only one of six
    listed = {entry.name: entry for entry in listing(tmp_path)}
    assert list(listed) == ["digits", "fashion-mnist", "cifar10", "svhn", "mnist"]
    assert listed["mnist"].folder == tmp_path / "mnist"
    assert listed["cifar10"].folder is None and listed["fashion-mnist"].folder is None
    assert "embedded" in listed["digits"].what and listed["digits"].folder is not None
    assert listed["mnist"].what == "60,000 + 10,000 images 28x28 of digits, 10 classes"


def test_offline_message(tmp_path: Path, own_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = idx_content()
    del content["t10k-images-idx3-ubyte.gz"]
    put(own_machine / "mnist", content)
    start = time.perf_counter()
    with refused(
        "mnist is not on this machine",
        f"{own_machine / 'mnist'} lacks t10k-images-idx3-ubyte.gz",
        "no connection to 127.0.0.1:9",
        "train-images-idx3-ubyte.gz, train-labels",
        "http://127.0.0.1:9/mnist/",
        tmp_path / "mnist",
        "--data-dir",
        "FEDSAC_DATA",
    ):
        load("mnist", tmp_path)
    assert time.perf_counter() - start < 10
    assert list(tmp_path.iterdir()) == []
    with refused("cifar-10-binary.tar.gz", "unpack it there", f"into {own_machine};"):
        load("cifar10")


def test_publishers_address_is_told_without_a_mirror(own_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSAC_MIRROR")
    # A proxy that is not there: offline, whatever the network of the machine the test runs on.
    for variable in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with refused("http://ufldl.stanford.edu/housenumbers/", "train_32x32.mat, test_32x32.mat", own_machine / "svhn"):
        load("svhn")


@pytest.mark.parametrize("mirror", ["/srv/mirror", "ftp://here/data", "http://", "http://[half"])
def test_mirror_must_be_an_address(monkeypatch: pytest.MonkeyPatch, mirror: str) -> None:
    monkeypatch.setenv("FEDSAC_MIRROR", mirror)
    with refused("FEDSAC_MIRROR", repr(mirror), "http(s)://"):
        load("mnist")


def test_file_where_the_folder_belongs(tmp_path: Path) -> None:
    (tmp_path / "mnist").write_text("")
    with refused(tmp_path / "mnist", "cannot be written", "--data-dir"):
        load("mnist", tmp_path)
