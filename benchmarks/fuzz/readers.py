"""Who reads what somebody else may have written: data, settings, runs, models, results. `federated.py` has the rest."""

import gzip
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import fedsac
from fedsac.config import Config
from fedsac.config import read as read_config
from fedsac.contributions.base import read_given
from fedsac.data import catalogue
from fedsac.data.published.readers import read_cifar, read_idx_images, read_idx_labels, read_svhn
from fedsac.data.schema.files import as_toml, read_schema
from fedsac.data.schema.proposing import propose
from fedsac.data.schema.raw import read_raw
from fedsac.data.tabular import load_file
from fedsac.models.files import ModelFile
from fedsac.paper.claims import claims
from fedsac.paper.printed import TABLES
from fedsac.paper.render import terminal
from fedsac.paper.results import Results
from fedsac.paper.tables import table
from fedsac.report.page import build
from fedsac.runs import checkpoint
from fedsac.runs.comparison import LIST

TINY = Config(rounds=2, clients=3, hidden=(4,), local_steps=2, standalone_steps=3, share=0.1)
CLIENTS = ("client-01", "client-02", "client-03")


@dataclass(frozen=True)
class Reader:
    """A reader and a payload that it reads. `path` is the file that it reads it from, if it is one."""

    name: str
    payload: bytes
    take: Callable[[Any], object]  # the path, or the payload where there is none
    path: Path | None = None

    def read(self, payload: bytes) -> object:
        if self.path is None:
            return self.take(payload)
        self.path.write_bytes(payload)
        return self.take(self.path)

    def restore(self) -> None:
        """The sound file is there again, for whoever reads others beside it."""
        if self.path is not None:
            self.path.write_bytes(self.payload)


def of_file(name: str, path: Path, take: Callable[[Path], object]) -> Reader:
    """The reader of a file that is there."""
    return Reader(name, path.read_bytes(), take, path)


def readers(folder: Path) -> Iterator[Reader]:
    """All readers; what they need is made in the folder."""
    from benchmarks.fuzz.federated import federated

    yield from _data(folder)
    yield from _settings(folder)
    yield from _runs(folder)
    yield from federated(folder / "federated")


def _data(folder: Path) -> Iterator[Reader]:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(12, 3)), np.arange(12) % 3

    def loaded(path: Path) -> object:
        return catalogue.check(str(path))

    rows = "\n".join(",".join(map(repr, map(float, row))) + f",{label}" for row, label in zip(x, y, strict=True))
    yield Reader("csv", f"a,b,c,label\n{rows}\n".encode(), loaded, folder / "data.csv")
    packed = {}
    for name, save in (("npz", np.savez), ("npz compressed", np.savez_compressed)):
        buffer = io.BytesIO()
        save(buffer, x=x, y=y, x_test=x[:3], y_test=y[:3])
        packed[name] = buffer.getvalue()
        yield Reader(name, packed[name], loaded, folder / "data.npz")
    yield Reader("parquet", _parquet(x, y), loaded, folder / "data.parquet")
    yield from _tables(folder)
    images = np.array([2051, 2, 28, 28], ">u4").tobytes() + draw.bytes(2 * 784)
    labels = np.array([2049, 20], ">u4").tobytes() + bytes(n % 10 for n in range(20))
    yield Reader("idx images", images, read_idx_images, folder / "images")
    yield Reader("idx images, packed", gzip.compress(images, mtime=0), read_idx_images, folder / "images.gz")
    yield Reader("idx labels", labels, read_idx_labels, folder / "labels")
    for name in ("cifar", "svhn"):
        (folder / name).mkdir(parents=True)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (folder / "cifar" / f"{name}.bin").write_bytes(b"\3" + bytes(3072))
    yield of_file("cifar .bin", folder / "cifar" / "data_batch_1.bin", lambda path: read_cifar(path.parent))
    for packs, name in ((False, "mat"), (True, "mat compressed")):
        (folder / "svhn" / "test_32x32.mat").write_bytes(_mat(draw, packs))
        (folder / "svhn" / "train_32x32.mat").write_bytes(_mat(draw, packs))
        yield of_file(name, folder / "svhn" / "train_32x32.mat", lambda path: read_svhn(path.parent))


def _tables(folder: Path) -> Iterator[Reader]:
    """A messy table, and the schema that it is read by."""
    cells = (
        f"{i};{i / 7:.3f};{'FM'[i % 2]};{'?' if i % 5 == 0 else '0' + str(1 + i % 9) + '.01.2024'};{i % 2}"
        for i in range(30)
    )
    rows = "\n".join(cell.replace(".", ",", 1) for cell in cells)
    messy = folder / "messy.csv"
    messy.write_text(f"id;dose;sex;seen;label\n{rows}\n")
    raw = read_raw(messy, ["label"])
    schema = propose({"messy": raw}, "messy", "label").schema
    (folder / "messy.json").write_text(json.dumps(schema.as_dict()))
    (folder / "messy.toml").write_text(as_toml(schema, "messy.csv", {}))
    yield of_file("messy csv", messy, lambda path: load_file(path, schema))
    for suffix in ("toml", "json"):
        name = f"schema .{suffix}"
        yield of_file(name, folder / f"messy.{suffix}", lambda path: load_file(messy, read_schema(path)))


