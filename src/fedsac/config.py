"""The settings of a run: one frozen dataclass, which a TOML file and the command line can fill."""

import difflib
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from fedsac.doors import ATTACKS, BEHAVIOURS, CONTRIBUTIONS, METRICS, NETWORKS, SCENES
from fedsac.errors import FedsacError
from fedsac.recipe import BATCH_NORMS, CLASS_WEIGHTS, SCHEDULES, Recipe, augmentations

FORMAT_VERSION = 1  # of everything in a run folder
# What the numbers in a run folder mean (docs/decisions.md, "Rules"). 2: BCF exempts nobody but the best contributors,
# and several methods do what their authors' code does. A run is finished under the rules that it began with.
RULES = 2
MAX_CHARACTERS = 1 << 20  # of a file with settings
DTYPES = ("float32", "float64")
PRECISIONS = ("float32", "tf32", "bf16")
REFUSALS = ("harmful",)
ALL = "all"
DEFENCES = {  # of hardened mode: name -> what it does (docs/hardening.md)
    "commit": "commits to the contributions by a hash before any reward leaves",
    "work": "measures from every round's updates who still contributes",
    "originals": "compares models handed in as trained alone with each other and with every reward",
    "bounds": "bounds the length of every step",
    "robust": "trims what stands out where many hold a parameter, and checks on validation data where few do",
    "slow-order": "lets the order of neurons settle, and submodels grow slowly",
}


