"""CUDA graphs for small work, whose kernels take longer to launch than to run: small stacks, and the server's steps.
Work of the same shape that comes a second time is captured as a graph, and from then on launched as one.

Not for matrix products by torch. cuBLAS allocates a workspace, which all graphs captured on one stream share and which
is freed with the graph that allocated it: two graphs that run at the same time would overwrite it. Nor for what waits
for the GPU or copies from the CPU.

A graph reads and writes fixed addresses in memory. So it has its own copies of the inputs, and returns copies of its
results.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

MAX_STACK_PARAMETERS = 1 << 24  # in a larger stack, kernels run for longer than the next one takes to launch
MAX_GRAPHS = 24  # kept, with the memory of their work: training of three kinds in two groups of runs, server steps

Work = Callable[..., tuple[Tensor, ...]]

_lock = threading.Lock()
_graphs: "OrderedDict[Hashable, CapturedWork | None]" = OrderedDict()  # least recently used first; None: seen once


class CapturedWork:
    """`work`, captured as a graph for inputs of these shapes."""

    def __init__(self, work: Work, inputs: tuple[Tensor, ...]) -> None:
        self._inputs = tuple(t.clone(memory_format=torch.contiguous_format) for t in inputs)
        self._graph = torch.cuda.CUDAGraph()
        # thread_local: other threads may use the GPU during the capture.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._results = work(*self._inputs)

    def replay(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        for own, new in zip(self._inputs, inputs, strict=True):
            own.copy_(new)
        self._graph.replay()
        return tuple(t.clone() for t in self._results)


def run_as_graph(work: Work, inputs: tuple[Tensor, ...], depends_on: Hashable) -> tuple[Tensor, ...]:
    """work(*inputs), with the same bits, on a GPU from a captured graph where there is one.

    `depends_on` names everything but the inputs that the work depends on; tensors by their `memory_key`.
    """
    if not inputs[0].is_cuda:
        return work(*inputs)
    # Each stream has its own graphs: replays of one graph must wait for each other.
    stream = torch.cuda.current_stream(inputs[0].device)
    key = (depends_on, stream.device, stream.cuda_stream, tuple((t.shape, t.dtype) for t in inputs))
    with _lock:  # no other thread may replay the graph between the copies of inputs and of results
        known = key in _graphs
        graph = _graphs.pop(key, None)
        if not known:
            results = work(*inputs)  # this also compiles its kernels, which cannot be done during a capture
        else:
            graph = graph or CapturedWork(work, inputs)
            results = graph.replay(inputs)
        _graphs[key] = graph
        while len(_graphs) > MAX_GRAPHS:
            _graphs.popitem(last=False)
    return results


def memory_key(tensor: Tensor) -> Hashable:
    """Address, shape, strides and type of a tensor: a graph that reads one tensor also fits another with this key."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
