"""Downloads from a real server on this machine."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fedsac.data.catalogue import fetch, load
from fedsac.data.published.registry import PUBLISHED
from tests.data.made import cifar_content, idx_content, images, put, refused

ARCHIVE = "cifar-10-binary.tar.gz"


@dataclass
class Mirror:
    """What the server has, what it breaks off in the middle, and what it was asked for."""

    files: dict[str, bytes] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def handler(self) -> type[BaseHTTPRequestHandler]:
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror.asked.append(self.path)
                content = mirror.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if self.path in mirror.broken else content)

            def log_message(self, *args: object) -> None:
                pass

        return Handler


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    made = Mirror()
    with ThreadingHTTPServer(("127.0.0.1", 0), made.handler()) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        monkeypatch.setenv("FEDSAC_MIRROR", f"http://127.0.0.1:{server.server_port}/data/")
        yield made
        server.shutdown()
        thread.join()


Offer = Callable[[str, dict[str, bytes]], None]


@pytest.fixture
def offer(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Put files on the mirror and their hashes into the table."""

    def put_up(name: str, content: dict[str, bytes]) -> None:
        md5 = {file: hashlib.md5(raw).hexdigest() for file, raw in content.items()}
        monkeypatch.setitem(PUBLISHED, name, replace(PUBLISHED[name], md5=md5))
        mirror.files |= {f"/data/{name}/{file}": raw for file, raw in content.items()}

    return put_up


def archive(content: dict[str, bytes], folder: str = "cifar-10-batches-bin/") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, raw in content.items():
            member = tarfile.TarInfo(folder + name)
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    return out.getvalue()


def everything(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_into_the_user_cache(own_machine: Path, offer: Offer, mirror: Mirror) -> None:
    offer("mnist", idx_content(20, 10))
    assert np.array_equal(load("mnist").x, images(20, 784))
    assert everything(own_machine) == ["mnist", *(f"mnist/{name}" for name in sorted(idx_content()))]
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in (own_machine / "mnist").iterdir())
    asked = len(mirror.asked)
    assert asked == 4
    load("mnist")
    assert len(mirror.asked) == asked  # it is there now


def test_into_data_dir(tmp_path: Path, own_machine: Path, offer: Offer) -> None:
    offer("fashion-mnist", idx_content())
    assert fetch("fashion-mnist", tmp_path) == tmp_path / "fashion-mnist"
    assert everything(own_machine) == []


class Terminal(io.StringIO):
    """Where a person looks."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("quiet", [True, False])
def test_progress_is_shown_to_a_person_who_wants_it(
    tmp_path: Path, offer: Offer, monkeypatch: pytest.MonkeyPatch, quiet: bool
) -> None:
    offer("mnist", idx_content())
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    fetch("mnist", tmp_path, quiet=quiet)
    assert ("train-images-idx3-ubyte.gz: 100%" in screen.getvalue()) == (not quiet)
    assert not quiet or screen.getvalue() == ""


def test_progress_is_not_written_into_a_log(tmp_path: Path, offer: Offer, capsys: pytest.CaptureFixture[str]) -> None:
    offer("mnist", idx_content())
    fetch("mnist", tmp_path, quiet=False)
    assert capsys.readouterr() == ("", "")


def test_only_what_is_missing_is_fetched(tmp_path: Path, offer: Offer, mirror: Mirror) -> None:
    content = idx_content()
    offer("mnist", content)
    mine = dict(list(idx_content(7).items())[:2])  # the user's own, with other hashes
    put(tmp_path / "mnist", mine)
    assert len(load("mnist", tmp_path).x) == 7
    assert mirror.asked == ["/data/mnist/t10k-images-idx3-ubyte.gz", "/data/mnist/t10k-labels-idx1-ubyte.gz"]


def test_wrong_hash_leaves_nothing(tmp_path: Path, offer: Offer, mirror: Mirror) -> None:
    content = idx_content()
    offer("mnist", content)
    url = "/data/mnist/train-images-idx3-ubyte.gz"
    good = hashlib.md5(mirror.files[url]).hexdigest()
    mirror.files[url] = b"something else"
    bad = hashlib.md5(b"something else").hexdigest()
    with refused(url, f"expected md5 {good}", f"got {bad}", "removed"):
        load("mnist", tmp_path)
    assert everything(tmp_path) == []


def test_missing_on_the_server(tmp_path: Path, offer: Offer, mirror: Mirror) -> None:
    offer("mnist", idx_content())
    del mirror.files["/data/mnist/t10k-labels-idx1-ubyte.gz"]
    with refused("t10k-labels-idx1-ubyte.gz: HTTP 404", "mnist is not on this machine", tmp_path / "mnist"):
        load("mnist", tmp_path)
    # The three that came whole and were checked stay; the next attempt asks for the fourth alone.
    assert len(everything(tmp_path / "mnist")) == 3


def test_connection_that_breaks_leaves_nothing(tmp_path: Path, offer: Offer, mirror: Mirror) -> None:
    offer("mnist", idx_content())
    mirror.broken = set(mirror.files)
    with refused("train-images-idx3-ubyte.gz", "connection broke"):
        load("mnist", tmp_path)
    assert everything(tmp_path) == []


def test_archive_is_unpacked_and_removed(tmp_path: Path, offer: Offer) -> None:
    content = cifar_content(2)
    offer("cifar10", {ARCHIVE: archive(content | {"readme.html": b"hello"})})
    assert len(load("cifar10", tmp_path).x) == 10
    assert everything(tmp_path / "cifar-10-batches-bin") == sorted(content)


def test_members_that_point_elsewhere_are_ignored(tmp_path: Path, offer: Offer) -> None:
    root = tmp_path / "root"
    root.mkdir()
    content = cifar_content(2) | {"../../escaped.bin": b"evil", "../test_batch.bin": b"evil"}
    offer("cifar10", {ARCHIVE: archive(content)})
    assert len(load("cifar10", root).x) == 10
    assert everything(tmp_path) == [
        "root",
        "root/cifar-10-batches-bin",
        *(f"root/cifar-10-batches-bin/{name}" for name in sorted(cifar_content())),
    ]


def test_link_in_the_place_of_a_member_is_refused(tmp_path: Path, offer: Offer) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        member = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    offer("cifar10", {ARCHIVE: out.getvalue()})
    with refused(ARCHIVE, "data_batch_1.bin", "not a plain file"):
        load("cifar10", tmp_path)
    assert everything(tmp_path) == []


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"no archive at all", "cannot be unpacked"),
        (archive(cifar_content(2))[:-3000], "cannot be unpacked"),
        (archive({"data_batch_1.bin": bytes(3073)}), "lacks cifar-10-batches-bin/data_batch_2.bin"),
        (archive(cifar_content(2), folder="elsewhere/"), "lacks cifar-10-batches-bin/data_batch_1.bin"),
    ],
)
def test_archive_that_is_damaged(tmp_path: Path, offer: Offer, raw: bytes, told: str) -> None:
    offer("cifar10", {ARCHIVE: raw})
    with refused(f"/data/cifar10/{ARCHIVE}", told):
        load("cifar10", tmp_path)
    assert everything(tmp_path) == []
