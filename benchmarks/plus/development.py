"""Development splits: 8,000 training images of CIFAR-10 and 10,000 of Fashion-MNIST take the test set's place, so that
nothing is chosen on the test data. Named as `benchmarks.plus.development:cifar10` where a data set's name would stand;
FEDSAC_DATA says where the data sets are.
"""

import numpy as np

from fedsac.data.catalogue import load

HELD_OUT = {"cifar10": 8000, "fashion-mnist": 10000}
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _held_out(name: str) -> Arrays:
    data = load(name, None)
    order = np.random.default_rng(20261116).permutation(len(data.y))
    test, train = order[: HELD_OUT[name]], np.sort(order[HELD_OUT[name] :])
    # Channels last, as a function returns images.
    channels = int(data.channel.max()) + 1
    images = data.x[:, np.argsort(data.channel, kind="stable")].reshape(len(data.y), channels, -1).transpose(0, 2, 1)
    images = images[:, :, None, :] if channels > 1 else images.reshape(len(data.y), 28, 28)
    return images[train], data.y[train], images[test], data.y[test]


def cifar10() -> Arrays:
    return _held_out("cifar10")


def fashion_mnist() -> Arrays:
    return _held_out("fashion-mnist")
