"""Export of a model as ONNX, to run it without torch."""

from typing import TYPE_CHECKING

import numpy as np

from fedsac.errors import FedsacError
from fedsac.version import __version__

if TYPE_CHECKING:
    from fedsac.models.files import ModelFile

OPSET, IR = 17, 8  # old enough for every runtime in use, new enough for all we need


def pack(model: "ModelFile") -> bytes:
    """ONNX bytes: input `x` [n, features] float32 as stored in the data, output `probabilities` [n, classes]."""
    try:
        from onnx import TensorProto, checker, helper, numpy_helper
    except ImportError:
        raise FedsacError("export needs the onnx package: pip install 'fedsac[onnx]'") from None
    constants = {
        "scale": (1 / (model.top * model.deviation)).astype(np.float32),
        "centre": (model.top * model.mean).astype(np.float32),
    }
    # (x - centre) * scale, not x * scale - shift: there, large values would cancel in float32.
    nodes = [
        helper.make_node("Sub", ["x", "centre"], ["centred"]),
        helper.make_node("Mul", ["centred", "scale"], ["a0"]),
    ]
    layers = model.network.layout.views(model.network.params.float())
    for i, (weight, bias) in enumerate(layers):
        constants |= {f"w{i}": weight.numpy(), f"b{i}": bias.numpy()}
        last = i == len(layers) - 1
        nodes.append(helper.make_node("Gemm", [f"a{i}", f"w{i}", f"b{i}"], [f"z{i}"]))
        nodes.append(
            helper.make_node("Softmax", [f"z{i}"], ["probabilities"], axis=1)
            if last
            else helper.make_node("Relu", [f"z{i}"], [f"a{i + 1}"])
        )
    sizes = model.network.layout.sizes
    graph = helper.make_graph(
        nodes,
        "fedsac",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", sizes[0]])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", sizes[-1]])],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in constants.items()],
    )
    whole = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR,
        producer_name="fedsac",
        producer_version=__version__,
    )
    helper.set_model_props(whole, {"classes": "\n".join(model.classes)})
    checker.check_model(whole)
    return bytes(whole.SerializeToString())
