"""From configs to runs that are ready to start: data read, dealt out and shared, defaults filled in, limits checked."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch

from fedsac import methods
from fedsac.attacks import made
from fedsac.attacks.who import attackers
from fedsac.config import Config
from fedsac.contributions.base import read_given
from fedsac.contributions.measurement import checkpoint_steps
from fedsac.data.catalogue import is_function, load
from fedsac.data.dataset import DataSet
from fedsac.data.files.memory import GIVEN
from fedsac.data.split import Split, split, subsample
from fedsac.data.tabular import schema_for
from fedsac.doors import BEHAVIOURS, CONTRIBUTIONS, DATA, METRICS
from fedsac.errors import FedsacError
from fedsac.runs import limits
from fedsac.runs.prepared import DEFAULTS, DataOnDevice, Prepared

# Settings that neither data nor clients depend on: runs that differ only in these share all else.
SETUP_INDEPENDENT = (
    *("method", "options", "beta", "importance_every", "eval_every", "behaviour", "refuse", "hardened", "metric"),
    *("contribution", "contribution_on", "contributions", "standalone_checkpoints"),
)
MAX_THREADS = 4  # that deal out data sets: each needs hundreds of megabytes


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
    on_device = DataOnDevice()
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
    return DataOnDevice().prepare(config, dealt)
