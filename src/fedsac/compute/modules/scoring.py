"""Logits of many submodels of any module, one after the other, with batch norm's statistics as they should be."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from fedsac.compute.modules.inputs import inputs
from fedsac.compute.modules.stacked import Stack, members_at_once
from fedsac.compute.modules.working import Working
from fedsac.compute.samples import Samples
from fedsac.core.module_layout import ModuleLayout

CHUNK_SAMPLES = 256  # evaluated at a time


class Scorer:
    """Evaluates models [S or 1, parameters], each with its own units."""

    def __init__(self, layout: ModuleLayout, params: Tensor, neurons: Tensor | None, samples: Samples) -> None:
        self._layout, self._params, self._neurons, self._samples = layout, params, neurons, samples
        self._whole = Working(layout, params) if neurons is None else None

    def stacked(self, members: int) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
        """The logits [k, n, classes] and labels [k, n] of some members on some samples after the other: as a GPU is
        fast with it."""
        layout, params, masks, y = self._layout, self._params, self._neurons, self._samples.y
        stack = Stack(layout, params)
        stack.module.eval()
        at_once = members_at_once(layout, CHUNK_SAMPLES, params)
        for start in range(0, members, at_once):
            part = slice(start, min(start + at_once, members))
            count = part.stop - part.start
            own = params.expand(count, -1) if len(params) == 1 else params[part]
            held = None if masks is None else layout.held(masks.expand(count, -1) if len(masks) == 1 else masks[part])
            learned, fixed = stack.tensors(own, held)
            if layout.statistics is not None:
                fixed = stack.measure_statistics(learned, fixed, layout.statistics)
            for first in range(0, len(y), CHUNK_SAMPLES):
                rows = torch.arange(first, min(first + CHUNK_SAMPLES, len(y)), device=y.device)
                logits = stack.logits(learned, fixed, inputs(layout, self._samples, rows, 0, params.dtype))
                yield part, slice(first, first + len(rows)), logits, y[rows].expand(count, -1)

    @torch.no_grad()
    def logits(self, member: int, rows: Tensor | None = None) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """The logits [n, classes] and labels [n] of a member on a chunk of these rows (None: all) after the other."""
        module, y = self._loaded(member), self._samples.y
        rows = torch.arange(len(y), device=y.device) if rows is None else rows
        for start in range(0, len(rows), CHUNK_SAMPLES):
            part = rows[start : start + CHUNK_SAMPLES]
            x = inputs(self._layout, self._samples, part, member, self._params.dtype)
            yield slice(start, start + len(part)), module(x), y[part]

    def _loaded(self, member: int) -> nn.Module:
        """A member's submodel, ready to be evaluated."""
        masks, layout = self._neurons, self._layout
        working = self._whole
        if masks is not None:
            working = Working(layout, self._params, masks[member if len(masks) > 1 else 0])
        assert working is not None
        working.load(self._params[member if len(self._params) > 1 else 0])
        if layout.statistics is not None:
            working.measure_statistics(layout.statistics)
        return working.module.eval()


def losses(layout: ModuleLayout, model: Tensor, samples: Samples, member: int, rows: np.ndarray) -> Tensor:
    """Cross-entropy [n] of one model [parameters] on each of n rows of the samples, normalised as `member` does."""
    k = slice(member, member + 1) if len(samples.scale) > 1 else slice(0, 1)
    own = Samples(samples.x, samples.y, samples.scale[k], samples.shift[k])
    scorer = Scorer(layout, model.unsqueeze(0), None, own)
    wanted = torch.from_numpy(rows).to(samples.y.device)
    parts = [
        torch.nn.functional.cross_entropy(logits, y, reduction="none") for _, logits, y in scorer.logits(0, wanted)
    ]
    return torch.cat(parts)
