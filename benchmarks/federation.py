"""What does a federation of real processes cost, and does it hold? `python -m benchmarks.federation --sites 10`.

Server, sites and run are the commands that users start, on loopback, with TLS and keys, on parts of digits. Shown: the
seconds of each round and of an answer (from the ledger and the sites' logs), memory of an idle site (all its processes,
RSS and PSS), CPU time after the first round by kind of process, and how often Flower's database was locked.

`--kill-every 20` is the soak: every 20 s a random site, or the server, is killed (SIGKILL to all its processes) and
started again at once. At the end everybody is to be paid, and `verify` to hold at the coordinator and at every site.
"""

import argparse
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

FEDSAC = [sys.executable, "-m", "fedsac", "federation"]
SERVER, RUN = "server", "run"
SAMPLES = 100  # of a site
HELD_OUT = 400  # validation and test
ANSWERED = re.compile(r"answered in ([0-9.]+) s")


class Trial:
    """A federation's folder and its processes, each in a group of its own."""

    def __init__(self, base: Path, sites: int, rounds: int, timeout: int) -> None:
        self.base, self.folder = base, base / "trial"
        self.names = [f"s{i}" for i in range(sites)]
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        found(self.folder, self.names, rounds, timeout)

    def start(self, name: str) -> None:
        what = {SERVER: ["server", self.folder], RUN: ["run", self.folder]}.get(name, ["site", self.folder / name])
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        with (self.base / f"{name}.out").open("ab") as out:
            command = [*FEDSAC, *(str(word) for word in what)]
            self.running[name] = subprocess.Popen(command, stdout=out, stderr=out, env=env, start_new_session=True)

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)

    def ledger(self, kind: str) -> list[dict[str, Any]]:
        path = self.folder / "server" / "ledger.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        entries = [json.loads(line) for line in lines if line.endswith("}")]
        return [entry for entry in entries if entry["kind"] == kind]

    def memory(self, name: str) -> tuple[float, float]:
        """Megabytes of all processes that a command has started, as RSS and as PSS (shared pages in parts)."""
        group, rss, pss = self.running[name].pid, 0, 0
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if os.getpgid(int(process.name)) != group:
                    continue
                said = dict(re.findall(r"^(Rss|Pss): +([0-9]+)", (process / "smaps_rollup").read_text(), re.MULTILINE))
            except (OSError, ProcessLookupError):
                continue
            rss, pss = rss + int(said["Rss"]), pss + int(said["Pss"])
        return rss / 1000, pss / 1000

    def cpu(self) -> dict[str, float]:
        """Seconds of CPU time that each kind of process has had so far, its ended children included."""
        spent: dict[str, float] = {}
        groups = {process.pid: name for name, process in self.running.items()}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                name = groups.get(os.getpgid(int(process.name)), RUN)
                command = (process / "cmdline").read_text()
                fields = (process / "stat").read_text().rpartition(")")[2].split()
            except (OSError, ProcessLookupError):
                continue
            if name == RUN:
                continue
            kinds = ("superexec", "serverapp", "superlink")
            kind = next((k for k in kinds if k in command), "gate") if name == SERVER else "sites"
            spent[kind] = spent.get(kind, 0.0) + sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        return spent


def found(folder: Path, names: list[str], rounds: int, timeout: int) -> None:
    """Make the federation's folder, with data for everybody."""
    from sklearn.datasets import load_digits

    ports = [free_port(), free_port()]
    address = f"127.0.0.1:{ports[0]}"
    command = [*FEDSAC, "init", str(folder), "--sites", ",".join(names), "--address", address]
    subprocess.run(command, check=True, capture_output=True)
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(7).permutation(len(y))
    np.savez(folder / "validation.npz", x=x[order[:HELD_OUT]], y=y[order[:HELD_OUT]])
    for i, name in enumerate(names):
        rows = order[HELD_OUT + i * SAMPLES :][:SAMPLES]
        np.savez(folder / name / "data.npz", x=x[rows], y=y[rows])
        toml = folder / name / "site.toml"
        toml.write_text(toml.read_text().replace('"data.csv"', '"data.npz"'))
    (folder / "federation.toml").write_text(
        f'format_version = 1\n[federation]\naddress = "{address}"\nvalidation = "validation.npz"\n'
        f"control_port = {ports[1]}\ntimeout = {timeout}\n[run]\nrounds = {rounds}\nhidden = [64, 64]\n"
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: Any, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.5)
    return False


