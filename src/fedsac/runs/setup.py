"""From a config to everything a run needs: data dealt out and on the device, the model's start, the server's task."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedsac import methods
from fedsac.clients.population import Clients
from fedsac.compute.samples import Samples
from fedsac.config import Config
from fedsac.contributions.base import Contributions
from fedsac.core.metrics import Metric
from fedsac.core.units import Layout
from fedsac.data.catalogue import is_function, load
from fedsac.data.dataset import DataSet
from fedsac.data.split import Split, split, subsample
from fedsac.doors import BEHAVIOURS, CONTRIBUTIONS, DATA, METRICS, SCENES
from fedsac.errors import FedsacError
from fedsac.methods.base import Task
from fedsac.models.start import Wanted, starting_network

DEFAULTS = Config()
# Settings that neither the data nor the clients depend on: runs that differ in these alone share everything else.
METHODS_OWN = (
    *("method", "options", "beta", "importance_every", "eval_every", "behaviour", "metric"),
    *("contribution", "contribution_on", "contributions"),
)
LATER = ("metric",)  # settings that came later: at their defaults, a run's fingerprint is what it was before


@dataclass(frozen=True)
class Members:
    """The clients that take part: names, numbers of samples, and sizes as shares of the largest."""

    names: tuple[str, ...]
    samples: tuple[int, ...]
    size_shares: tuple[float, ...]

    @classmethod
    def of(cls, names: tuple[str, ...], samples: tuple[int, ...], sizes: Sequence[int] | None = None) -> "Members":
        """`sizes` are the numbers of samples, unless a scene counts otherwise."""
        sizes = samples if sizes is None else sizes
        return cls(names, samples, tuple(size / max(sizes) for size in sizes))


@dataclass(frozen=True)
class Prepared:
    """One run, ready to start. `config` has every default filled in."""

    config: Config
    split: Split
    clients: Clients
    validation: Samples
    test: Samples
    initial: Tensor
    data_hash: str

    @property
    def fingerprint(self) -> str:
        """Of the data and of every setting that results depend on."""
        config = self.config.replace(
            data="-", data_dir=None, threads=None, device="cpu", contributions=None, network=DEFAULTS.network
        )
        text = config.toml(without=[name for name in LATER if getattr(config, name) == getattr(DEFAULTS, name)])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest() + self.data_hash

    @property
    def metric(self) -> Metric:
        """The score that everything is measured by."""
        metric: Metric = METRICS.resolve(self.config.metric)
        return metric

    @property
    def layout(self) -> Layout:
        return self.clients.layout

    @property
    def members(self) -> Members:
        """The prepared clients as those who take part."""
        scene, rows = self.config.scene, self.clients.rows
        classes = None
        if scene not in (None, "silos") and getattr(SCENES.resolve(str(scene)), "size_is_classes", False):
            classes = [len(np.unique(self.split.data.y[own])) for own in rows]
        return Members.of(self.clients.names, tuple(len(own) for own in rows), classes)

    def task(self, members: Members, contributions: Contributions) -> Task:
        """What the server has, with these members and contributions."""
        return Task(
            layout=self.layout,
            initial=self.initial,
            clients=members.names,
            samples=members.samples,
            contributions=contributions.given(self.config.contribution_on),
            validation=self.validation,
            rounds=self.config.rounds,
            seed=self.config.seed,
            lr=self.config.lr,
            batch=self.config.batch,
            size_shares=members.size_shares,
            metric=self.metric,
        )


def prepare(configs: Sequence[Config], splits: Sequence[Split] | None = None, *, quiet: bool = True) -> list[Prepared]:
    """Prepare runs that will share stacks: data sets are read once, images lie on the device once, and runs that
    differ only in their method share everything else."""
    read: dict[tuple[object, ...], DataSet] = {}
    placed = _Placed()
    alike: dict[str, Prepared] = {}
    prepared = []
    for i, config in enumerate(configs):
        _look_up(config)
        if splits is None:
            key = (config.data, config.data_dir, config.label, config.share)
            if key not in read:
                folder = None if config.data_dir is None else Path(config.data_dir)
                read[key] = subsample(load(config.data, folder, label=config.label, quiet=quiet), config.share)
            config = _settled(config, read[key])
            assert config.scene is not None and config.clients is not None
            common = config.replace(**{name: getattr(DEFAULTS, name) for name in METHODS_OWN}).toml()
            if common in alike:
                prepared.append(replace(alike[common], config=config))
                continue
            dealt = split(read[key], config.scene, config.clients, config.samples_per_client, config.seed)
        else:
            dealt = splits[i]
            config = _settled(config.replace(scene=dealt.scene, clients=len(dealt.clients)), dealt.data)
        prepared.append(placed.run(config, dealt))
        if splits is None:
            alike[common] = prepared[-1]
    return prepared


def _look_up(config: Config) -> None:
    """What does not exist is an error before any work is done."""
    methods.make(config)
    for door, name in ((METRICS, config.metric), (CONTRIBUTIONS, config.contribution), (BEHAVIOURS, config.behaviour)):
        if name is not None:
            door.resolve(name)
    if config.contributions is not None and not Path(config.contributions).is_file():
        raise FedsacError(f"contributions {config.contributions}: there is no such file")


def _settled(config: Config, data: DataSet) -> Config:
    """The config with its defaults filled in, so that what is written down reproduces the run."""
    scene, clients = config.scene, config.clients
    if data.silos is not None:
        if scene not in (None, "silos"):
            raise FedsacError(f"{config.data}: own silos are dealt out already; leave --scene {scene} out")
        if clients not in (None, len(data.silos)):
            raise FedsacError(f"{config.data} has {len(data.silos)} silos, not {clients}; leave --clients out")
        if config.samples_per_client is not None:
            raise FedsacError(f"{config.data}: own silos have the samples they have; leave --samples-per-client out")
        scene, clients = "silos", len(data.silos)
    elif scene == "silos":
        raise FedsacError(f"scene silos needs a folder with one file per client as --data, not {config.data}")
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise FedsacError("device cuda: this torch sees no CUDA device; use --device cpu")
    precision = None if config.precision == "float32" else config.precision  # one spelling for one setting
    if precision is not None and device == "cpu":
        raise FedsacError(f"precision {precision} is a GPU's; leave it out, or use --device cuda")
    if precision is not None and config.dtype != "float32":
        raise FedsacError(f"precision {precision} is for float32; leave it out, or leave --dtype {config.dtype} out")
    named = Path(config.data)
    return config.replace(
        scene=scene or "pow",
        clients=clients or 10,
        device=device,
        precision=precision,
        threads=config.threads or torch.get_num_threads(),
        # Absolute, so that a run can be resumed from any folder.
        data=config.data if config.data in DATA.entries or _is_function(config.data) else str(named.resolve()),
        data_dir=None if config.data_dir is None else str(Path(config.data_dir).resolve()),
        contributions=None if config.contributions is None else str(Path(config.contributions).resolve()),
    )


def _is_function(data: str) -> bool:
    return is_function(data) and not Path(data).exists()


def placed(config: Config, dealt: Split) -> Prepared:
    """One party's data, ready for use: for an engine that holds no more than that."""
    return _Placed().run(config, dealt)


