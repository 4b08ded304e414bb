"""The part of an ONNX file that turns the columns of a table into a network's inputs, as `predict` does: one input for
each column, named as it is."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsac.errors import FedsacError
from fedsac.models.table import CATEGORY, DATE, NUMBER, OTHER, Column, TableSchema

ML_DOMAIN, ML_OPSET = "ai.onnx.ml", 2  # where ONNX has the look-up of texts
PREFIX = "fedsac/"  # of everything inside, so that columns may be called anything else
OUTPUT = "probabilities"


@dataclass
class Front:
    """Nodes, their constants, and inputs of the whole model: columns [n, 1], numbers and dates (days since 1970) as
    double with NaN where a value is missing, categories as text, empty where one is."""

    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: list[Any] = field(default_factory=list)


def front(table: TableSchema, mean: np.ndarray, deviation: np.ndarray, output: str) -> Front:
    """From the columns to normalised inputs [n, features] in float32, called `output`."""
    from onnx import TensorProto, helper

    made = Front()
    parts = []
    for i, column in enumerate(table.columns):
        if column.name == OUTPUT or column.name.startswith(PREFIX):
            raise FedsacError(
                f"column {column.name!r}: the ONNX file has that name for another thing; rename the column"
            )
        kind = TensorProto.DOUBLE if column.type in (NUMBER, DATE) else TensorProto.STRING
        made.inputs.append(helper.make_tensor_value_info(column.name, kind, ["n", 1]))
        parts.append(_column(made, column, f"{PREFIX}c{i}", table.missing))
    whole, centred, scaled = (f"{PREFIX}{name}" for name in ("whole", "centred", "scaled"))
    made.constants |= {f"{PREFIX}mean": mean.astype(np.float64), f"{PREFIX}deviation": deviation.astype(np.float64)}
    # In double, as predict does it: values of any magnitude keep all their digits until they are normalised.
    made.nodes += [
        helper.make_node("Concat", parts, [whole], axis=1),
        helper.make_node("Sub", [whole, f"{PREFIX}mean"], [centred]),
        helper.make_node("Div", [centred, f"{PREFIX}deviation"], [scaled]),
        helper.make_node("Cast", [scaled], [output], to=TensorProto.FLOAT),
    ]
    return made


def _column(made: Front, column: Column, prefix: str, missing: tuple[str, ...]) -> str:
    """The nodes for one column; returns the name of its inputs [n, features]."""
    from onnx import TensorProto, helper

    if column.type in (NUMBER, DATE):
        if column.fill is None:
            return column.name
        made.constants[f"{prefix}/fill"] = np.array([[column.fill_number]])
        made.nodes += [
            helper.make_node("IsNaN", [column.name], [f"{prefix}/missing"]),
            helper.make_node("Where", [f"{prefix}/missing", f"{prefix}/fill", column.name], [f"{prefix}/filled"]),
        ]
        return f"{prefix}/filled"
    numbers = {name: float(i) for i, name in enumerate(column.categories)}
    if column.fill is not None:
        numbers |= dict.fromkeys([name for name in ("", *missing) if name not in numbers], column.fill_number)
    made.nodes += [
        helper.make_node(
            "LabelEncoder",
            [column.name],
            [f"{prefix}/found"],
            domain=ML_DOMAIN,
            keys_strings=list(numbers),
            values_floats=list(numbers.values()),
            default_float=OTHER if column.type == CATEGORY else float("nan"),
        ),
        helper.make_node("Cast", [f"{prefix}/found"], [f"{prefix}/number"], to=TensorProto.DOUBLE),
    ]
    if column.type != CATEGORY:
        return f"{prefix}/number"
    made.constants[f"{prefix}/categories"] = np.arange(len(column.categories), dtype=np.float64)[None]
    made.nodes += [
        helper.make_node("Equal", [f"{prefix}/number", f"{prefix}/categories"], [f"{prefix}/is"]),
        helper.make_node("Cast", [f"{prefix}/is"], [f"{prefix}/inputs"], to=TensorProto.DOUBLE),
    ]
    return f"{prefix}/inputs"
