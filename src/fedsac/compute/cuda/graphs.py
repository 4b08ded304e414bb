"""CUDA graphs for small stacks, whose kernels take longer to launch than to run: work that comes a second time is
captured, and from then on launched as one.

Only for work by our own kernels. cuBLAS would need memory of its own, which graphs captured on one stream share: two
that run at the same time could not, and with the graph that brought it, it goes.

What is captured reads and writes fixed places in memory. So a graph has copies of what it is given, and gives copies
of what it found.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

SMALL = 1 << 24  # parameters of a stack; a larger one keeps a GPU busy while the next kernel is launched
KEPT = 8  # graphs, each of which holds its work's memory: training, standing alone and extra epochs of two parts

Work = Callable[..., tuple[Tensor, ...]]

_lock = threading.Lock()
_graphs: "OrderedDict[Hashable, Graph | None]" = OrderedDict()  # None: seen once


class Graph:
    """Some work on tensors of given shapes."""

    def __init__(self, work: Work, given: tuple[Tensor, ...]) -> None:
        self._given = tuple(t.clone(memory_format=torch.contiguous_format) for t in given)
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may go on with their own work meanwhile.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._found = work(*self._given)

    def replay(self, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        for own, new in zip(self._given, given, strict=True):
            own.copy_(new)
        self._graph.replay()
        return tuple(t.clone() for t in self._found)


def replayed(work: Work, given: tuple[Tensor, ...], depends_on: Hashable) -> tuple[Tensor, ...]:
    """work(*given), with the same bits. Besides the tensors it is given, the work may depend on what `depends_on`
    names alone: other tensors by `place`."""
    # One graph is for one stream, in which its replays wait for each other.
    stream = torch.cuda.current_stream(given[0].device)
    key = (depends_on, stream.device, stream.cuda_stream, tuple((t.shape, t.dtype) for t in given))
    with _lock:  # between the copies that a replay begins and ends with, no other thread may have the same graph
        known = key in _graphs
        graph = _graphs.pop(key, None)
        if not known:
            found = work(*given)  # which also compiles its kernels: that cannot be captured
        else:
            graph = graph or Graph(work, given)
            found = graph.replay(given)
        _graphs[key] = graph
        while len(_graphs) > KEPT:
            _graphs.popitem(last=False)
    return found


def place(tensor: Tensor) -> Hashable:
    """Where a tensor lies and what it is like: for a graph, two tensors of one place are the same."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
