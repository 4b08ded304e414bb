"""Importance of the units of a run's network (Eq. 3)."""

import torch
from torch import Tensor

from fedsac.compute.modules.inputs import inputs
from fedsac.compute.modules.working import Working
from fedsac.compute.samples import Samples
from fedsac.compute.unit_importance import unit_importance
from fedsac.core.module_layout import ModuleLayout


def module_importance(layout: ModuleLayout, params: Tensor, samples: Samples, *, exact: bool) -> Tensor:
    """Importance, float64 [units], of a model [parameters] on samples: exact where wanted and affordable
    (`unit_importance.EXACT_SAMPLES`), else first-order. Batch norm has the statistics of the whole model."""
    working = Working(layout, params)
    working.load(params)
    if layout.statistics is not None:
        working.measure_statistics(layout.statistics)
    rows = torch.arange(len(samples.y), device=samples.y.device)
    x = inputs(layout, samples, rows, 0, params.dtype)
    return unit_importance(working.module, layout.table, x, samples.y, exact=None if exact else False).to(params.device)
