"""The scenes: how training samples are partitioned over clients.

A scene is `pow`, `cla`, `dir:ALPHA`, `dir-class:ALPHA`, `iid`, or one of your own: a function that takes a `Deal` and
returns, for each client, the positions of its samples (docs/extending.md).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedsac.doors import SCENES
from fedsac.errors import FedsacError

POWER_LAW_EXPONENT = 1.65911332899  # of the sizes in POW, as in CGSV's code and the papers after it


@dataclass(frozen=True)
class Deal:
    """The arguments of a scene: the labels of all training samples, how many classes and clients there are, and `rng`.

    `samples_per_client` is the user's setting, or None; `default_samples` is what a scene that needs such a number uses
    instead of None. `parameter` is the text after the colon in the scene's name, as in `dir:1.0`.
    """

    scene: str
    labels: np.ndarray
    classes: int
    clients: int
    samples_per_client: int | None
    default_samples: int
    rng: np.random.Generator
    parameter: str | None = None

    def samples_each(self) -> int:
        """Samples per client (in POW their mean), for a scene that needs such a number."""
        each = self.default_samples if self.samples_per_client is None else self.samples_per_client
        if each == 0:
            raise FedsacError(
                f"scene {self.scene}: {len(self.labels)} samples cannot serve {self.clients} clients; lower --clients"
            )
        return each

    def shuffled(self, each: int | None) -> np.ndarray:
        """Positions of samples in random order: of `each` times the number of clients, or of all if it is None."""
        order = self.rng.permutation(len(self.labels))
        if each is not None:
            if each * self.clients > len(order):
                raise FedsacError(
                    f"scene {self.scene} with {self.clients} clients of {each} samples needs {each * self.clients} "
                    f"samples, and the data leaves {len(order)} for the clients; lower --samples-per-client (at most "
                    f"{len(order) // self.clients}) or --clients"
                )
            order = order[: each * self.clients]
        if len(order) < self.clients:
            raise FedsacError(
                f"scene {self.scene}: {len(order)} samples cannot serve {self.clients} clients; lower --clients"
            )
        return order


Scene = Callable[[Deal], list[np.ndarray]]
"""Returns, for each client, the positions of its samples in `Deal.labels`."""


def counted_in_classes(scene: Scene) -> Scene:
    """Decorator for a scene whose clients differ in their number of classes, not of samples: methods that weight
    clients by size then use the number of classes."""
    if not callable(scene):
        raise FedsacError(f"counted_in_classes decorates a scene, a function of a Deal, not {type(scene).__name__}")
    scene.size_is_classes = True  # type: ignore[attr-defined]
    return scene


def deal(given: Deal) -> list[np.ndarray]:
    """Partition the samples by the scene that is named, and check what it returns."""
    dealt = SCENES.resolve(given.scene)(given)
    try:
        parts = [np.asarray(part) for part in dealt]
    except (TypeError, ValueError):
        raise FedsacError(
            f"scene {given.scene} must return a list of positions for each client, not {type(dealt).__name__}"
        ) from None
    if len(parts) != given.clients:
        raise FedsacError(f"scene {given.scene} must serve {given.clients} clients, and serves {len(parts)}")
    if any(part.ndim != 1 or not len(part) for part in parts):
        raise FedsacError(f"scene {given.scene} must give each of {given.clients} clients at least one sample")
    if any(part.dtype.kind not in "iu" or part.min() < 0 or part.max() >= len(given.labels) for part in parts):
        raise FedsacError(f"scene {given.scene} must give positions from 0 to {len(given.labels) - 1}")
    return parts


def power_law(given: Deal) -> list[np.ndarray]:
    """POW: sizes along a power law."""
    each = given.samples_each()
    return _cut(given.shuffled(each), power_sizes(given.clients, each * given.clients))


def iid(given: Deal) -> list[np.ndarray]:
    """IID: equal numbers of samples, drawn at random."""
    return [np.sort(part) for part in np.array_split(given.shuffled(given.samples_per_client), given.clients)]


def dirichlet(given: Deal) -> list[np.ndarray]:
    """DIR: clients of near-equal size whose class shares are drawn from Dir(alpha * p)."""
    return _by_shares(given, dirichlet_shares)


def dirichlet_by_class(given: Deal) -> list[np.ndarray]:
    """DIR-class: each class is spread over the clients by Dir(alpha); clients differ in size."""
    return _by_shares(given, dirichlet_shares_by_class)


def _by_shares(given: Deal, shares: Callable[..., np.ndarray]) -> list[np.ndarray]:
    order, alpha = given.shuffled(given.samples_per_client), float(given.parameter or "")
    of_clients = shares(given.labels[order], given.classes, given.clients, alpha, given.rng)
    return _cut_by_class(order, given.labels, of_clients)


def power_sizes(clients: int, total: int) -> list[int]:
    """Sample counts in POW: `total` samples over clients whose sizes grow along a power law; the last gets the rest.

    >>> power_sizes(10, 20000)
    [236, 628, 1020, 1412, 1804, 2197, 2589, 2981, 3373, 3760]
    """
    # Quantiles of the law with density a x^(a-1) on [0, 1].
    low, high = (np.power(quantile, 1 / POWER_LAW_EXPONENT) for quantile in (0.01, 0.99))
    b = np.linspace(low, high, clients)
    sizes = np.ceil(b / b.sum() * total).astype(int).tolist()[:-1]
    last = total - sum(sizes)
    if last < 1:
        raise FedsacError(f"scene pow: {total} samples are too few for {clients} clients; lower --clients")
    return [*sizes, last]


def class_counts(clients: int, classes: int) -> list[int]:
    """How many classes each client has in CLA.

    >>> class_counts(5, 10), class_counts(10, 10)
    ([1, 3, 5, 7, 10], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    """
    return [int(k) for k in np.linspace(1, classes, clients)]


@counted_in_classes
def class_imbalance(given: Deal) -> list[np.ndarray]:
    """CLA: client i has classes 0..k_i-1, and all clients equally many samples. Clients may share samples; one client
    has a sample twice only if its class has too few."""
    labels, classes, clients, each, rng = given.labels, given.classes, given.clients, given.samples_each(), given.rng
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


def dirichlet_shares(
    labels: np.ndarray, classes: int, clients: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """DIR: class shares [clients, classes] of clients of near-equal size, each drawn from Dir(alpha * p).

    p are the class frequencies of the data. One client at a time is redrawn, and the new draw kept if it brings the
    mean share nearer to p, until |mean - p|^2 <= 1e-6 (ten times that after every 500 tries): then no class runs out.
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


def dirichlet_shares_by_class(
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
    """Split the samples of each class over the clients in proportion to `shares`; every sample goes to one client."""
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
