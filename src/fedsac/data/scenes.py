"""The scenes: how training samples are dealt out to clients.

A scene is `pow`, `cla`, `dir:ALPHA`, `dir-class:ALPHA` or `iid`. Each function takes the labels of the samples there
are and gives back, for each client, the positions of its samples in them.
"""

import numpy as np
from scipy.stats import powerlaw

from fedsac.errors import FedsacError

POWER = 1.65911332899  # the exponent that this line of papers draws POW sizes with (CGSV's code)
NAMES = "pow, cla, dir:ALPHA, dir-class:ALPHA, iid"


def parse(scene: str) -> tuple[str, float | None]:
    """Name and parameter of a scene.

    >>> parse("dir:0.5")
    ('dir', 0.5)
    """
    name, colon, value = scene.partition(":")
    if name in ("pow", "cla", "iid") and not colon:
        return name, None
    if name in ("dir", "dir-class"):
        try:
            alpha = float(value)
        except ValueError:
            alpha = np.nan
        if 0 < alpha < np.inf:
            return name, alpha
        raise FedsacError(f"scene {scene!r}: {name} needs a number above 0, as in {name}:1.0")
    raise FedsacError(f"no scene {scene!r}; there are {NAMES}")


def deal(
    scene: str, labels: np.ndarray, classes: int, clients: int, each: int | None, rng: np.random.Generator
) -> list[np.ndarray]:
    """Positions in `labels` for each client; `each` is the number of samples per client (a mean, in `pow`).

    `pow` and `cla` need `each`; `dir`, `dir-class` and `iid` deal out everything where it is None.
    """
    name, alpha = parse(scene)
    if name == "cla":
        assert each is not None
        return class_imbalance(labels, classes, clients, each, rng)
    order = rng.permutation(len(labels))
    if each is not None:
        if each * clients > len(labels):
            raise FedsacError(
                f"scene {scene} with {clients} clients of {each} samples needs {each * clients} samples, and the "
                f"data leaves {len(labels)} for the clients; lower --samples-per-client (at most "
                f"{len(labels) // clients}) or --clients"
            )
        order = order[: each * clients]
    if len(order) < clients:
        raise FedsacError(f"scene {scene}: {len(order)} samples cannot serve {clients} clients; lower --clients")
    if name == "pow":
        assert each is not None
        return _cut(order, power_sizes(clients, each * clients))
    if name == "iid":
        return [np.sort(part) for part in np.array_split(order, clients)]
    assert alpha is not None
    shares = dirichlet if name == "dir" else dirichlet_by_class
    return _cut_by_class(order, labels, shares(labels[order], classes, clients, alpha, rng))


def power_sizes(clients: int, total: int) -> list[int]:
    """Sample counts of POW: `total` over clients whose sizes grow along a power law; the last takes what is left.

    >>> power_sizes(10, 20000)
    [236, 628, 1020, 1412, 1804, 2197, 2589, 2981, 3373, 3760]
    """
    law = powerlaw(POWER)
    b = np.linspace(law.ppf(0.01), law.ppf(0.99), clients)
    sizes = np.ceil(b / b.sum() * total).astype(int).tolist()[:-1]
    last = total - sum(sizes)
    if last < 1:
        raise FedsacError(f"scene pow: {total} samples are too few for {clients} clients; lower --clients")
    return [*sizes, last]


def class_counts(clients: int, classes: int) -> list[int]:
    """How many classes each client holds in CLA.

    >>> class_counts(5, 10), class_counts(10, 10)
    ([1, 3, 5, 7, 10], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    """
    return [int(k) for k in np.linspace(1, classes, clients)]


def class_imbalance(
    labels: np.ndarray, classes: int, clients: int, each: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """CLA: client i holds classes 0..k_i-1, `each` samples in all. Clients may share samples; within a client one is
    drawn twice only where a class runs short."""
    of_class = [np.flatnonzero(labels == k) for k in range(classes)]
    parts = []
    for k in class_counts(clients, classes):
        if each < k:
            raise FedsacError(
                f"scene cla: a client of {k} classes needs at least {k} samples, and has {each}; raise "
                "--samples-per-client or lower --clients"
            )
        take = np.full(k, each // k)
        take[-1] += each - take.sum()
        for label, wanted in enumerate(take):
            if wanted and not len(of_class[label]):
                raise FedsacError(f"scene cla: class {label} has no samples for the clients; remove or fill it")
        drawn = [rng.choice(of_class[c], n, replace=n > len(of_class[c])) for c, n in enumerate(take) if n]
        parts.append(np.sort(np.concatenate(drawn)))
    return parts


def dirichlet(labels: np.ndarray, classes: int, clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """DIR: class shares [clients, classes] of clients of near-equal size, each drawn from Dir(alpha * p).

    p are the class frequencies of the data. One client at a time is redrawn, where that brings the mean share nearer
    to p, until |mean - p|^2 <= 1e-6 (ten times that after every 500 tries): the data then suffices for everyone.
    """
    p = np.bincount(labels, minlength=classes) / len(labels)
    present = p > 0

    def draw() -> np.ndarray:
        share = np.zeros(classes)
        share[present] = rng.dirichlet(alpha * p[present])
        return share

    shares = np.stack([draw() for _ in range(clients)])
    error, tolerance, tries = ((shares.mean(0) - p) ** 2).sum(), 1e-6, 0
    while error > tolerance:
        i = tries % clients
        candidate = draw()
        new = ((shares.mean(0) + (candidate - shares[i]) / clients - p) ** 2).sum()
        if new < error:
            shares[i], error = candidate, new
        tries += 1
        if tries % 500 == 0:
            tolerance *= 10
    return shares


def dirichlet_by_class(
    labels: np.ndarray, classes: int, clients: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """DIR-class: each class is spread over the clients by Dir(alpha); clients differ in size. [clients, classes]."""
    counts = np.bincount(labels, minlength=classes)
    for _ in range(1000):
        shares = rng.dirichlet(np.full(clients, alpha), classes).T
        if (np.floor(shares * counts).sum(1) >= 1).all():  # every client gets at least one sample
            return shares
    raise FedsacError(
        f"scene dir-class:{alpha:g} leaves some of {clients} clients without a sample in 1000 draws; "
        "raise alpha or lower --clients"
    )


def _cut(order: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    return [np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1])]


def _cut_by_class(order: np.ndarray, labels: np.ndarray, shares: np.ndarray) -> list[np.ndarray]:
    """Cut each class by the clients' cumulated shares of it: every sample has one owner."""
    parts: list[list[np.ndarray]] = [[] for _ in shares]
    for label in range(shares.shape[1]):
        rows = order[labels[order] == label]
        total = shares[:, label].sum()
        if not len(rows) or total == 0:
            continue
        cuts = np.round(np.cumsum(shares[:, label]) / total * len(rows)).astype(int)[:-1]
        for part, piece in zip(parts, np.split(rows, cuts), strict=True):
            part.append(piece)
    dealt = [np.sort(np.concatenate(part)) for part in parts]
    empty = [i + 1 for i, part in enumerate(dealt) if not len(part)]
    if empty:
        raise FedsacError(
            f"this scene leaves client {empty[0]} of {len(parts)} without a sample; lower --clients or raise alpha"
        )
    return dealt
