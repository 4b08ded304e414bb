"""Export of a model as ONNX, to run it without torch."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedsac.errors import FedsacError
from fedsac.models.onnx_table import ML_DOMAIN, ML_OPSET, OUTPUT, PREFIX, Front, front
from fedsac.models.table import TableSchema
from fedsac.version import __version__

if TYPE_CHECKING:
    from fedsac.models.files import ModelFile
    from fedsac.models.module_network import ModuleNetwork
    from fedsac.models.network import Network

BEHIND = f"{PREFIX}x"  # the inputs of a network behind the columns of a table
OPSET, IR = 17, 8  # old enough for every runtime in use, new enough for all we need


def pack(model: "ModelFile") -> bytes:
    """ONNX bytes: input `x` [n, features] float32 as stored in the data, output `probabilities` [n, classes]. A network
    that is no perceptron is exported by torch; there `x` of tokens is int64. A model of a table with a schema has an
    input for each column instead of `x`, named as the column is (`onnx_table`)."""
    from fedsac.models.network import Network

    try:
        import onnx  # noqa: F401
    except ImportError:
        raise FedsacError("export needs the onnx package: pip install 'fedsac[onnx]'") from None
    return _packed(model, model.network) if isinstance(model.network, Network) else _exported(model, model.network)


def takes(model: "ModelFile") -> str:
    """What the exported file is fed, in words."""
    if model.table is not None:
        return "columns by their names, as they stand in the table"
    from fedsac.models.network import Network

    rows, taken = f"[n, {len(model.mean)}]", None if isinstance(model.network, Network) else model.network.layout.input
    if taken is not None and taken.tokens:
        return f"x {rows} int64: rows of tokens as they stand in the data"
    each = "rows of features"
    if taken is not None and len(taken.shape) > 1:
        channels, *sides = taken.shape
        stored = (*sides, channels) if taken.channels_last else taken.shape
        where = "" if len(stored) != 3 else f", channels {'last' if taken.channels_last else 'first'}"
        each = f"images [n, {', '.join(map(str, stored))}]{where}, each flattened to a row,"
    largest = "" if model.top == 1 else f" (values up to {model.top:g})"
    return f"x {rows} float32: {each} as they stand in the data{largest}; the file normalises them itself"


def _packed(model: "ModelFile", network: "Network") -> bytes:
    """A perceptron, written node by node."""
    from onnx import TensorProto, helper, numpy_helper

    inside = "" if model.table is None else PREFIX  # columns may be called anything
    sizes = network.layout.sizes
    if model.table is None:
        # (x - centre) * scale, not x * scale - shift: there, large values would cancel in float32.
        before = Front(
            [
                helper.make_node("Sub", ["x", "centre"], ["centred"]),
                helper.make_node("Mul", ["centred", "scale"], [f"{inside}a0"]),
            ],
            {
                "scale": (1 / (model.top * model.deviation)).astype(np.float32),
                "centre": (model.top * model.mean).astype(np.float32),
            },
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", sizes[0]])],
        )
    else:
        before = front(model.table, model.mean, model.deviation, f"{inside}a0")
    nodes, constants = before.nodes, before.constants
    layers = network.layout.views(network.params.float())
    for i, (weight, bias) in enumerate(layers):
        weights, product, last = [f"{inside}w{i}", f"{inside}b{i}"], f"{inside}z{i}", i == len(layers) - 1
        constants |= dict(zip(weights, (weight.numpy(), bias.numpy()), strict=True))
        nodes.append(helper.make_node("Gemm", [f"{inside}a{i}", *weights], [product]))
        nodes.append(
            helper.make_node("Softmax", [product], [OUTPUT], axis=1)
            if last
            else helper.make_node("Relu", [product], [f"{inside}a{i + 1}"])
        )
    graph = helper.make_graph(
        nodes,
        "fedsac",
        before.inputs,
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["n", sizes[-1]])],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in constants.items()],
    )
    whole = helper.make_model(
        graph,
        opset_imports=_opsets(model),
        ir_version=IR,
        producer_name="fedsac",
        producer_version=__version__,
    )
    return _checked(whole, model)


def _opsets(model: "ModelFile") -> list[Any]:
    from onnx import helper

    plain = [helper.make_opsetid("", OPSET)]
    return plain if model.table is None else [*plain, helper.make_opsetid(ML_DOMAIN, ML_OPSET)]


def _checked(whole: Any, model: "ModelFile") -> bytes:
    """The file, with the names of classes and features in it, and what it is fed."""
    from onnx import checker, helper

    features = {"features": "\n".join(model.features)} if model.features and model.table is None else {}
    helper.set_model_props(whole, {"classes": "\n".join(model.classes), "takes": takes(model), **features})
    checker.check_model(whole)
    return bytes(whole.SerializeToString())


def _behind_table(whole: Any, model: "ModelFile", table: TableSchema) -> None:
    """Put the columns of a table before a network that takes normalised inputs."""
    from onnx import numpy_helper

    before, graph = front(table, model.mean, model.deviation, BEHIND), whole.graph
    nodes = [*before.nodes, *graph.node]
    del graph.node[:], graph.input[:]
    graph.node.extend(nodes)
    graph.input.extend(before.inputs)
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in before.constants.items())
    del whole.opset_import[:]
    whole.opset_import.extend(_opsets(model))


def _exported(model: "ModelFile", network: "ModuleNetwork") -> bytes:
    """Any other network, by torch's own exporter: normalisation, the network, softmax."""
    import io
    import warnings

    import onnx
    import torch
    from torch import Tensor, nn

    taken, inner = network.layout.input, network.module().float()
    rows = "x" if model.table is None else BEHIND

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner
            self.centre = torch.from_numpy(model.top * model.mean).float()
            self.scale = torch.from_numpy(1 / (model.top * model.deviation)).float()

        def forward(self, x: Tensor) -> Tensor:
            given = x if taken.tokens or model.table is not None else (x - self.centre) * self.scale
            probabilities: Tensor = self.inner(taken.inputs(given)).softmax(1)
            return probabilities

    example = torch.zeros(2, len(model.mean), dtype=torch.int64 if taken.tokens else torch.float32)
    file = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that this exporter is the older one; the newer needs onnxscript
            torch.onnx.export(
                Whole().eval(),
                (example,),
                file,  # type: ignore[arg-type]
                input_names=[rows],
                output_names=[OUTPUT],
                dynamic_axes={rows: {0: "n"}, OUTPUT: {0: "n"}},
                opset_version=OPSET,
                dynamo=False,
            )
    except Exception as error:  # of many kinds: what an exporter cannot do, it says in its own words
        named = network.layout.named
        why = " ".join(str(error).split())[:160]
        raise FedsacError(f"torch cannot export {named} as ONNX: {type(error).__name__}: {why}") from error
    whole = onnx.load_from_string(file.getvalue())
    if model.table is not None:
        _behind_table(whole, model, model.table)
    return _checked(whole, model)
