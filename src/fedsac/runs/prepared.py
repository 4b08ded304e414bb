"""A run that is ready to start: its data on the device, its clients, initial weights, the server's task."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedsac.attacks import Attack, made
from fedsac.clients.population import Clients
from fedsac.compute.samples import Samples
from fedsac.config import Config
from fedsac.contributions.base import Contributions
from fedsac.core.metrics import Metric
from fedsac.core.module_layout import AnyLayout, ModuleLayout
from fedsac.data.concerns import concerns_of
from fedsac.data.split import Split
from fedsac.doors import METRICS, SCENES
from fedsac.methods.base import Task
from fedsac.runs.network import on_device, started

DEFAULTS = Config()
# Settings that earlier versions did not have: at its default, such a one is left out.
LATER = (
    *("metric", "standalone_checkpoints", "refuse", "attack", "attackers", "hardened"),
    *("momentum", "weight_decay", "clip", "lr_schedule", "augment", "batch_norm", "class_weights"),
    *("noise", "delta"),
)


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


class DataOnDevice:
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
