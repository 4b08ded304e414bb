"""From a config to what a run needs: the clients' data on the device, initial weights, the server's task."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedsac import methods
from fedsac.attacks import Attack, made
from fedsac.attacks.who import attackers
from fedsac.clients.population import Clients
from fedsac.compute.samples import Samples
from fedsac.config import Config
from fedsac.contributions.base import Contributions, read_given
from fedsac.contributions.measurement import checkpoint_steps
from fedsac.core.metrics import Metric
from fedsac.core.module_layout import AnyLayout, ModuleLayout
from fedsac.data.catalogue import is_function, load
from fedsac.data.concerns import concerns_of
from fedsac.data.dataset import DataSet
from fedsac.data.files.memory import GIVEN
from fedsac.data.split import Split, split, subsample
from fedsac.data.tabular import schema_for
from fedsac.doors import BEHAVIOURS, CONTRIBUTIONS, DATA, METRICS, SCENES
from fedsac.errors import FedsacError
from fedsac.methods.base import Task
from fedsac.runs import limits
from fedsac.runs.network import on_device, started

DEFAULTS = Config()
# Settings that neither data nor clients depend on: runs that differ only in these share all else.
SETUP_INDEPENDENT = (
    *("method", "options", "beta", "importance_every", "eval_every", "behaviour", "refuse", "hardened", "metric"),
    *("contribution", "contribution_on", "contributions", "standalone_checkpoints"),
)
# Settings that earlier versions did not have: at its default, such a one is left out.
LATER = (
    *("metric", "standalone_checkpoints", "refuse", "attack", "attackers", "hardened"),
    *("momentum", "weight_decay", "clip", "lr_schedule", "augment", "batch_norm", "class_weights"),
    *("noise", "delta"),
)
MAX_THREADS = 4  # that deal out data sets: each needs hundreds of megabytes


@dataclass(frozen=True)
class Members:
    """The clients that take part: names, numbers of samples, and sizes as shares of the largest."""

    names: tuple[str, ...]
    samples: tuple[int, ...]
    size_shares: tuple[float, ...]

    @classmethod
    def of(cls, names: tuple[str, ...], samples: tuple[int, ...], sizes: Sequence[int] | None = None) -> "Members":
        """`sizes` decide the shares: the numbers of samples, unless a scene counts something else (CLA: classes)."""
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
    hostile: tuple[int, ...] = ()  # by index
    probe: Samples | None = None  # what an attack's success is measured on

    @cached_property
    def attack(self) -> Attack | None:
        """What the hostile clients do."""
        return None if self.config.attack is None else made(self.config.attack)

    @property
    def fingerprint(self) -> str:
        """Of the data and of every setting that results depend on."""
        config = self.config.replace(
            **{"data": "-", "data_dir": None, "threads": None, "device": "cpu", "contributions": None, "schema": None}
        )
        later = [name for name in LATER if getattr(config, name) == getattr(DEFAULTS, name)]
        # Of a perceptron, its shape counts: `hidden`.
        network = [] if isinstance(self.layout, ModuleLayout) else ["network"]
        text = config.toml(without=[*network, *later])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest() + self.data_hash

    @property
    def warnings(self) -> tuple[str, ...]:
        """What looks wrong with the data."""
        return concerns_of(self.split.data, self.config.metric)

    @property
    def metric(self) -> Metric:
        """The metric of contributions, rewards and calibration."""
        metric: Metric = METRICS.resolve(self.config.metric)
        return metric

    @property
    def layout(self) -> AnyLayout:
        return self.clients.layout

    @property
    def members(self) -> Members:
        """The prepared clients as members: all of them take part."""
        scene, rows = self.config.scene, self.clients.rows
        classes = None
        if scene not in (None, "silos") and getattr(SCENES.resolve(str(scene)), "size_is_classes", False):
            classes = [len(np.unique(self.split.data.y[own])) for own in rows]
        return Members.of(self.clients.names, tuple(len(own) for own in rows), classes)

    def task(self, members: Members, contributions: Contributions) -> Task:
        """What the server knows, with these members and contributions."""
        return Task(
            layout=self.layout,
            initial=self.initial,
            clients=members.names,
            samples=members.samples,
            contributions=contributions.for_method(self.config.contribution_on),
            validation=self.validation,
            rounds=self.config.rounds,
            seed=self.config.seed,
            lr=self.config.lr,
            batch=self.config.batch,
            size_shares=members.size_shares,
            metric=self.metric,
            lr_schedule=self.config.lr_schedule,
            class_weights=self.config.class_weights,
        )


def prepare(
    configs: Sequence[Config],
    splits: Sequence[Split] | None = None,
    *,
    new: bool = True,
    quiet: bool = True,
    data: DataSet | None = None,
) -> list[Prepared]:
    """Prepare runs that will share stacks: data sets are read once, images lie on the device once, and runs that
    differ only in their method share everything else. `new` runs have no contributions yet: a file with them must be
    there, and sound. `data` is what all of them learn from, if it was given in memory."""
    for config in configs:
        _look_up(config, new=new)
    on_device = _DataOnDevice()
    if splits is not None:
        prepared = [
            on_device.prepare(_of_split(config, own), _attacked(own, config))
            for config, own in zip(configs, splits, strict=True)
        ]
    else:
        read: dict[tuple[object, ...], DataSet] = {}
        wanted: list[tuple[str, Config]] = []  # with a key: runs alike in it share everything but the config
        to_deal: dict[str, tuple[DataSet, Config]] = {}
        for config in configs:
            key = (config.data, config.data_dir, config.label, config.schema, config.share)
            if key not in read:
                folder = None if config.data_dir is None else Path(config.data_dir)
                read[key] = subsample(data or _loaded(config, folder, quiet), config.share)
            config = _with_defaults(config, read[key])
            common = shared_setup(config)
            wanted.append((common, config))
            to_deal.setdefault(common, (read[key], config))
        _check_limits(wanted, to_deal)
        alike = {
            common: on_device.prepare(config, dealt)
            for (common, (_, config)), dealt in zip(to_deal.items(), _dealt(list(to_deal.values())), strict=True)
        }
        prepared = [
            # A user's network has its own hidden layers.
            replace(alike[common], config=config.replace(hidden=alike[common].config.hidden))
            for common, config in wanted
        ]
    prepared = [_with_hostile(each) for each in prepared]
    for each in prepared:
        if new and each.config.contributions is not None:
            read_given(Path(each.config.contributions), each.clients.names)
    return prepared


def shared_setup(config: Config) -> str:
    """What data and clients depend on: runs alike in it share all but the config."""
    alike_in = (*SETUP_INDEPENDENT, *(() if _changes_data(config) else ("attack", "attackers")))
    return config.replace(**{name: getattr(DEFAULTS, name) for name in alike_in}).toml()


def _loaded(config: Config, folder: Path | None, quiet: bool) -> DataSet:
    return load(config.data, folder, label=config.label, schema=config.schema, quiet=quiet)


def _check_limits(wanted: Sequence[tuple[str, Config]], to_deal: dict[str, tuple[DataSet, Config]]) -> None:
    shapes = {common: (data.x.shape[1], len(data.classes), len(data.y)) for common, (data, _) in to_deal.items()}
    for shape in set(shapes.values()):
        limits.check([config for common, config in wanted if shapes[common] == shape], *shape)


def _of_split(config: Config, dealt: Split) -> Config:
    return _with_defaults(config.replace(scene=dealt.scene, clients=len(dealt.clients)), dealt.data)


def _dealt(wanted: Sequence[tuple[DataSet, Config]]) -> Iterator[Split]:
    """The data sets, each dealt out as its config says: several at a time, since for images each takes a while, but not
    by a user's own function, which may not be made for it."""

    def deal(data: DataSet, config: Config) -> Split:
        assert config.scene is not None and config.clients is not None
        dealt = split(data, config.scene, config.clients, config.samples_per_client, config.effective_split_seed)
        return _attacked(dealt, config)

    own = any(_is_function(config.scene or "") for _, config in wanted)
    with ThreadPoolExecutor(1 if own else min(torch.get_num_threads(), MAX_THREADS)) as pool:
        yield from pool.map(deal, *zip(*wanted, strict=True))