def play(trial: Trial, kill_every: float, seed: int, limit: float) -> dict[str, Any]:
    """Run the federation to its end; returns what was measured."""
    trial.start(SERVER)
    if not wait_for(lambda: "serving" in (trial.base / "server.out").read_text(), 120):
        raise SystemExit((trial.base / "server.out").read_text())
    for name in trial.names:
        trial.start(name)
    time.sleep(20)
    idle = [trial.memory(name) for name in trial.names]
    trial.start(RUN)
    draw, kills, watched = random.Random(seed), [], []
    before: dict[str, float] = {}
    began, next_kill = time.monotonic(), time.monotonic() + kill_every
    while trial.running[RUN].poll() is None and time.monotonic() - began < limit:
        time.sleep(1)
        if not before and trial.ledger("round"):
            before = trial.cpu()
        if kill_every and time.monotonic() > next_kill:
            watched.append(sum(trial.memory(name)[1] for name in (*trial.names, SERVER)))
            victim = draw.choice([*trial.names, SERVER])
            trial.kill(victim)
            trial.start(victim)
            kills.append(victim)
            next_kill = time.monotonic() + kill_every
    return {
        "finished": trial.running[RUN].poll() == 0,
        "seconds": round(time.monotonic() - began, 1),
        "idle_rss_mb": round(statistics.mean(rss for rss, _ in idle), 1),
        "idle_pss_mb": round(statistics.mean(pss for _, pss in idle), 1),
        "after_pss_mb": round(statistics.mean(trial.memory(name)[1] for name in trial.names), 1),
        "server_pss_mb": round(trial.memory(SERVER)[1], 1),
        "cpu_seconds": {kind: round(s - before.get(kind, 0.0), 2) for kind, s in trial.cpu().items()},
        "kills": len(kills),
        "server_kills": kills.count(SERVER),
        "memory_all_mb": [round(value) for value in watched[:: max(len(watched) // 8, 1)]],
    } | rounds(trial)


def rounds(trial: Trial) -> dict[str, Any]:
    """What the ledger and the logs say about rounds."""
    ended = trial.ledger("round")
    times = [datetime.fromisoformat(entry["at"]).timestamp() for entry in ended]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    logs = "".join((trial.folder / name / "site.log").read_text() for name in trial.names)
    training = [float(seconds) for seconds in ANSWERED.findall(logs)]
    superlink = (trial.folder / "server" / "superlink.log").read_text()
    return {
        "rounds": len({entry["body"]["round"] for entry in ended}),
        "answers": sum(len(entry["body"]["answered"]) for entry in ended),
        "lost": len(trial.ledger("lost")),
        "refused": len(trial.ledger("refused")),
        "resumed": len(trial.ledger("resumed")),
        "paid": len({entry["body"]["site"] for entry in trial.ledger("delivered")}),
        "round_seconds_median": round(statistics.median(gaps), 2) if gaps else None,
        "round_seconds_max": round(max(gaps), 2) if gaps else None,
        "answer_seconds_median": round(statistics.median(training), 3) if training else None,
        "locked": superlink.count("database is locked"),
    }


def verified(trial: Trial) -> dict[str, bool]:
    """Whether `verify` holds at the coordinator and at each site."""
    folders = {"coordinator": trial.folder} | {name: trial.folder / name for name in trial.names}
    return {
        name: subprocess.run([*FEDSAC, "verify", str(path)], capture_output=True, check=False).returncode == 0
        for name, path in folders.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--timeout", type=int, default=60, help="of an answer, in seconds")
    parser.add_argument("--kill-every", type=float, default=0.0, metavar="SECONDS", help="0: nobody is killed")
    parser.add_argument("--seed", type=int, default=0, help="of who is killed")
    parser.add_argument("--limit", type=float, default=7200.0, metavar="SECONDS", help="before it is given up")
    parser.add_argument("--keep", type=Path, help="a folder to leave everything in")
    chosen = parser.parse_args()
    base = chosen.keep or Path(tempfile.mkdtemp(prefix="fedsac-federation-"))
    base.mkdir(parents=True, exist_ok=True)
    trial = Trial(base, chosen.sites, chosen.rounds, chosen.timeout)
    try:
        measured = play(trial, chosen.kill_every, chosen.seed, chosen.limit)
    finally:
        trial.end()
    verdicts = verified(trial)
    print(
        json.dumps(
            measured | {"verified": all(verdicts.values()), "does_not": [n for n, v in verdicts.items() if not v]}
        )
    )
    if not chosen.keep:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
