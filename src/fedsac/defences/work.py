"""Who still contributes: measured from every round's updates, on the server's own data.

A contribution that is measured once can go stale: whoever stops training afterwards is paid as before. Here every step
that comes back is compared with what training can look like. From the very submodel that a client was sent, the server
takes one gradient step for each class of V. Whatever mix of classes a client has, its training goes about along a sum
of these steps with weights of at least 0: along the cone that they span. The **work** of a step is the share of its
length that lies in the cone (the cosine of its angle to the cone). Noise has none in so many dimensions, a client that
sends back what it was sent has none, and honest clients have .6 to 1, however unlike their data
(docs/hardening.md#work).

What a client could compute from the models that it was sent before (a stale model, the last difference) is taken out
of its step first: of that, nothing is its own work.
"""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from fedsac.compute import training
from fedsac.compute.samples import Batches, Samples
from fedsac.core.module_layout import AnyLayout, ModuleLayout
from fedsac.core.transfer import to_device

SAMPLES_PER_CLASS = 32  # of V, for the server's step of a class
RIDGE = 1e-6  # of directions that nearly coincide
CPU_COLUMNS = 1 << 13  # of all directions, multiplied at the same time: what a CPU's cache has room for


def class_batches(y: np.ndarray, rng: np.random.Generator, most: int = SAMPLES_PER_CLASS) -> tuple[np.ndarray, ...]:
    """Rows of V [1, classes that are there, most] and their weights, up to `most` samples of each class."""
    drawn = [rng.permutation(np.flatnonzero(y == label))[:most] for label in np.unique(y)]
    rows, weight = np.zeros((1, len(drawn), most), dtype=np.int64), np.zeros((1, len(drawn), most))
    for c, own in enumerate(drawn):
        rows[0, c], weight[0, c, : len(own)] = own[0], 1 / len(own)
        rows[0, c, : len(own)] = own
    return rows, weight


def class_steps(layout: AnyLayout, sent: Tensor, neurons: Tensor, v: Samples, batches: Batches) -> Tensor:
    """The server's gradient step on each class of V [classes, parameters] from the submodel of `sent` [parameters] with
    these neurons [neurons]."""
    count = batches.rows.shape[1]
    masks, rate = neurons.expand(count, -1), torch.ones(count, dtype=sent.dtype, device=sent.device)
    return training.train(layout, sent.unsqueeze(0), masks, v, batches, rate)[0] - sent


def products(step: Tensor, references: Tensor, known: Tensor, held: Tensor) -> Tensor:
    """The products of all these directions with each other, within what the client holds: float64 [n, n], the step
    [parameters] first, then the `known` differences [m, parameters], then the references [classes, parameters]."""
    rows = step.unsqueeze(0), known, references
    at_once = len(held) if held.is_cuda else CPU_COLUMNS
    gram = torch.zeros(sum(map(len, rows)), sum(map(len, rows)), dtype=torch.float64, device=held.device)
    for start in range(0, len(held), at_once):
        part = slice(start, start + at_once)
        columns = torch.where(held[part], torch.cat([own[:, part] for own in rows]), 0).double()
        gram += columns @ columns.T
    lengths = gram.diagonal().sqrt()
    # A direction without a length, or with none that is a number, is none: its row and column are 0.
    one = (lengths > 0) & lengths.isfinite()
    return torch.where(one & one.unsqueeze(1), gram / lengths / lengths.unsqueeze(1), 0)


def share_of_work(gram: np.ndarray, known: int) -> float:
    """The work of a step, from 0 to 1, from the `products` of unit directions: of what the `known` directions cannot
    explain, how much lies in the cone of the references, as a share of the whole step.

    >>> share_of_work(np.array([[1.0, 0.6, 0.0], [0.6, 1.0, 0.0], [0.0, 0.0, 1.0]]), known=0)  # doctest: +ELLIPSIS
    0.59999...
    >>> share_of_work(np.array([[1.0, 1.0, 0.6], [1.0, 1.0, 0.6], [0.6, 0.6, 1.0]]), known=1) < 1e-3
    True
    """
    if gram[0, 0] <= 0:
        return 0.0
    d, c = slice(1, 1 + known), slice(1 + known, len(gram))
    b, among = gram[0, c], gram[c, c]
    if known:
        explained = np.linalg.solve(gram[d, d] + RIDGE * np.eye(known), np.column_stack([gram[d, 0], gram[d, c]]))
        b = b - gram[c, d] @ explained[:, 0]
        among = among - gram[c, d] @ explained[:, 1:]
    root = np.linalg.cholesky(among + (RIDGE + max(0.0, -float(np.linalg.eigvalsh(among)[0]))) * np.eye(len(b)))
    weights, _ = nnls(root.T, np.linalg.solve(root, b))
    squared = float(2 * weights @ b - weights @ among @ weights)
    return float(min(1.0, max(0.0, squared)) ** 0.5)


def measured_work(
    layout: AnyLayout,
    v: Samples,
    rng: np.random.Generator,
    sent: Sequence[Tensor],
    steps: Tensor,
    neurons: Tensor,
    known: Sequence[Tensor],
) -> list[float]:
    """The work of each of k steps [k, parameters]. `sent` are the models that the clients were sent, `neurons` [k,
    neurons] what they hold of them, and `known` [m, parameters] for each the models that they know from before."""
    device = steps.device
    rows, weight = class_batches(v.y.cpu().numpy(), rng)
    batches = Batches(to_device(torch.from_numpy(rows), device), to_device(torch.from_numpy(weight), device).to(steps))
    if isinstance(layout, ModuleLayout):
        batches = Batches(
            batches.rows,
            batches.weight,
            seeds=torch.zeros(rows.shape[1], dtype=torch.int64),
            sizes=torch.from_numpy((weight[0] > 0).sum(1)),
        )
    grams = [
        products(step, class_steps(layout, model, own, v, batches), before - model, layout.held(own))
        for model, step, own, before in zip(sent, steps, neurons, known, strict=True)
    ]
    # One transfer for all, so that a GPU is waited for once.
    return [share_of_work(g, len(before)) for g, before in zip(torch.stack(grams).cpu().numpy(), known, strict=True)]
