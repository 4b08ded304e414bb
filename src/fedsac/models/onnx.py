"""Export of a model as ONNX, to run it without torch."""

from typing import TYPE_CHECKING

import numpy as np

from fedsac.errors import FedsacError
from fedsac.version import __version__

if TYPE_CHECKING:
    from fedsac.models.files import ModelFile
    from fedsac.models.module_network import ModuleNetwork
    from fedsac.models.network import Network

OPSET, IR = 17, 8  # old enough for every runtime in use, new enough for all we need


def pack(model: "ModelFile") -> bytes:
    """ONNX bytes: input `x` [n, features] float32 as stored in the data, output `probabilities` [n, classes]. A network
    that is no perceptron is exported by torch; there `x` of tokens is int64."""
    from fedsac.models.network import Network

    try:
        import onnx  # noqa: F401
    except ImportError:
        raise FedsacError("export needs the onnx package: pip install 'fedsac[onnx]'") from None
    return _packed(model, model.network) if isinstance(model.network, Network) else _exported(model, model.network)


def _packed(model: "ModelFile", network: "Network") -> bytes:
    """A perceptron, written node by node."""
    from onnx import TensorProto, checker, helper, numpy_helper

    constants = {
        "scale": (1 / (model.top * model.deviation)).astype(np.float32),
        "centre": (model.top * model.mean).astype(np.float32),
    }
    # (x - centre) * scale, not x * scale - shift: there, large values would cancel in float32.
    nodes = [
        helper.make_node("Sub", ["x", "centre"], ["centred"]),
        helper.make_node("Mul", ["centred", "scale"], ["a0"]),
    ]
    layers = network.layout.views(network.params.float())
    for i, (weight, bias) in enumerate(layers):
        constants |= {f"w{i}": weight.numpy(), f"b{i}": bias.numpy()}
        last = i == len(layers) - 1
        nodes.append(helper.make_node("Gemm", [f"a{i}", f"w{i}", f"b{i}"], [f"z{i}"]))
        nodes.append(
            helper.make_node("Softmax", [f"z{i}"], ["probabilities"], axis=1)
            if last
            else helper.make_node("Relu", [f"z{i}"], [f"a{i + 1}"])
        )
    sizes = network.layout.sizes
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


def _exported(model: "ModelFile", network: "ModuleNetwork") -> bytes:
    """Any other network, by torch's own exporter: normalisation, the network, softmax."""
    import io
    import warnings

    import onnx
    import torch
    from torch import Tensor, nn

    taken, inner = network.layout.input, network.module().float()

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner
            self.centre = torch.from_numpy(model.top * model.mean).float()
            self.scale = torch.from_numpy(1 / (model.top * model.deviation)).float()

        def forward(self, x: Tensor) -> Tensor:
            rows = x if taken.tokens else (x - self.centre) * self.scale
            probabilities: Tensor = self.inner(taken.inputs(rows)).softmax(1)
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
                input_names=["x"],
                output_names=["probabilities"],
                dynamic_axes={"x": {0: "n"}, "probabilities": {0: "n"}},
                opset_version=OPSET,
                dynamo=False,
            )
    except Exception as error:  # of many kinds: what an exporter cannot do, it says in its own words
        named = network.layout.named
        why = " ".join(str(error).split())[:160]
        raise FedsacError(f"torch cannot export {named} as ONNX: {type(error).__name__}: {why}") from error
    whole = onnx.load_from_string(file.getvalue())
    onnx.helper.set_model_props(whole, {"classes": "\n".join(model.classes)})
    onnx.checker.check_model(whole)
    return bytes(whole.SerializeToString())