def _option(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Config:
    """Every setting of a run. An impossible value raises `FedsacError`.

    >>> Config(rounds=0)
    Traceback (most recent call last):
    fedsac.errors.FedsacError: rounds must be a whole number of at least 1, not 0
    """

    data: str = _option(
        "digits", "digits, fashion-mnist, cifar10, svhn, mnist, a path (.npz, .csv, .parquet, silos) or module:function"
    )
    scene: str | None = _option(
        None, "pow (default), cla, dir:ALPHA, dir-class:ALPHA, iid or module:function; own silos have none"
    )
    method: str = _option("fedsac", "a method's name (`fedsac methods` lists them), or module:Class")
    clients: int | None = _option(None, "number of clients; own silos: as many as there are files")
    rounds: int = _option(100, "rounds of training")
    beta: float = _option(5.0, "how steeply reputation falls with contribution (Eq. 5)")
    lr: float = _option(0.05, "learning rate of the clients")
    local_steps: int = _option(20, "SGD steps of a client in a round (E)")
    batch: int = _option(32, "batch size")
    standalone_steps: int | None = _option(None, "SGD steps of standalone training (default: rounds x local steps)")
    standalone_checkpoints: int = _option(
        1, "score the models trained alone at so many points in the last fifth of the steps; the mean is c"
    )
    importance_every: int = _option(1, "rounds between two measurements of importance")
    eval_every: int = _option(1, "rounds between two evaluations; the last round always is")
    contribution: str = _option(
        "standalone", "what decides reputations: standalone, leave-one-out, shapley, cosine, shapfed or module:function"
    )
    contribution_on: str = _option("validation", "validation or test (the paper's): which contributions decide")
    contributions: str | None = _option(
        None, "a .csv or .json file with a number per client, which decides instead of a measurement"
    )
    metric: str = _option(
        "accuracy",
        "the score of contributions, rewards and calibration: accuracy, balanced-accuracy, macro-f1, auc or "
        "module:function",
    )
    behaviour: str | None = _option(
        None, "what clients do beside training honestly: absent:PROBABILITY, late:PROBABILITY or module:function"
    )
    attack: str | None = _option(None, "what hostile clients do: a name (`fedsac attack --list`) or module:Class")
    attackers: str | None = _option(None, "who is hostile: median[:NUMBER] (default), largest or smallest, or names")
    refuse: str | None = _option(
        None, "harmful: leave out replies that would wreck the model on validation data (default: take in all)"
    )
    hardened: str | None = _option(
        None,
        "defences against clients that cheat: all, or some of commit, work, originals, bounds, robust and slow-order, "
        "joined by +",
    )
    share: float = _option(1.0, "share of the data set that is used, the same for every seed: for quick tries")
    samples_per_client: int | None = _option(None, "samples per client (the paper's sets: 2000; else what fits)")
    network: str = _option(
        "mlp",
        "mlp, cnn, resnet18:WIDTH, resnet18-gn:WIDTH, vit-tiny, text:TOKENS, text-lora:TOKENS or module:factory, which "
        "makes a torch module from the input's shape and the number of classes",
    )
    hidden: tuple[int, ...] = _option((200, 200), "hidden layers of mlp, as in 200,200; another network has its own")
    momentum: float = _option(0.0, "of the clients' SGD; begins anew in every round")
    weight_decay: float = _option(0.0, "of the clients' SGD, added to the gradient")
    clip: float | None = _option(None, "longest gradient of a client's step (L2 norm); longer ones are shortened")
    noise: float | None = _option(
        None, "differential privacy: noise of a step, a multiple of clip, which is then of each sample's gradient"
    )
    delta: float = _option(1e-5, "of differential privacy: the chance that epsilon does not hold")
    lr_schedule: str = _option("constant", "learning rate over the rounds: constant, cosine or step (/10 at 1/2, 3/4)")
    class_weights: str = _option(
        "none", "in training: none, or balanced: each class counts as much as any other, by whoever trains' own counts"
    )
    augment: str | None = _option(None, "of training images: flip, crop or flip+crop")
    batch_norm: str = _option(
        "validation", "statistics that models are scored with: measured on validation data, running, or frozen"
    )
    seed: int = _option(0, "seed of every random stream")
    split_seed: int | None = _option(
        None, "seed of the split alone: clients' data, V and a test set that is set aside (default: the seed)"
    )
    device: str = _option("cpu", "cpu, cuda or auto")
    threads: int | None = _option(None, "CPU threads (all cores)")
    dtype: str = _option("float32", "float32 or float64")
    precision: str | None = _option(None, "of a GPU's products: float32 (default), tf32 or bf16, faster and less exact")
    label: str = _option("label", "label column of your own .csv or .parquet")
    schema: str | None = _option(
        None,
        "what the columns of your own tables mean: a file that `fedsac schema propose` writes (silos: found there)",
    )
    options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "an option of the method, as NAME=VALUE; may be repeated"}
    )
    data_dir: str | None = _option(None, "folder with the data sets (before FEDSAC_DATA and the user cache)")

    def __post_init__(self) -> None:
        for name in ("rounds", "local_steps", "batch", "standalone_checkpoints", "importance_every", "eval_every"):
            self._whole(name, 1)
        for name in ("standalone_steps", "samples_per_client", "threads"):
            if getattr(self, name) is not None:
                self._whole(name, 1)
        if self.clients is not None:
            self._whole("clients", 2)
        self._whole("seed", 0)
        if self.split_seed is not None:
            self._whole("split_seed", 0)
        self._number("beta", lambda v: v >= 0, "a number of at least 0")
        self._number("lr", lambda v: 1e-30 <= v <= 1e30, "a number above 0, from 1e-30 to 1e30")
        self._number("momentum", lambda v: 0 <= v < 1, "a number of at least 0 and below 1")
        self._number("weight_decay", lambda v: 0 <= v <= 1e30, "a number of at least 0, and at most 1e30")
        if self.clip is not None:
            self._number("clip", lambda v: 1e-30 <= v <= 1e30, "a number above 0, from 1e-30 to 1e30")
        self._number("delta", lambda v: 0 < v < 1, "a number above 0 and below 1")
        if self.noise is not None:
            self._check_privacy()
        self._one_of("lr_schedule", SCHEDULES)
        self._one_of("batch_norm", BATCH_NORMS)
        self._one_of("class_weights", CLASS_WEIGHTS)
        self._number("share", lambda v: 0 < v <= 1, "a number above 0, and at most 1")
        for name in ("data", "method", "contribution", "metric", "network", "label"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise FedsacError(f"{name} must be a text, not {getattr(self, name)!r}")
        for name in ("scene", "contributions", "behaviour", "attack", "attackers", "augment", "schema", "data_dir"):
            if getattr(self, name) is not None and not isinstance(getattr(self, name), str):
                raise FedsacError(f"{name} must be a text, not {getattr(self, name)!r}")
        if not isinstance(self.options, dict) or not all(
            isinstance(v, str | int | float) for v in self.options.values()
        ):
            raise FedsacError(f"options must be names with plain values, not {self.options!r}")
        self._one_of("contribution_on", ("validation", "test"))
        self._one_of("device", ("cpu", "cuda", "auto"))
        self._one_of("dtype", DTYPES)
        if self.refuse is not None:
            self._one_of("refuse", REFUSALS)
        if self.hardened is not None:
            object.__setattr__(self, "hardened", _spelled_defences(self.hardened))
        if self.precision is not None:
            self._one_of("precision", PRECISIONS)
        hidden = self.hidden
        if not isinstance(hidden, list | tuple) or not hidden or any(not _is_whole(n) or n < 1 for n in hidden):
            raise FedsacError(f"hidden must be one or more whole numbers of at least 1, not {hidden!r}")
        object.__setattr__(self, "hidden", tuple(map(int, hidden)))
        for name, door in (("metric", METRICS), ("network", NETWORKS), ("contribution", CONTRIBUTIONS)):
            door.parse(getattr(self, name))
        if self.augment is not None:
            object.__setattr__(self, "augment", "+".join(augmentations(self.augment)))
        if self.scene is not None and self.scene != "silos":
            object.__setattr__(self, "scene", SCENES.spelled(self.scene))
        if self.contributions is not None and self.contribution != "standalone":
            raise FedsacError(
                f"contributions come from {self.contributions}, so {self.contribution} would decide nothing; leave "
                "contribution or contributions out"
            )
        if self.behaviour is not None:
            object.__setattr__(self, "behaviour", BEHAVIOURS.spelled(self.behaviour))
        if self.attack is not None:
            ATTACKS.parse(self.attack)
            if self.behaviour is not None:
                raise FedsacError(
                    f"attack {self.attack} and behaviour {self.behaviour} both say what clients send; leave one out"
                )
        elif self.attackers is not None:
            raise FedsacError(f"attackers {self.attackers}: nobody is hostile without an attack; name one")

    def _check_privacy(self) -> None:
        """Raise where training with noise would not be differentially private."""
        self._number("noise", lambda v: 0 < v <= 1e30, "a number above 0, and at most 1e30")
        if self.clip is None:
            raise FedsacError("noise is a multiple of the longest gradient of a sample: name that, too, as in --clip 1")
        if self.augment is not None:
            raise FedsacError("noise: with differential privacy images are not augmented; leave augment out")
        if self.class_weights != "none":
            raise FedsacError("noise: with differential privacy all samples count alike; leave class_weights out")
        if self.contribution != "standalone":
            raise FedsacError(
                f"noise: contribution {self.contribution} trains more than epsilon is counted for; leave it out"
            )

    def _whole(self, name: str, least: int) -> None:
        """Check that a setting is a whole number of at least `least`."""
        value = getattr(self, name)
        if not _is_whole(value) or value < least:
            raise FedsacError(f"{name} must be a whole number of at least {least}, not {value!r}")
        object.__setattr__(self, name, int(value))  # numpy's whole numbers are such, too

    def _number(self, name: str, holds: Any, wanted: str) -> None:
        """Check that a setting is a finite number for which `holds` is true, `wanted` in words; make it a float."""
        value = getattr(self, name)
        try:
            number = float(value) if _is_number(value) else math.nan
        except OverflowError:
            number = math.inf
        if not math.isfinite(number) or not holds(number):
            raise FedsacError(f"{name} must be {wanted}, not {value!r}")
        object.__setattr__(self, name, number)

    def _one_of(self, name: str, allowed: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in allowed:
            raise FedsacError(f"{name} must be {' or '.join(allowed)}, not {value!r}")

    def replace(self, **changes: Any) -> "Config":
        return replace(self, **known(changes, "setting"))

    def alone(self) -> int:
        """SGD steps of standalone training: `standalone_steps`, or as many as a client takes in the whole run."""
        return self.standalone_steps or self.rounds * self.local_steps

    def defends(self, by: str) -> bool:
        """Whether one of the `DEFENCES` is on."""
        assert by in DEFENCES
        return self.hardened is not None and (self.hardened == ALL or by in self.hardened.split("+"))

    @property
    def recipe(self) -> Recipe:
        """How clients train, beside the learning rate."""
        augment = augmentations(self.augment)
        return Recipe(
            self.momentum, self.weight_decay, self.clip, augment, self.batch_norm, self.class_weights, self.noise
        )

    @property
    def effective_split_seed(self) -> int:
        """The seed that the split of the data is drawn from."""
        return self.seed if self.split_seed is None else self.split_seed

    @property
    def seeds_named(self) -> str:
        """The seeds, for people: "seed 3", or "seed 3, split seed 0"."""
        return f"seed {self.seed}" + ("" if self.split_seed is None else f", split seed {self.split_seed}")

    @property
    def conduct_named(self) -> str:
        """What is not as in an ordinary run, for people: ", attack zero by client-03, hardened work". Else nothing."""
        attack = None if self.attack is None else f"attack {self.attack}"
        if attack is not None and self.attackers is not None:
            attack += f" by {self.attackers}"
        hardened = None if self.hardened is None else f"hardened {self.hardened}"
        behaviour = None if self.behaviour is None else f"behaviour {self.behaviour}"
        return "".join(f", {one}" for one in (attack, hardened, behaviour) if one is not None)

    @property
    def decided_by(self) -> str:
        """Where the contributions that decide come from, for people: a measure, or the file they were given in."""
        return self.contribution if self.contributions is None else f"given in {Path(self.contributions).name}"

    def toml(self, without: Sequence[str] = ()) -> str:
        """The config as a TOML file that `read` understands, `without` some settings and those that are None."""
        lines = [f"format_version = {FORMAT_VERSION}", f"rules = {RULES}"]
        plain = [f.name for f in fields(self) if f.name != "options" and getattr(self, f.name) is not None]
        plain = [name for name in plain if name not in without]
        lines += [f"{name} = {toml_value(getattr(self, name))}" for name in plain]
        if self.options:
            pairs = (f"{toml_value(name)} = {toml_value(value)}" for name, value in self.options.items())
            lines += ["", "[options]", *pairs]
        return "\n".join(lines) + "\n"


def _spelled_defences(text: object) -> str:
    """Names of defences, checked and in one order."""
    names = text.split("+") if isinstance(text, str) else [text]
    for name in names:
        if name not in (*DEFENCES, ALL):
            raise FedsacError(f"hardened must be all, or some of {', '.join(DEFENCES)}, joined by +, not {text!r}")
    return ALL if ALL in names or set(names) == set(DEFENCES) else "+".join(n for n in DEFENCES if n in names)


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and isinstance(value, Integral)


def known(settings: dict[str, Any], what: str) -> dict[str, Any]:
    """`settings`, if all of them are settings of a run; else an error that names the first unknown one."""
    names = [f.name for f in fields(Config)]
    for key in settings:
        if key not in names:
            near = difflib.get_close_matches(key.replace("-", "_"), names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            raise FedsacError(f"unknown {what} {key!r}; {hint}")
    return settings


def read(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, checked for unknown keys and for a format newer than this program's."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except FileNotFoundError:
        raise FedsacError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise FedsacError(f"{path}: is a folder; name a TOML file (of a run's settings: its config.toml)") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FedsacError(f"{path}: cannot be read ({error})") from None
    if len(text) > MAX_CHARACTERS:
        raise FedsacError(f"{path}: longer than settings can be; is this the file that was meant?")
    return settings_in(text, path)


def settings_in(text: str, path: Path) -> dict[str, Any]:
    """The settings in a TOML text that comes from `path`."""
    settings = _parsed(text, path)
    check_version(settings.pop("format_version", FORMAT_VERSION), path)
    settings.pop("rules", None)  # of the run that the file is from: one that begins now has today's (`check_rules`)
    try:
        return known(settings, "key")
    except FedsacError as error:
        raise FedsacError(f"{path}: {error}") from None


def _parsed(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    # ValueError: TOML's own, and numbers of thousands of digits; the others: brackets in brackets, no text at all.
    except (ValueError, RecursionError, TypeError, AttributeError) as error:
        raise FedsacError(f"{path}: not a TOML file: {' '.join(str(error).split())}") from None


def check_version(version: object, where: Path | str) -> None:
    """Raise where a file's format version is newer than this program's, or no version at all."""
    if type(version) is not int or version < 1:
        raise FedsacError(f"{where}: format version {version!r} is not one; is this a file of fedsac's?")
    if version > FORMAT_VERSION:
        raise FedsacError(
            f"{where}: format version {version} is newer than this fedsac understands ({FORMAT_VERSION}); update fedsac"
        )


def check_rules(path: Path) -> None:
    """Raise where the run whose config this is was begun under other rules than this program's."""
    check_rules_in(path.read_text(encoding="utf-8"), path.parent, f", or begin it again with --config {path}")


def check_rules_in(text: str, folder: Path, hint: str = ", or begin it again") -> None:
    """Raise where the run in a folder, whose config this text is, was begun under other rules."""
    rules = _parsed(text, folder).get("rules", 1)
    if rules != RULES:
        raise FedsacError(
            f"{folder}: begun under rules {rules}, this fedsac has rules {RULES}, whose numbers would not go with "
            f"those before; report it as it is, finish it with the version that began it{hint}"
        )


def toml_value(value: object) -> str:
    """A plain value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = "".join(f"\\u{ord(c):04x}" if ord(c) < 32 or c in '"\\\x7f' else c for c in value)
        return f'"{escaped}"'
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return repr(value)
