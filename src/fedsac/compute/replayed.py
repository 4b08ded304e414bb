"""Passes of a module of which only the end changes: layers that run before it say what they said before."""

from collections.abc import Iterator

from torch import Tensor, nn

KEPT_BYTES = 1 << 30  # of what layers say, at most: those after it run in every pass


class Replayed:
    """A module whose layers (modules without children) remember what they said in one pass. As long as nothing changes
    but the tensors of later layers, later passes over the same samples need not run the earlier ones.

    The module is changed by this: it must be a copy that nobody else uses."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._said: list[tuple[Tensor, int]] = []  # by the first calls, with the tensors' versions
        self._calls: dict[nn.Module, int] = {}  # each layer's first
        self._next, self._from, self._bytes = 0, 0, 0
        self._recording = False
        self._copying = False  # what was said, since the module writes into some of it
        for layer in module.modules():
            if next(layer.children(), None) is None:
                self._wrap(layer)

    def first(self, x: Tensor) -> Tensor:
        """A whole pass over samples, which is remembered."""
        said = self._recorded(x)
        if not self._copying and any(_written(tensor, version) for tensor, version in self._said):
            # Whoever wrote into what a layer had said would do so again in every pass.
            self._copying = True
            said = self._recorded(x)
        return said

    def again(self, x: Tensor, start: int) -> Tensor:
        """A pass over the same samples that begins with this call."""
        self._next, self._from = 0, min(start, len(self._said))
        said: Tensor = self.module(x)
        return said

    def start(self, tensor: Tensor) -> int:
        """The first call that reads this parameter; 0 where it is not a called layer's own."""
        return min((self._calls.get(owner, 0) for owner in self._owners(tensor)), default=0)

    def _owners(self, tensor: Tensor) -> Iterator[nn.Module]:
        return (module for module in self.module.modules() if any(own is tensor for own in module._parameters.values()))

    def _recorded(self, x: Tensor) -> Tensor:
        self._said, self._calls, self._bytes = [], {}, 0
        self._recording = True
        said = self.again(x, 0)
        self._recording = False
        return said

    def _wrap(self, layer: nn.Module) -> None:
        run = layer.forward

        def forward(*inputs: object, **named: object) -> object:
            call = self._next
            self._next += 1
            if call < self._from:
                known = self._said[call][0]
                return known.clone() if self._copying else known
            said = run(*inputs, **named)
            if self._recording:
                self._calls.setdefault(layer, call)
                self._remember(call, said)
            return said

        layer.forward = forward

    def _remember(self, call: int, said: object) -> None:
        if call > len(self._said) or not isinstance(said, Tensor):
            return  # after a call that is not remembered no other one need be
        self._bytes += said.numel() * said.element_size()
        if self._bytes <= KEPT_BYTES:
            self._said.append((said.clone() if self._copying else said, _version(said)))


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _written(tensor: Tensor, version: int) -> bool:
    """Whether anyone may have written into a tensor since: in inference mode torch does not count."""
    return tensor.is_inference() or tensor._version != version
