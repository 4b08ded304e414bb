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
from fedsac.core.units import Layout
from fedsac.errors import FedsacError
from fedsac.models.network import Network


@cache
def serialised_bytes(layout: Layout, dtype: torch.dtype) -> int:
    """Size in bytes of a safetensors file with only a network's weights, measured by serialising one.

    >>> serialised_bytes(Layout((784, 200, 200, 10)), torch.float32) - 4 * Layout((784, 200, 200, 10)).parameters
    440
    """
    return len(save_tensors(Network(layout, torch.zeros(layout.parameters, dtype=dtype)).state()))


@dataclass(frozen=True)
class ModelFile:
    """A network and what it takes to use it.

    Inputs are normalised by feature, `(x / top - mean) / deviation`: `top` is the brightest value of an image (255 for
    bytes) and 1 for tables, `mean` and `deviation` are [features]. `facts` are further JSON values kept in the file.
    """

    network: Network
    classes: tuple[str, ...]
    features: tuple[str, ...]
    top: float
    mean: np.ndarray
    deviation: np.ndarray
    facts: dict[str, Any]

    def pack(self) -> bytes:
        """The content of the file."""
        metadata = {
            "format_version": FORMAT_VERSION,
            "sizes": self.network.layout.sizes,
            "classes": self.classes,
            "features": self.features,
            "top": self.top,
            "mean": self.mean.tolist(),
            "deviation": self.deviation.tolist(),
            **self.facts,
        }
        return save_tensors(self.network.state(), {"fedsac": json.dumps(metadata, allow_nan=False)})

    @classmethod
    def load(cls, path: Path) -> "ModelFile":
        """Read a file, with its metadata checked against its weights."""
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
            network = Network.from_state(tensors)
            normalisation = np.array(metadata.pop("mean")), np.array(metadata.pop("deviation"))
            named = (tuple(metadata.pop("classes")), tuple(metadata.pop("features")), float(metadata.pop("top")))
            if tuple(metadata["sizes"]) != network.layout.sizes or len(normalisation[0]) != network.layout.sizes[0]:
                raise ValueError
        except (KeyError, ValueError, TypeError, IndexError):
            raise FedsacError(f"{path}: its description does not fit its weights; is it damaged?") from None
        return cls(network, *named, *normalisation, metadata)

    def normalised(self, x: np.ndarray) -> torch.Tensor:
        """Inputs [n, features] as stored in the data, normalised for the network."""
        if x.ndim != 2 or x.shape[1] != len(self.mean):
            raise FedsacError(f"the model takes {len(self.mean)} features, the data has {x.shape[-1]}")
        dtype = self.network.params.dtype
        return torch.from_numpy((x.astype(np.float64) / self.top - self.mean) / self.deviation).to(dtype)

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Predicted probabilities [n, classes] of inputs [n, features] as stored in the data."""
        return self.network.logits(self.normalised(x)).softmax(1).numpy()