def _changes_data(config: Config) -> bool:
    """Whether hostile clients bring other data, or other names, than honest ones."""
    return config.attack is not None and made(config.attack).deals


def _attacked(dealt: Split, config: Config) -> Split:
    """The split with what hostile clients make of it before they join."""
    if config.attack is None:
        return dealt
    attack = made(config.attack)
    return attack.deal(dealt, attackers(config.attackers, dealt, attack))


def _with_hostile(prepared: Prepared) -> Prepared:
    """A run with the indices of its hostile clients."""
    if prepared.attack is None:
        return prepared
    dealt = prepared.split
    names = dealt.hostile or attackers(prepared.config.attackers, dealt, prepared.attack)
    return replace(prepared, hostile=tuple(dealt.clients.index(name) for name in names))


def _look_up(config: Config, *, new: bool) -> None:
    """What does not exist is an error before any work is done."""
    methods.make(config)
    if config.attack is not None:
        made(config.attack)
    if new:
        limits.check_threads(config)
    checkpoint_steps(config.alone(), config.local_steps, config.standalone_checkpoints)
    for door, name in ((METRICS, config.metric), (CONTRIBUTIONS, config.contribution), (BEHAVIOURS, config.behaviour)):
        if name is not None:
            door.resolve(name)
    if new and config.contributions is not None and not Path(config.contributions).is_file():
        raise FedsacError(f"contributions {config.contributions}: there is no such file")


