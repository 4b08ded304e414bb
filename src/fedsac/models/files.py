"""A model as a safetensors file: weights that torch loads without this package, and how inputs are normalised."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from fedsac.config import FORMAT_VERSION, check_version
from fedsac.core.module_layout import ModuleLayout, ModuleShape
from fedsac.core.units import Layout
from fedsac.doors import MODELS, NETWORKS
from fedsac.errors import FedsacError
from fedsac.models.module_network import ModuleNetwork
from fedsac.models.network import Network
from fedsac.models.start import NetworkSpec, initial_network
from fedsac.models.table import TableSchema

AnyNetwork = Network | ModuleNetwork


@cache
def serialised_bytes(layout: Layout | ModuleShape, dtype: torch.dtype) -> int:
    """Size in bytes of a safetensors file with only a network's weights, measured by serialising one.

    >>> serialised_bytes(Layout((784, 200, 200, 10)), torch.float32) - 4 * Layout((784, 200, 200, 10)).parameters
    440
    """
    if isinstance(layout, ModuleShape):
        return len(save_tensors({name: torch.zeros(shape, dtype=own or dtype) for name, shape, own in layout.tensors}))
    return len(save_tensors(Network(layout, torch.zeros(layout.parameters, dtype=dtype)).state()))


@dataclass(frozen=True)
class ModelFile:
    """A network and what it takes to use it.

    Inputs are normalised by feature, `(x / top - mean) / deviation`: `top` is the brightest value of an image (255 for
    bytes) and 1 for tables, `mean` and `deviation` are [features]. `facts` are further JSON values kept in the file.
    `table` says how the inputs come from the columns of a table, if a schema did.
    """

    network: AnyNetwork
    classes: tuple[str, ...]
    features: tuple[str, ...]
    top: float
    mean: np.ndarray
    deviation: np.ndarray
    facts: dict[str, Any]
    table: TableSchema | None = None

    def pack(self) -> bytes:
        """The content of the file."""
        metadata = {
            "format_version": FORMAT_VERSION,
            **_described(self.network),
            "classes": self.classes,
            "features": self.features,
            "top": self.top,
            "mean": self.mean.tolist(),
            "deviation": self.deviation.tolist(),
            **({} if self.table is None else {"table": self.table.as_dict()}),
            **self.facts,
        }
        return save_tensors(self.network.state(), {"fedsac": json.dumps(metadata, allow_nan=False)})

    @classmethod
    def load(cls, path: Path, trusted: str | None = None) -> "ModelFile":
        """Read a file, with its metadata checked against its weights. A file may say that its network is made by
        `module:factory`; that is imported and called only where it is `trusted`, since files come from others."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise FedsacError(f"{path}: cannot be read ({error.strerror})") from None
        try:
            tensors = load_tensors(content)
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            metadata = json.loads(header["__metadata__"]["fedsac"])
        except (SafetensorError, ValueError, KeyError):
            raise FedsacError(
                f"{path}: not a model of fedsac's, or damaged; name a .safetensors file of a run"
            ) from None
        check_version(metadata.get("format_version"), path)
        try:
            about = metadata.pop("network", None)
            known = metadata["classes"]
            if about is not None and torch.Size(about["shape"]).numel() != len(metadata["mean"]):
                raise ValueError
            network = Network.from_state(tensors) if about is None else _module_network(about, known, tensors, trusted)
            normalisation = np.array(metadata.pop("mean")), np.array(metadata.pop("deviation"))
            named = (tuple(metadata.pop("classes")), tuple(metadata.pop("features")), float(metadata.pop("top")))
            table = TableSchema.of_dict(metadata.pop("table")) if "table" in metadata else None
            if table is not None and (table.features, table.classes) != named[1::-1]:
                raise ValueError
            if normalisation[0].shape != normalisation[1].shape or not all(np.isfinite(n).all() for n in normalisation):
                raise ValueError
            if isinstance(network, Network) and (
                tuple(metadata["sizes"]) != network.layout.sizes or len(normalisation[0]) != network.layout.sizes[0]
            ):
                raise ValueError
        except (KeyError, ValueError, TypeError, IndexError, AttributeError, ArithmeticError, StopIteration):
            raise FedsacError(f"{path}: its description does not fit its weights; is it damaged?") from None
        return cls(network, *named, *normalisation, metadata, table)

    def normalised(self, x: np.ndarray) -> torch.Tensor:
        """Inputs [n, features] as stored in the data, normalised for the network."""
        if x.ndim != 2 or x.shape[1] != len(self.mean):
            raise FedsacError(f"the model takes {len(self.mean)} features, the data has {x.shape[-1]}")
        dtype = self.network.dtype
        if isinstance(self.network, ModuleNetwork) and self.network.layout.input.tokens:
            return torch.from_numpy(x.astype(np.int64))
        return torch.from_numpy((x.astype(np.float64) / self.top - self.mean) / self.deviation).to(dtype)

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Predicted probabilities [n, classes] of inputs [n, features] as stored in the data."""
        return self.network.logits(self.normalised(x)).softmax(1).numpy()


def _described(network: AnyNetwork) -> dict[str, Any]:
    """What a file says of its network: a perceptron's sizes; of any other its name, what it takes, and its units, from
    which it is built again."""
    if isinstance(network, Network):
        return {"sizes": network.layout.sizes}
    taken = network.layout.input
    return {
        "network": {
            "named": network.layout.named,
            "shape": taken.shape,
            "channels_last": taken.channels_last,
            "tokens": taken.tokens,
            "units": "".join("1" if kept else "0" for kept in network.units.tolist()),
        }
    }


def _module_network(
    about: dict[str, Any], classes: list[str], tensors: dict[str, torch.Tensor], trusted: str | None
) -> ModuleNetwork:
    """The network that a file describes, with its tensors."""
    if NETWORKS.parse(str(about["named"]))[0] not in MODELS.entries and about["named"] != trusted:
        raise FedsacError(
            f"the model's network is {about['named']}, which is no network of fedsac's: if you trust that code, name "
            f"it with --network {about['named']}"
        )
    shape = tuple(int(n) for n in about["shape"])
    dtype = next(tensor.dtype for tensor in tensors.values() if tensor.is_floating_point())
    spec = NetworkSpec(
        features=torch.Size(shape).numel(),
        classes=len(classes),
        hidden=(),
        seed=0,
        dtype=dtype,
        image=(shape[0], shape[1], shape[2]) if len(shape) == 3 else None,
        channels_last=bool(about["channels_last"]),
    )
    layout = initial_network(about["named"], spec).layout
    units = torch.tensor([kept == "1" for kept in about["units"]])
    if not isinstance(layout, ModuleLayout) or len(units) != layout.neurons:
        raise FedsacError(f"the network {about['named']} is not what it was when the model was made; restore it")
    shapes = {name: shape for name, shape, _ in layout.smaller(units).tensors}
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != shapes:
        raise FedsacError(f"the network {about['named']} is not what it was when the model was made; restore it")
    return ModuleNetwork(layout, units, tensors)
