"""What a site has agreed to, and what it is sent to train."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsac.config import Config
from fedsac.core.module_layout import AnyLayout
from fedsac.federation.data import Schema
from fedsac.federation.declining import DeclinedError
from fedsac.federation.folder import SiteSettings
from fedsac.federation.networks import built_here
from fedsac.federation.wire import submodel
from fedsac.models.table import TableSchema


@dataclass(frozen=True)
class JoinTerms:
    """The terms that a site joined on: the schema, the normalisation of inputs, the settings of training."""

    schema: Schema
    channel: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    settings: dict[str, Any]
    sizes: tuple[int, ...] | None  # of a perceptron; terms that an earlier version agreed on do not say
    network: dict[str, Any] | None  # of any other network: what it is called, its structure's hash
    table: TableSchema | None = None  # what the columns of everybody's table mean, if the federation says so

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "JoinTerms":
        arrays = np.array(facts["channel"], np.int64), np.array(facts["mean"]), np.array(facts["deviation"])
        sizes = tuple(facts["sizes"]) if "sizes" in facts else None
        table = TableSchema.of_dict(facts["table"]) if "table" in facts else None
        if table is not None and table.sha256 != facts.get("table_sha256"):
            raise DeclinedError("terms", "the schema of the tables is not the one whose hash is in the terms")
        return cls(Schema.of_dict(facts["schema"]), *arrays, facts["settings"], sizes, facts.get("network"), table)

    def config(self, own: SiteSettings) -> Config:
        """The settings by which a site trains, as those of a run of its own."""
        settings = self.settings | ({"hidden": tuple(self.settings["hidden"])} if "hidden" in self.settings else {})
        config = Config(data=own.name, scene="silos", device=own.device, **settings)
        return config if self.network is None else config.replace(network=built_here(own, self.network))


@dataclass(frozen=True)
class Received:
    """A model that a site was sent to train: `params` [parameters], of which it holds `neurons` [units] (None: all)."""

    layout: AnyLayout
    params: Tensor
    neurons: Tensor | None = None

    def arrays(self, trained: Tensor) -> dict[str, np.ndarray]:
        """What the site has of a model [parameters], as arrays."""
        everything = torch.ones(self.layout.neurons, dtype=torch.bool)
        return submodel(self.layout, trained, everything if self.neurons is None else self.neurons)