def _parquet(x: np.ndarray, y: np.ndarray) -> bytes:
    import pyarrow
    from pyarrow import parquet

    sink = io.BytesIO()
    columns = {"a": x[:, 0], "b": x[:, 1], "label": [f"class {n}" for n in y]}
    parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue()


def _mat(draw: np.random.Generator, packs: bool) -> bytes:
    from scipy.io import savemat

    sink = io.BytesIO()
    x = draw.integers(0, 255, (32, 32, 3, 2), dtype=np.uint8)
    savemat(sink, {"X": x, "y": np.array([[1], [10]], np.uint8)}, do_compression=packs)
    return sink.getvalue()


def _settings(folder: Path) -> Iterator[Reader]:
    text = replace(TINY, options={"room": 0.5}, behaviour="absent:0.5", scene="dir:1.0", clip=1.0).toml()
    yield Reader("config", text.encode(), lambda path: Config(**read_config(path)), folder / "config.toml")
    given = json.dumps(dict.fromkeys(CLIENTS, 0.25)).encode()
    yield Reader("contributions .json", given, lambda path: read_given(path, CLIENTS), folder / "given.json")
    given = b"client,contribution\n" + b"".join(f"{name},0.25\n".encode() for name in CLIENTS)
    yield Reader("contributions .csv", given, lambda path: read_given(path, CLIENTS), folder / "given.csv")


def _runs(folder: Path) -> Iterator[Reader]:
    run, half = folder / "run", folder / "half"
    fedsac.run(TINY, run)
    for name, file in (("summary", "summary.json"), ("rounds", "rounds.jsonl"), ("config of a run", "config.toml")):
        yield of_file(name, run / file, lambda path: build([path.parent]))
    # Without a summary, the checkpoint decides.
    fedsac.run(TINY, half)
    (half / "summary.json").unlink()
    newest = checkpoint.listed(half)[0]
    yield of_file("checkpoint", newest, lambda path: build([path.parent.parent]))
    yield Reader("checkpoint, sealed anew", _facts(newest), lambda facts: _sealed_anew(newest, facts))
    yield of_file("model", run / "rewards" / "client-01.safetensors", _predicted)
    (folder / "compared").mkdir()
    listed = {"format_version": 1, "runs": {"a": TINY.toml(), "b": TINY.toml()}, "varied": ["beta"]}
    yield Reader("comparison", json.dumps(listed).encode(), _compared, folder / "compared" / LIST)
    yield Reader("results", _results(), _shown_from, folder / "results.json")


def _predicted(path: Path) -> object:
    model = ModelFile.load(path)
    return model.probabilities(np.ones((2, 64)))


def _compared(path: Path) -> object:
    """The runs are not there: nothing is trained, whatever the list says."""
    return build([path.parent])


def _facts(path: Path) -> bytes:
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return str(json.loads(header["__metadata__"]["fedsac"])["facts"]).encode()


def _sealed_anew(path: Path, facts: bytes) -> object:
    """The checkpoint with other facts, and the hash that belongs to them: what somebody who knows the format writes."""
    from safetensors.numpy import load, save

    sound = path.read_bytes()
    try:
        arrays, text = load(sound), facts.decode()
        outer = {"facts": text, "sha256": checkpoint._digest(arrays, text)}
        path.write_bytes(save(arrays, {"fedsac": json.dumps(outer)}))
        return build([path.parent.parent])
    except UnicodeError:
        return None  # no text, so no facts
    finally:
        path.write_bytes(sound)


def _results() -> bytes:
    """Two of the runs that the repository's results page was made from."""
    page = Path(__file__).resolve().parents[2] / "docs" / "results" / "paper" / "results.json"
    whole = json.loads(page.read_text())
    first = [run for run in whole["runs"] if run["method"] in ("fedsac", "fedavg")][:2]
    return json.dumps(whole | {"runs": first}).encode()


def _shown_from(path: Path) -> object:
    """As `fedsac paper --from` shows them."""
    results = Results.joined([path])
    return [terminal(table(name, results)) for name in TABLES], [claim for claim in claims(results) if claim.tested]


def damaged(content: bytes, number: int) -> bytes:
    """A checkpoint with damage of one kind, by number: a bit, the end, the beginning, a part twice."""
    place = int.from_bytes(hashlib.sha256(str(number).encode()).digest()[:8], "big") % (len(content) - 1)
    if number % 4 == 0:
        return content[:place] + bytes([content[place] ^ (1 << number // 4 % 8)]) + content[place + 1 :]
    if number % 4 == 1:
        return content[:place]
    if number % 4 == 2:
        return content[:place] + content[place:][:16] + content[place:]
    return content[:place] + bytes(8) + content[place + 8 :] + b"\0"
