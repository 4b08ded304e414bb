"""Copies of a layout's module that vectors are loaded into, for training and for scoring."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedsac.core.module_layout import AnyLayout, ModuleLayout
from fedsac.models.batch_norm import norms_of
from fedsac.models.finding.shrinking import copied, smaller

STATISTICS_CHUNK = 256  # samples at a time on which batch norm's statistics are measured


class Working:
    """A module of its own, on a device, whose tensors are those of one vector after the other. With `units`, a boolean
    mask [units], it is the submodel that is cut out with them: as fast as it is small."""

    def __init__(self, layout: ModuleLayout, like: Tensor, units: Tensor | None = None) -> None:
        self.layout = layout
        self._held: Tensor | None = None
        made = copied(layout.template)
        if units is not None and not bool(units.all()):
            self._held, made = layout.held(units), smaller(layout.template, layout.table, units.cpu())
        self.module = made.to(like.device, like.dtype)
        state = self.module.state_dict(keep_vars=True)
        self.tensors = [state[name] for name in layout.names]
        self._outside = [(state[name], value.to(like.device)) for name, value in layout.outside.items()]
        self.norms = norms_of(self.module)
        self.without_statistics = False  # while batch norms have none, as in `training`

    @torch.no_grad()
    def load(self, params: Tensor) -> None:
        """Take the tensors of a vector [parameters]."""
        vector = params if self._held is None else params[self._held]
        parts = vector.split([tensor.numel() for tensor in self.tensors])
        for tensor, part in zip(self.tensors, parts, strict=True):
            tensor.copy_(part.view(tensor.shape))
        for tensor, value in self._outside:
            tensor.copy_(value)

    @torch.no_grad()
    def merged(self, params: Tensor) -> Tensor:
        """A vector [parameters] with the tensors as they are now in the place of its own; what the submodel does not
        have stays."""
        own = torch.cat([tensor.detach().flatten() for tensor in self.tensors])
        if self._held is None:
            return own
        merged = params.clone()
        merged[self._held] = own
        return merged

    @torch.no_grad()
    def measure_statistics(self, inputs: Tensor) -> None:
        """Set the statistics of batch norms to those of these inputs: the mean over chunks of about equal size."""
        with self.measuring(inputs) as parts:
            for part in parts:
                self.module(part)

    @contextmanager
    def measuring(self, inputs: Tensor) -> Iterator[Iterator[Tensor]]:
        """Chunks of the inputs; called with one after the other, the module's batch norms end with the statistics of
        all. None where it has no batch norms."""
        momenta = [layer.momentum for layer in self.norms]
        self.module.eval()
        for layer in self.norms:
            layer.train()

        def parts() -> Iterator[Tensor]:
            for i, part in enumerate(inputs.chunk(max(1, round(len(inputs) / STATISTICS_CHUNK)))):
                for layer in self.norms:
                    layer.momentum = 1 / (i + 1)
                yield part

        try:
            yield parts() if self.norms else iter(())
        finally:
            for layer, momentum in zip(self.norms, momenta, strict=True):
                layer.momentum = momentum
            self.module.eval()

    @contextmanager
    def training(self) -> Iterator[nn.Module]:
        """The module in training mode. By `batch_norm` of the recipe, batch norms normalise by the batch and leave the
        running statistics alone (validation) or update them (running), or by the running ones (frozen)."""
        how = self.layout.recipe.batch_norm
        self.module.train()
        kept, self.without_statistics = [], how == "validation"
        for layer in self.norms:
            if how == "frozen":
                layer.eval()
            elif how == "validation":
                kept.append((layer, layer.running_mean, layer.running_var))
                layer.running_mean = layer.running_var = None
                layer.track_running_stats = False
        try:
            yield self.module
        finally:
            self.without_statistics = False
            for layer, mean, var in kept:
                layer.running_mean, layer.running_var, layer.track_running_stats = mean, var, True
            self.module.eval()


def activations(layout: AnyLayout) -> int:
    """How many numbers a network computes for one sample: of a module, the outputs of all its layers."""
    if not isinstance(layout, ModuleLayout):
        return sum(layout.sizes)
    total = 0

    def count(layer: nn.Module, taken: object, given: object) -> None:
        nonlocal total
        total += given.numel() if isinstance(given, Tensor) else 0

    like = next(layout.template.parameters())
    working = Working(layout, like)
    hooks = [m.register_forward_hook(count) for m in working.module.modules() if not list(m.children())]
    kind = torch.int64 if layout.input.tokens else like.dtype
    with torch.no_grad():
        working.module.eval()(torch.zeros(1, *layout.input.shape, dtype=kind, device=like.device))
    for hook in hooks:
        hook.remove()
    return total