def _with_defaults(config: Config, data: DataSet) -> Config:
    """The config with all defaults filled in, so that the one in the run's folder reproduces the run."""
    scene, clients = config.scene, config.clients
    if data.silos is not None:
        if scene not in (None, "silos"):
            raise FedsacError(f"{config.data}: own silos are dealt out already; leave --scene {scene} out")
        if clients not in (None, len(data.silos)):
            raise FedsacError(f"{config.data} has {len(data.silos)} silos, not {clients}; leave --clients out")
        if config.samples_per_client is not None:
            raise FedsacError(f"{config.data}: own silos have the samples they have; leave --samples-per-client out")
        if config.split_seed is not None:
            raise FedsacError(f"{config.data}: own silos are dealt out already; leave --split-seed out")
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
    named, schema = Path(config.data), None if data.table is None else schema_for(config.data, config.schema)
    return config.replace(
        scene=scene or "pow",
        clients=clients or 10,
        device=device,
        precision=precision,
        threads=config.threads or torch.get_num_threads(),
        # Absolute, so that a run can be resumed from any folder.
        data=config.data if _is_name(config.data) else str(named.resolve()),
        data_dir=None if config.data_dir is None else str(Path(config.data_dir).resolve()),
        schema=None if schema is None else str(schema.resolve()),
        contributions=None if config.contributions is None else str(Path(config.contributions).resolve()),
    )


def _is_name(data: str) -> bool:
    """Whether this names data otherwise than by a path."""
    return data in (*DATA.entries, GIVEN) or _is_function(data)


def _is_function(data: str) -> bool:
    return is_function(data) and not Path(data).exists()


def prepare_split(config: Config, dealt: Split) -> Prepared:
    """Prepare a run from data that is dealt out already: for a federation, where each party has only its own."""
    return _DataOnDevice().prepare(config, dealt)


