"""What of a trained network of any kind leaves a site: `disclosure.py`, where there are no neurons to count by.

What an entry of a tensor changes by is a sum over the samples that have a gradient there. Where fewer than `least_rows`
have one, as in the row of a rare word or in a channel that hardly any image activates, the entry goes back as it came.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from fedsac.compute.modules.working import Working
from fedsac.core.module_layout import ModuleLayout
from fedsac.federation.disclosure import secure_normal


def module_disclosed(
    layout: ModuleLayout,
    models: tuple[Tensor, Tensor],
    neurons: Tensor | None,
    samples: tuple[Tensor, Tensor],
    limits: tuple[int, float],
) -> Tensor:
    """The trained model [parameters] as it may leave the site. `models` are the one it was sent and the trained one,
    `samples` the inputs [rows, ...] and labels [rows] that it trained on, `limits` the site's least_rows and blur.

    Then every learned tensor gets Gaussian noise: for each of its outputs (a vector as a whole) of a length of about
    `blur` times the length of the whole change.
    """
    (start, trained), (least_rows, blur) = models, limits
    params = trained.clone()
    if least_rows:
        for model in models:
            working = Working(layout, model, neurons)
            working.load(model)
            few = _rows_with_gradient(working, *samples) < least_rows
            held = ... if neurons is None else layout.held(neurons)
            params[held] = torch.where(few, start[held], params[held])
    length = float((params.double() - start.double()).norm())
    for tensor, learned in zip(layout.views(params).values(), layout.trainable, strict=True):
        if blur and learned:
            each = tensor[0].numel() if tensor.ndim > 1 else tensor.numel()
            noise = secure_normal(tensor.numel()).reshape(tensor.shape)
            tensor += (blur * length / math.sqrt(each + 1) * noise).to(tensor)
    return params


def _rows_with_gradient(working: Working, x: Tensor, y: Tensor) -> Tensor:
    """For each entry of a module's tensors, one after the other, how many samples have a gradient there, with batch
    norm's statistics of all samples. What is not learned, as these statistics, is of all."""
    if working.layout.recipe.batch_norm != "frozen":
        working.measure_statistics(x)
    module = working.module.eval()
    learned = [t for t, wanted in zip(working.tensors, working.layout.trainable, strict=True) if wanted]
    counts = [torch.zeros(t.shape, dtype=torch.int64, device=t.device) for t in learned]
    for i in range(len(y)):
        with torch.enable_grad():
            loss = functional.cross_entropy(module(x[i : i + 1]), y[i : i + 1])
            gradients = torch.autograd.grad(loss, learned, allow_unused=True)
        for count, gradient in zip(counts, gradients, strict=True):
            if gradient is not None:
                count += gradient != 0
    each = iter(counts)
    wanted = zip(working.tensors, working.layout.trainable, strict=True)
    return torch.cat(
        [(next(each) if own else torch.full_like(t, len(y), dtype=torch.int64)).flatten() for t, own in wanted]
    )
