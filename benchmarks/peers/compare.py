"""A round of FedAvg here, in torch modules and in other libraries, in turn: `python -m benchmarks peers`.

The peers' processes are started anew for each bout; starting, making data and two rounds to warm up do not count. Each
peer first tries a few ways to share the cores, and goes on with two: one client after the other on all threads, which
is how it comes, and the fastest. Ours and the peers' rounds hold training and averaging, the modules' only training;
nothing evaluates.
"""

import json
import statistics
from collections.abc import Callable

import torch

from benchmarks import training
from benchmarks.peers.bout import Bout
from benchmarks.peers.environments import FOLDER, PEERS, Missing, Peer
from benchmarks.rounds import begun, made_up, one_round
from benchmarks.timing import Timed, interleaved, show
from benchmarks.work import SCALE, SHIFT, stored
from fedsac.core.units import Layout
from fedsac.models.mlp import initial_weights
from fedsac.version import __version__

FEATURES, BOUTS, REPETITIONS = (784, 3072), 3, 3
OURS = "fedsac"
WRITTEN = FOLDER / "speed.json"

Candidate = tuple[str, str, str]  # name, version, how it shares the cores


def ways(features: int) -> list[Bout]:
    """One client at a time on all threads, or on one; or a client on each core."""
    cores = torch.get_num_threads()
    return list(dict.fromkeys(Bout(features, *way) for way in ((1, cores), (1, 1), (cores, 1))))


def here(features: int) -> dict[Candidate, Callable[[], object]]:
    """The candidates of this process."""
    layout, run = Layout((features, 200, 200, 10)), begun("fedavg", made_up(features))
    x, y = stored(features)
    start, inputs = initial_weights(layout, 0, torch.float32), x * SCALE + SHIFT
    cores = torch.get_num_threads()

    def alone() -> None:
        torch.set_num_threads(1)  # small products on several threads mostly wait for each other
        training.one_by_one(layout, start, inputs, y)
        torch.set_num_threads(cores)

    together, everything, one = f"all, {cores} threads", str(Bout(features, 1, cores)), str(Bout(features, 1, 1))
    return {
        (OURS, __version__, together): lambda: one_round(run),
        ("nn.Module + DataLoader", torch.__version__, everything): lambda: training.one_by_one(
            layout, start, inputs, y
        ),
        ("nn.Module + DataLoader", torch.__version__, one): alone,
        ("torch.func.vmap", torch.__version__, together): lambda: training.vmapped(layout, start, inputs, y),
    }


def fastest(peer: Peer, features: int) -> Bout:
    """The way that took the least in one bout each; what the others took is said."""
    took: dict[Bout, float] = {}
    failed: dict[Bout, Missing] = {}
    for bout in ways(features):
        try:
            took[bout] = statistics.median(peer.rounds(bout)[1])
        except Missing as reason:
            failed[bout] = reason
    if not took:
        raise next(iter(failed.values()))
    said = [f"{bout} {seconds * 1e3:.0f} ms" for bout, seconds in took.items()]
    said += [f"{bout} failed ({reason})" for bout, reason in failed.items()]
    print(f"{peer.title}, {features} features: {', '.join(said)}", flush=True)
    return min(took, key=lambda bout: took[bout])


def available() -> list[Peer]:
    found = []
    for peer in PEERS:
        try:
            peer.install()
            found.append(peer)
        except Missing as reason:
            skipped(peer, reason)
    return found


def skipped(peer: Peer, reason: Missing) -> None:
    print(f"{peer.title} is skipped: {reason}", flush=True)


def measure(features: int, peers: list[Peer]) -> dict[Candidate, Timed]:
    chosen: list[tuple[Peer, Bout]] = []
    for peer in peers:
        try:
            chosen += [(peer, bout) for bout in dict.fromkeys((ways(features)[0], fastest(peer, features)))]
        except Missing as reason:
            skipped(peer, reason)
    own, seconds = here(features), dict[Candidate, list[float]]()
    for _ in range(BOUTS):
        for pair in list(chosen) or [None]:
            for candidate, timed in interleaved(own, REPETITIONS).items():
                seconds.setdefault(candidate, []).extend(timed.seconds)
            if pair is None:
                continue
            peer, bout = pair
            try:
                version, rounds = peer.rounds(bout)
                seconds.setdefault((peer.title, version, str(bout)), []).extend(rounds)
            except Missing as reason:
                skipped(peer, reason)
                chosen.remove(pair)
    return {candidate: Timed(values) for candidate, values in seconds.items()}


def main() -> None:
    peers, written = available(), []
    for features in FEATURES:
        times = measure(features, peers)
        ours = next(timed for (name, _, _), timed in times.items() if name == OURS)
        rows = [
            [*candidate, f"{t.median * 1e3:.0f} ms ({t.spread})", f"{t.median / ours.median:.1f}x"]
            for candidate, t in times.items()
        ]
        title = f"A round of FedAvg, ten clients, {features} features, {torch.get_num_threads()} cores"
        show(title, ["", "version", "clients at once", "a round (range)", "ratio"], rows)
        written += [
            {"features": features, "name": name, "version": version, "way": way, "seconds": t.seconds}
            for (name, version, way), t in times.items()
        ]
    FOLDER.mkdir(exist_ok=True)
    WRITTEN.write_text(json.dumps(written, indent=1) + "\n")
    print(f"Written to {WRITTEN.relative_to(FOLDER.parent)}; `python -m benchmarks.chart` draws it.")
