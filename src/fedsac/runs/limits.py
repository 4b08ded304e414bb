"""What a run would take at the very least, in memory and time: what no machine like this one could do is refused before
anything is begun, with the number, instead of ending in the middle of it.

Everything here is estimated too low rather than too high: a run that might do must not be refused.
"""

import os
from collections.abc import Sequence
from itertools import pairwise

import torch

from fedsac.clients.memory import total_memory_bytes
from fedsac.config import Config
from fedsac.errors import FedsacError

MODELS_PER_CLIENT = 2  # as received, and while trained
BATCH_BYTES = 16  # of a sample in a batch of a round: its row and its weight
RECORD_BYTES, CLIENT_RECORD_BYTES = 1000, 100  # of a round's record, and of each client in it
RUN_BYTES = 50_000  # of a run, however small
SECONDS_A_STEP = 10e-6  # of SGD, however small
MULTIPLICATIONS_A_SECOND = {"cpu": 5e12, "cuda": 1e15}
MAX_DAYS = 60
LEAST_THREADS = 64  # may always be asked for


def most_threads() -> int:
    """How many threads may be asked for. Many more than there are cores are slow; ten thousands crash OpenMP."""
    return max(LEAST_THREADS, 4 * (os.cpu_count() or 1))


def check_threads(config: Config) -> None:
    if config.threads is not None and config.threads > most_threads():
        raise FedsacError(
            f"threads: {_count(config.threads)} are too many for {os.cpu_count()} cores; leave --threads out, or take "
            f"at most {most_threads()}"
        )


def check_number_of_runs(runs: int) -> None:
    """Raise where so many runs side by side do not fit in this machine's memory, whatever they are."""
    _check_memory(runs * RUN_BYTES, "cpu", f"{_count(runs)} runs", "take fewer seeds")


def check(configs: Sequence[Config], features: int, classes: int, samples: int) -> None:
    """Raise where runs with these configs, on data of this shape, would take more memory than there is, or more time
    than anybody has. Of networks of one's own, nothing is known here."""
    seconds = 0.0
    for config in configs:
        sizes = (features, *config.hidden, classes)
        parameters = sum(i * o + o for i, o in pairwise(sizes)) if config.network == "mlp" else 0
        clients, item = config.clients or 2, 8 if config.dtype == "float64" else 4
        batch = min(config.batch, samples)
        _check_memory(
            parameters * 8, "cpu", f"the network's {_count(parameters)} parameters", "take smaller --hidden layers"
        )
        _check_memory(
            clients * (MODELS_PER_CLIENT * parameters * item + config.local_steps * batch * BATCH_BYTES),
            config.device,
            f"{_count(clients)} clients with {_count(parameters)} parameters and {_count(config.local_steps)} local "
            "steps each",
            "lower --clients, --hidden, --local-steps or --batch",
        )
        _check_memory(
            config.rounds * (RECORD_BYTES + clients * CLIENT_RECORD_BYTES),
            "cpu",
            f"the records of {_count(config.rounds)} rounds",
            "lower --rounds",
        )
        steps = config.rounds * config.local_steps + config.alone()
        work = 3 * parameters * min(batch, max(1, samples // clients)) * clients * steps
        seconds += work / MULTIPLICATIONS_A_SECOND[config.device] + SECONDS_A_STEP * steps / len(configs)
    if seconds > MAX_DAYS * 86400:
        raise FedsacError(
            f"this would take {_duration(seconds)} at the very least; lower --rounds, --local-steps, "
            "--standalone-steps, --clients or --hidden"
        )


def _check_memory(needed: float, device: str, what: str, remedy: str) -> None:
    there = total_memory_bytes(torch.device(device))
    if needed > there:
        where = "the GPU" if device == "cuda" else "this machine"
        raise FedsacError(f"{what} take at least {_size(needed)} of memory, and {where} has {_size(there)}; {remedy}")


def _size(size: float) -> str:
    """A number of bytes in words.

    >>> _size(23 * 2**30), _size(8e12), _size(10**40)
    ('23 GiB', '7,451 GiB', 'more than a million TiB')
    """
    return f"{size / 2**30:,.0f} GiB" if size < 2**60 else "more than a million TiB"


def _duration(seconds: float) -> str:
    """A time in words.

    >>> _duration(100 * 86400), _duration(4e9), _duration(1e40)
    ('100 days', '127 years', 'more than a million years')
    """
    days = seconds / 86400
    if days < 1000:
        return f"{days:.0f} days"
    return f"{days / 365.25:,.0f} years" if days < 3e8 else "more than a million years"


def _count(number: int) -> str:
    """A number that may be too long to read.

    >>> _count(12_000), _count(10**30)
    ('12,000', '1e+30')
    """
    return f"{number:,}" if number < 10**15 else f"{float(number) if number < 10**300 else float('inf'):.3g}"
