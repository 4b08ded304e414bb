"""Splitting a data set: the server's validation set, the clients' samples, the test set, and the normalisation."""

from dataclasses import dataclass, replace

import numpy as np

from fedsac.data.dataset import DataSet
from fedsac.data.scenes import Deal, deal
from fedsac.doors import SCENES
from fedsac.errors import FedsacError
from fedsac.rng import stream

TEST_SHARE, VALIDATION_SHARE = 0.2, 0.1
MAX_NAME_BYTES = 200  # of a client's name, which becomes a file name
LEAST_DEVIATION = 1e-300  # the inverse of a smaller one is no number; such a channel is constant
PAPER_SAMPLES_PER_CLIENT = 2000  # in the paper's POW and CLA


@dataclass(frozen=True)
class Split:
    """A data set split over clients and server: `rows` (one array per client) and `validation` are rows of `data.x`.

    `mean` and `deviation` [features] normalise inputs after division by `data.top`; they are computed on the validation
    set, the only data that the server has.
    """

    data: DataSet
    scene: str
    clients: tuple[str, ...]
    rows: tuple[np.ndarray, ...]
    validation: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    hostile: tuple[str, ...] = ()  # clients whose names or data an attack has made
    probe: tuple[np.ndarray, np.ndarray] | None = None  # x and y: an attack succeeds with those taken for y

    @property
    def test_is_validation(self) -> bool:
        """Whether results are reported on the validation set: a folder of silos without a test file."""
        return self.data.silos is not None and self.data.x_test is None

    def permuted(self, order: list[int]) -> "Split":
        """The same split with the clients in another order."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return Split(
            **fields | {"clients": tuple(self.clients[i] for i in order), "rows": tuple(self.rows[i] for i in order)}
        )


def split(data: DataSet, scene: str, clients: int, samples_per_client: int | None, seed: int) -> Split:
    """Split a data set over `clients` clients. A folder of silos is already split: its `scene` is `silos`."""
    if data.silos is not None:
        assert data.validation is not None
        names, rows, validation = tuple(data.silos), tuple(data.silos.values()), data.validation
        long = [name for name in names if len(name.encode()) > MAX_NAME_BYTES]
        if long:
            raise FedsacError(f"the silo's name {long[0][:40]}... is too long for a file of its own; shorten it")
        x_test, y_test = data.x_test, data.y_test
        if x_test is None or y_test is None:
            x_test, y_test = data.x[validation], data.y[validation]
    else:
        names = tuple(f"client-{i:02d}" for i in range(1, clients + 1))
        rows, validation, x_test, y_test = _deal(data, scene, clients, samples_per_client, seed)
    mean, deviation = _normalisation(data, validation)
    return Split(data, scene, names, rows, validation, x_test, y_test, mean, deviation)


def _deal(
    data: DataSet, scene: str, clients: int, samples_per_client: int | None, seed: int
) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray, np.ndarray]:
    rest = np.arange(len(data.y))
    if data.x_test is None or data.y_test is None:
        test, rest = stratified(data.y, rest, TEST_SHARE, stream(seed, "test set"))
        x_test, y_test = data.x[test], data.y[test]
    else:
        x_test, y_test = data.x_test, data.y_test
    validation, rest = stratified(data.y, rest, VALIDATION_SHARE, stream(seed, "validation set"))
    if not len(validation) or not len(y_test):
        raise FedsacError(f"{data.name}: {len(data.y)} samples are too few to set a validation and a test set aside")
    given = Deal(
        scene=scene,
        labels=data.y[rest],
        classes=len(data.classes),
        clients=clients,
        samples_per_client=samples_per_client,
        # On the paper's data the paper's number; on others no more than there are samples for.
        default_samples=PAPER_SAMPLES_PER_CLIENT if data.paper else min(PAPER_SAMPLES_PER_CLIENT, len(rest) // clients),
        rng=stream(seed, "scene", scene),
        parameter=SCENES.parse(scene)[1],
    )
    parts = deal(given)
    return tuple(rest[part] for part in parts), validation, x_test, y_test


def subsample(data: DataSet, share: float) -> DataSet:
    """A share of a data set's training and test samples, stratified by class. It is the same for every seed, so that
    runs of several seeds can share one copy of the samples."""
    if share == 1:
        return data
    if data.silos is not None:
        raise FedsacError(f"{data.name}: own silos are taken whole; leave --share out")
    rows = stratified(data.y, np.arange(len(data.y)), share, stream(0, "share"))[0]
    if not len(rows):
        raise FedsacError(f"{data.name}: a share of {share:g} of {len(data.y)} samples is none; raise --share")
    if data.x_test is None or data.y_test is None:
        return replace(data, x=data.x[rows], y=data.y[rows])
    test = stratified(data.y_test, np.arange(len(data.y_test)), share, stream(0, "share of the test set"))[0]
    return replace(data, x=data.x[rows], y=data.y[rows], x_test=data.x_test[test], y_test=data.y_test[test])


def stratified(
    labels: np.ndarray, rows: np.ndarray, share: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """`share` of the `rows` of every class, rounded to whole samples, and the remaining rows. Both sorted."""
    picked = [rows[:0]]
    for label in np.unique(labels[rows]):
        of_class = rng.permutation(rows[labels[rows] == label])
        picked.append(of_class[: round(share * len(of_class))])
    chosen = np.sort(np.concatenate(picked))
    return chosen, np.setdiff1d(rows, chosen)


def _normalisation(data: DataSet, validation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each channel over the validation set, repeated for all features of the channel;
    a deviation of 0 is replaced by 1."""
    x = data.x[validation].astype(np.float64) / data.top
    counts = np.bincount(data.channel) * len(x)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.bincount(data.channel, x.sum(0)) / counts
        centred = x - mean[data.channel]
        unit = _unit(centred, data.channel)
        deviation = np.sqrt(np.bincount(data.channel, ((centred / unit[data.channel]) ** 2).sum(0)) / counts) * unit
    if not np.isfinite(mean).all() or not np.isfinite(deviation).all():
        raise FedsacError(f"{data.name}: features are so large that their mean overflows; divide them by a constant")
    # Rounding gives a constant channel a deviation of about 1e-16 of its value: that is 0, too.
    deviation[(deviation <= 1e-12 * np.abs(mean)) | (deviation < LEAST_DEVIATION)] = 1
    return mean[data.channel], deviation[data.channel]


def _unit(centred: np.ndarray, channel: np.ndarray) -> np.ndarray:
    """What each channel is divided by before it is squared: 1, but where squares would be 0 or infinite."""
    unit = np.zeros(channel.max() + 1)
    np.maximum.at(unit, channel, np.abs(centred).max(0))
    unit[(unit == 0) | ((unit > 1e-100) & (unit < 1e100))] = 1
    return unit