class _DataOnDevice:
    """Copies data sets to the device, each array once for all runs that use it."""

    def __init__(self) -> None:
        self._tensors: dict[tuple[int, torch.device], Tensor] = {}
        self._digests: dict[int, bytes] = {}
        self._kept_alive: list[np.ndarray] = []  # the ids of these arrays must not be reused for others

    def prepare(self, config: Config, dealt: Split) -> Prepared:
        data, device, dtype = dealt.data, torch.device(config.device), getattr(torch, config.dtype)
        start = started(config, dealt)
        layout = start.layout
        if isinstance(layout, ModuleLayout) and layout.input.tokens:
            # The numbers of tokens say which they are, not how much of something there is.
            scale, shift = np.ones(data.x.shape[1]), np.zeros(data.x.shape[1])

            def inputs(array: np.ndarray) -> Tensor:
                return _to_tensor(array, device).long()

        elif data.x.dtype == np.uint8:
            # Images stay uint8, one copy for all runs, and each run normalises its batches.
            scale, shift = 1 / (data.top * dealt.deviation), -dealt.mean / dealt.deviation

            def inputs(array: np.ndarray) -> Tensor:
                return self._shared_tensor(array, device)

        else:
            # Tables may have values of any magnitude: normalised in float64, before they are rounded to `dtype`.
            scale, shift = np.ones(data.x.shape[1]), np.zeros(data.x.shape[1])

            def inputs(array: np.ndarray) -> Tensor:
                return _to_tensor((array / data.top - dealt.mean) / dealt.deviation, device).to(dtype)

        normalisation = _to_tensor(scale[None], device).to(dtype), _to_tensor(shift[None], device).to(dtype)
        pool = Samples(inputs(data.x), self._shared_tensor(data.y, device), *normalisation)
        config = config.replace(hidden=layout.hidden)  # a user's network has its own hidden layers
        rows = torch.from_numpy(dealt.validation).to(device)
        validation = Samples(pool.x[rows], pool.y[rows], *normalisation)
        if isinstance(layout, ModuleLayout):
            layout = on_device(layout, validation, dtype)
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
                rounds=config.rounds,
                lr_schedule=config.lr_schedule,
                labels=dealt.data.y if config.class_weights == "balanced" else None,
            ),
            validation=validation,
            test=Samples(inputs(dealt.x_test), self._shared_tensor(dealt.y_test, device), *normalisation),
            initial=start.params.to(device),
            data_hash=self._data_hash(dealt),
            probe=None if dealt.probe is None else Samples(*self._probe(dealt.probe, inputs, device), *normalisation),
        )

    def _probe(
        self, probe: tuple[np.ndarray, np.ndarray], inputs: Callable[[np.ndarray], Tensor], device: torch.device
    ) -> tuple[Tensor, Tensor]:
        return inputs(probe[0]), self._shared_tensor(probe[1], device)

    def _shared_tensor(self, array: np.ndarray, device: torch.device) -> Tensor:
        if (id(array), device) not in self._tensors:
            self._tensors[id(array), device] = _to_tensor(array, device)
            self._kept_alive.append(array)
        return self._tensors[id(array), device]

    def _data_hash(self, dealt: Split) -> str:
        digest = hashlib.blake2b(digest_size=16)
        data = dealt.data
        digest.update(repr((dealt.clients, data.classes, data.features)).encode())
        for array in (data.x, data.y, dealt.x_test, dealt.y_test, dealt.validation, *dealt.rows):
            digest.update(self._digest(array))
        return digest.hexdigest()

    def _digest(self, array: np.ndarray) -> bytes:
        """The hash of one array, computed once: those of a data set are large, and the same in every run."""
        if id(array) not in self._digests:
            digest = hashlib.blake2b(f"{array.shape}{array.dtype}".encode(), digest_size=16)
            digest.update(np.ascontiguousarray(array).data)
            self._digests[id(array)] = digest.digest()
            self._kept_alive.append(array)
        return self._digests[id(array)]


def _to_tensor(array: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)
