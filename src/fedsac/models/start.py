"""The initial network of a run, by the name in its config."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fedsac.core.module_layout import InputShape, ModuleLayout
from fedsac.core.unit_table import UnitTable
from fedsac.core.units import Layout
from fedsac.doors import MODELS, NETWORKS
from fedsac.errors import FedsacError
from fedsac.models.finding.finder import find_units
from fedsac.models.network import PERCEPTRON, Network
from fedsac.recipe import PLAIN, Recipe
from fedsac.rng import stream

EXAMPLES = 2  # inputs that a network is traced and proved on
MAX_TABLES = 8  # of units, kept: finding and proving those of a ResNet takes seconds

_tables: dict[tuple[object, ...], UnitTable] = {}


@dataclass(frozen=True)
class NetworkSpec:
    """What a run needs of its network: shape (number of features, of classes, of neurons in each hidden layer), the
    seed of its initial weights, and their type. `image`: channels, height and width where inputs are images, whose
    channels may be stored last; `recipe`: how it is trained."""

    features: int
    classes: int
    hidden: tuple[int, ...]
    seed: int
    dtype: torch.dtype
    image: tuple[int, int, int] | None = None
    channels_last: bool = False
    recipe: Recipe = PLAIN

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return (self.features,) if self.image is None else self.image


@dataclass(frozen=True)
class Start:
    """A layout, and the parameters [parameters] that a run begins with."""

    layout: Layout | ModuleLayout
    params: Tensor


def initial_network(named: str, wanted: NetworkSpec) -> Start:
    """The network of this name with its initial weights: a built-in one, or what `module:factory` makes. A perceptron
    that is trained by plain SGD has a `Layout`, and code of its own; everything else a `ModuleLayout`."""
    name, _ = NETWORKS.parse(named)
    if name not in NETWORKS.entries and _wants_number(NETWORKS.resolve(named)):
        wanted = replace(wanted, image=None)  # who asks for the number of features takes them in a row
    if wanted.recipe.augment and wanted.image is None:
        raise FedsacError(f"augment is for images, and network {named} is given none: leave it out")
    made = NETWORKS.resolve(named)(wanted) if name not in MODELS.entries and name in NETWORKS.entries else None
    module = made_module(named, wanted) if made is None else made
    perceptron = _perceptron(module)
    if perceptron is not None:
        _check_perceptron(named, perceptron, wanted)
        if wanted.recipe.plain:
            return Start(perceptron.layout, perceptron.params.to(wanted.dtype))
        module = perceptron.module()
        if wanted.recipe.augment:
            module.insert(0, nn.Flatten())
        else:
            wanted = replace(wanted, image=None)
    assert isinstance(module, nn.Module)
    return _of_module(named, module.to(wanted.dtype), wanted)


def made_module(named: str, wanted: NetworkSpec) -> nn.Module:
    """The module that a factory makes, with weights that depend on the seed alone."""
    # torch draws starting weights from its global generator: seeded for this, and left as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(wanted.seed, "initial weights").integers(2**63)))
        made = called(NETWORKS.resolve(named), named, wanted.shape, wanted.classes)
    if not isinstance(made, nn.Module):
        raise FedsacError(f"network {named} must return a torch module; it returns {type(made).__name__}")
    return made


def called(make: Callable[..., Any], named: str, shape: tuple[int, ...], classes: int) -> Any:
    """What a factory gives: called with the input's shape (or the number of features, where its first argument is
    named so) and the number of classes, and what stands behind a second colon; or with nothing."""
    name, parameter = NETWORKS.parse(named)
    extra = () if parameter is None else (_whole_number(named, parameter),)
    first: Any = shape if name in MODELS.entries or not _wants_number(make) else torch.Size(shape).numel()
    arguments = next((some for some in ((first, classes, *extra), extra) if _takes(make, some)), None)
    if arguments is None:
        raise FedsacError(
            f"network {named} must take the input's shape (or features) and classes, or nothing; it takes "
            f"{inspect.signature(make)}"
        )
    try:
        return make(*arguments)
    except FedsacError:
        raise
    except Exception as error:  # a user's own code may raise anything
        raise FedsacError(f"network {named} fails: {type(error).__name__}: {error}") from error


def _whole_number(named: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise FedsacError(f"network {named}: what stands behind the colon must be a whole number above 0")
    return int(text)


def _wants_number(make: Callable[..., Any]) -> bool:
    """Whether a factory's first argument is the number of features, not the input's shape."""
    try:
        first = next(iter(inspect.signature(make).parameters.values()), None)
    except (TypeError, ValueError):
        return False
    return first is not None and ("features" in first.name or first.annotation in (int, "int"))


def _takes(make: Callable[..., Any], arguments: tuple[object, ...]) -> bool:
    try:
        inspect.signature(make).bind(*arguments)
    except TypeError:
        return False
    return True


def _perceptron(module: Network | nn.Module) -> Network | None:
    """The module as a perceptron, if it is one."""
    if isinstance(module, Network):
        return module
    if not isinstance(module, nn.Sequential) or any(type(part) not in PERCEPTRON for part in module):
        return None
    try:
        return Network.of(module)
    except FedsacError:
        return None


def _check_perceptron(named: str, network: Network, wanted: NetworkSpec) -> None:
    sizes = network.layout.sizes
    if (sizes[0], sizes[-1]) != (wanted.features, wanted.classes):
        raise FedsacError(
            f"network {named}: it takes {sizes[0]} features and knows {sizes[-1]} classes; the data has "
            f"{wanted.features} and {wanted.classes}"
        )


def _of_module(named: str, module: nn.Module, wanted: NetworkSpec) -> Start:
    embedded = [layer.num_embeddings for layer in module.modules() if isinstance(layer, nn.Embedding)]
    tokens = bool(getattr(module, "takes_tokens", embedded))
    taken, rng = InputShape(wanted.shape, wanted.channels_last, tokens), stream(0, "examples")
    if tokens:
        examples = torch.from_numpy(rng.integers(min(embedded, default=2), size=(EXAMPLES, *wanted.shape)))
    else:
        examples = torch.from_numpy(rng.standard_normal((EXAMPLES, *wanted.shape))).to(wanted.dtype)
    _check_outputs(named, module, examples, wanted)
    layout = ModuleLayout(named, module, _units(named, module, examples, wanted), taken, wanted.classes, wanted.recipe)
    if not layout.neurons:
        raise FedsacError(f"network {named}: none of its units can be cut; see fedsac inspect")
    return Start(layout, layout.vector(module.state_dict()))


def _check_outputs(named: str, module: nn.Module, examples: Tensor, wanted: NetworkSpec) -> None:
    training = module.training
    try:
        with torch.no_grad():
            logits = module.eval()(examples)
    except Exception as error:  # a user's own code may raise anything
        shape = "x".join(map(str, wanted.shape))
        raise FedsacError(
            f"network {named} does not take inputs of shape {shape}, as the data has them: "
            f"{' '.join(str(error).split())[:200]}"
        ) from error
    finally:
        module.train(training)
    if not isinstance(logits, Tensor) or tuple(logits.shape) != (len(examples), wanted.classes):
        got = tuple(logits.shape[1:]) if isinstance(logits, Tensor) else type(logits).__name__
        raise FedsacError(f"network {named} must give a score for each of {wanted.classes} classes, not {got}")


def _units(named: str, module: nn.Module, examples: Tensor, wanted: NetworkSpec) -> UnitTable:
    """The units of a module, found once for all runs with the same network. Of a network of which parts are not
    learned, as one with LoRA adapters, only units are cut that are learned as a whole."""
    shapes = tuple((name, tuple(tensor.shape)) for name, tensor in module.state_dict().items())
    key = (named, wanted.shape, wanted.classes, shapes)
    if key not in _tables:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            found = find_units(module, examples)
        fixed = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
        reasons = {
            group.name: "not learned as a whole" for group in found.groups if any(n in fixed for n, _, _ in group.where)
        }
        while len(_tables) >= MAX_TABLES:
            _tables.pop(next(iter(_tables)))
        _tables[key] = found.without(reasons) if reasons else found
    return _tables[key]


def with_statistics(layout: ModuleLayout, inputs: Tensor) -> ModuleLayout:
    """The layout with samples on which batch norm's statistics are measured again."""
    return replace(layout, statistics=inputs, _slots={})
