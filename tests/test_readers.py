"""Foreign bytes: whatever is in a file or a message, only our errors come out of its reader, in bounded memory."""

import gzip
import io
import os
import resource
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from benchmarks.fuzz.mutator import MAX_GROWTH, mutated
from benchmarks.fuzz.readers import TINY, Reader, damaged, readers
from benchmarks.fuzz.trying import MEGABYTES, tried
from fedsac import Config, FedsacError, resume, run
from fedsac.data.catalogue import load
from fedsac.data.published.readers import read_idx_images, read_svhn
from fedsac.federation.guard import Asked, Raw, RefusedError, Reply, admit
from fedsac.paper.typed import is_of
from fedsac.runs import checkpoint

FEW = 40
REFUSES_ALL = {"comparison", "reply that declines"}


@pytest.fixture(scope="module")
def all_readers(tmp_path_factory):
    return list(readers(tmp_path_factory.mktemp("readers")))


def test_the_sound_payload_of_every_reader_is_read(all_readers):
    """Otherwise everything would be refused for another reason than its damage."""
    assert len({reader.name for reader in all_readers}) == len(all_readers) > 30
    for reader in all_readers:
        if reader.name in REFUSES_ALL:
            with pytest.raises(FedsacError, match=r"there is no such folder|data"):
                reader.read(reader.payload)
        else:
            reader.read(reader.payload)


def test_a_few_damaged_payloads_for_every_reader(all_readers):
    """`python -m benchmarks.fuzz` tries 10,000 of each."""
    for reader in all_readers:
        found = tried(reader, range(FEW))
        assert not found.fell, found.fell
        assert found.read + found.refused == FEW
        assert found.grown < MEGABYTES << 10


@pytest.mark.slow
def test_many_damaged_payloads_for_every_reader(all_readers):
    for reader in all_readers:
        found = tried(reader, range(FEW, 1000))
        assert not found.fell, found.fell


def falls(payload):
    raise KeyError("x")


def grows(payload):
    return np.ones(MEGABYTES << 18)  # eight bytes each: twice the limit


def crashes(payload):
    os.kill(os.getpid(), 9)


@pytest.mark.parametrize(
    ("take", "says"), [(falls, "KeyError: 'x'"), (grows, "MemoryError"), (crashes, "ended by -9 at number 3")]
)
def test_what_falls_over_is_seen(take, says):
    found = tried(Reader("it", b"payload", take), range(3, 5))
    assert says in found.fell
    assert "it" in found.fell


def test_mutations_repeat_and_differ():
    payload = b'{"a": [1, 2.5, "text"], "b": {"c": null}}' * 20
    made = [mutated(payload, "name", number) for number in range(300)]
    assert made == [mutated(payload, "name", number) for number in range(300)]
    assert len(set(made)) > 250
    assert made[:50] != [mutated(payload, "other", number) for number in range(50)]
    assert max(map(len, made)) <= len(payload) + MAX_GROWTH
    assert mutated(b"", "name", 0) is not None


def test_100_damaged_checkpoints_are_all_detected(tmp_path):
    """Each is passed over for the one before it; with both damaged, nothing is resumed and nothing deleted."""
    run(TINY, tmp_path / "run")
    newest, older = checkpoint.listed(tmp_path / "run")
    sound, before = newest.read_bytes(), older.read_bytes()
    for number in range(100):
        assert damaged(sound, number) != sound
        newest.write_bytes(damaged(sound, number))
        with pytest.raises(checkpoint.DamagedError):
            checkpoint.unpack(newest)
        notes = []
        found = checkpoint.newest(tmp_path / "run", [newest, older], notes.append)
        assert found is not None and found[0] == older
        assert "is damaged" in notes[0]
    older.write_bytes(damaged(before, 0))
    (tmp_path / "run" / "summary.json").unlink()
    with pytest.raises(FedsacError, match="no checkpoint is sound"):
        resume(tmp_path / "run")
    assert newest.exists() and older.exists()
    newest.write_bytes(sound)
    assert resume(tmp_path / "run").records[-1]["round"] == TINY.rounds


class Limited:
    """A little memory more than there is now, in this process."""

    def __enter__(self):
        self._before = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20), self._before[1]))

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_AS, self._before)


def zeros(gigabytes, wrap):
    """So many packed zeros, without ever having them."""
    packer = zlib.compressobj(1, zlib.DEFLATED, wrap)
    chunk = bytes(1 << 24)
    return b"".join(packer.compress(chunk) for _ in range(64 * gigabytes)) + packer.flush()


@pytest.fixture(scope="module")
def packed_gigabyte():
    return zeros(1, 15)


def test_a_small_gz_file_that_unpacks_to_gigabytes(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    head = np.array([2051, 1 << 31, 28, 28], ">u4").tobytes()
    path.write_bytes(gzip.compress(head) + zeros(1, 31))  # two members, one after the other
    assert path.stat().st_size < 8 << 20
    with Limited(), pytest.raises(FedsacError, match="larger than"):
        read_idx_images(path)


def test_a_small_mat_file_that_unpacks_to_gigabytes(tmp_path, packed_gigabyte):
    content = b" " * 124 + b"\0\1IM" + np.array([15, len(packed_gigabyte)], "<u4").tobytes() + packed_gigabyte
    for name in ("train_32x32.mat", "test_32x32.mat"):
        (tmp_path / name).write_bytes(content)
    with Limited(), pytest.raises(FedsacError, match="larger than"):
        read_svhn(tmp_path)


def test_a_small_npz_file_that_unpacks_to_gigabytes(tmp_path):
    header = io.BytesIO()
    described = {"descr": "|u1", "fortran_order": False, "shape": (1 << 20, 1 << 10)}
    np.lib.format.write_array_header_1_0(header, described)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("x.npy", "w") as file:
            file.write(header.getvalue())
            for _ in range(64):
                file.write(bytes(1 << 24))
        archive.writestr("y.npy", header.getvalue())
    with Limited(), pytest.raises(FedsacError, match=r"cannot be read|larger than"):
        load(str(tmp_path / "a.npz"))


@pytest.mark.parametrize("header", [b"{'shape': (2, [[[", b"{'a\0", b"[" * 300, b"{1: 2, None}"])
def test_an_array_whose_header_is_none_is_refused(header):
    """What Python's own parser says of it is no error of ours: it would have ended the round for everybody."""
    data = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header
    asked = Asked("a", "round", 0, "t", {"w": ((2,), "float32")})
    with pytest.raises(RefusedError, match="format: w cannot be read"):
        admit(asked, Reply("a", "round", 0, "t", arrays={"w": Raw("float32", (2,), data)}))


def test_a_comparison_does_not_go_on_from_settings_that_are_none(tmp_path):
    from fedsac.runs.comparing import resume_compare

    for runs in ('{"a": 5}', '{"a": "x = [["}', '{"a": "x = ' + "9" * 5000 + '"}', '{"a": "rules = 2\\nx = 1"}'):
        (tmp_path / "compare.json").write_text(f'{{"format_version": 1, "runs": {runs}}}')
        with pytest.raises(FedsacError):
            resume_compare(tmp_path)


def test_types_by_hand():
    assert is_of(TINY, Config)
    assert is_of({"a": (1, 2.5)}, dict[str, tuple[float, ...]])
    assert not is_of({"a": (1, "2")}, dict[str, tuple[float, ...]])
    assert not is_of(float("nan"), float | None)
    assert not is_of((1.0,), tuple[float, float])
    assert is_of(None, float | None)
    assert not is_of(10**400, float)