class _Placed:
    """Data on the device, once for all runs that read the same arrays."""

    def __init__(self) -> None:
        self._there: dict[tuple[int, torch.device], Tensor] = {}
        self._digests: dict[int, bytes] = {}
        self._read: list[np.ndarray] = []  # kept, so that no other array takes an id

    def run(self, config: Config, dealt: Split) -> Prepared:
        data, device, dtype = dealt.data, torch.device(config.device), getattr(torch, config.dtype)
        if data.x.dtype == np.uint8:
            # Images stay bytes, one copy for all runs, and each run normalises as it reads.
            scale, shift = 1 / (data.top * dealt.deviation), -dealt.mean / dealt.deviation

            def inputs(array: np.ndarray) -> Tensor:
                return self._once(array, device)

        else:
            # Tables may have any magnitude: normalised in float64, before anything is rounded.
            scale, shift = np.ones(data.x.shape[1]), np.zeros(data.x.shape[1])

            def inputs(array: np.ndarray) -> Tensor:
                return _put((array / data.top - dealt.mean) / dealt.deviation, device).to(dtype)

        normal = _put(scale[None], device).to(dtype), _put(shift[None], device).to(dtype)
        pool = Samples(inputs(data.x), self._once(data.y, device), *normal)
        wanted = Wanted(data.x.shape[1], len(data.classes), config.hidden, config.seed, dtype)
        network = starting_network(config.network, wanted)
        layout = network.layout
        config = config.replace(hidden=layout.hidden)  # a factory of one's own decides this itself
        rows = torch.from_numpy(dealt.validation).to(device)
        return Prepared(
            config=config,
            split=dealt,
            clients=Clients(
                layout=layout,
                names=dealt.clients,
                rows=dealt.rows,
                pool=pool,
                lr=config.lr,
                batch=config.batch,
                local_steps=config.local_steps,
                seed=config.seed,
            ),
            validation=Samples(pool.x[rows], pool.y[rows], *normal),
            test=Samples(inputs(dealt.x_test), self._once(dealt.y_test, device), *normal),
            initial=network.params.to(device),
            data_hash=self._data_hash(dealt),
        )

    def _once(self, array: np.ndarray, device: torch.device) -> Tensor:
        if (id(array), device) not in self._there:
            self._there[id(array), device] = _put(array, device)
            self._read.append(array)
        return self._there[id(array), device]

    def _data_hash(self, dealt: Split) -> str:
        digest = hashlib.blake2b(digest_size=16)
        data = dealt.data
        digest.update(repr((dealt.clients, data.classes, data.features)).encode())
        for array in (data.x, data.y, dealt.x_test, dealt.y_test, dealt.validation, *dealt.rows):
            digest.update(self._digest(array))
        return digest.hexdigest()

    def _digest(self, array: np.ndarray) -> bytes:
        """Of one array: the data set's own are many megabytes, and the same in every run."""
        if id(array) not in self._digests:
            digest = hashlib.blake2b(f"{array.shape}{array.dtype}".encode(), digest_size=16)
            digest.update(np.ascontiguousarray(array).data)
            self._digests[id(array)] = digest.digest()
            self._read.append(array)
        return self._digests[id(array)]


def _put(array: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)
