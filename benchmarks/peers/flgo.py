"""Rounds of FLGo's FedAvg. Several workers are threads: its other ways need a GPU, or copy all data in every round."""

import importlib
import sys
import time
from pathlib import Path

import flgo
from flgo.algorithm import fedavg
from flgo.benchmark.toolkits.cv.classification import FromDatasetPipe
from flgo.benchmark.toolkits.partition import IIDPartitioner

from benchmarks.peers import flgo_data
from benchmarks.peers.bout import ROUNDS, WARM_UP, Bout, tell
from benchmarks.work import BATCH, CLIENTS, LR, STEPS, counted_steps

seconds: list[float] = []


class Server(fedavg.Server):
    def iterate(self) -> bool:
        start = time.perf_counter()
        updated: bool = super().iterate()
        seconds.append(time.perf_counter() - start)
        return updated


class Timed:
    """An algorithm is whatever has these two."""

    Server = Server
    Client = fedavg.Client


def main() -> None:
    bout = Bout.asked()
    # Without this method, which torch's message asks for, a recent torch refuses FLGo's subsets.
    FromDatasetPipe.TaskDataset.__getitems__ = lambda self, rows: [self[row] for row in rows]
    sys.path.insert(0, str(Path.cwd()))  # where FLGo puts the benchmark that it generates
    made = importlib.import_module(flgo.gen_benchmark_from_file("made_up", flgo_data.__file__))
    made.visualize = lambda *_: None  # a picture of the split, which takes minutes
    flgo.gen_task_by_(made, IIDPartitioner(num_clients=CLIENTS), "task")
    option = {
        "num_rounds": WARM_UP + ROUNDS,
        "sample": "full",
        "aggregate": "uniform",
        "num_steps": STEPS,
        "batch_size": BATCH,
        "drop_last": True,
        "learning_rate": LR,
        "train_holdout": 0.0,
        "eval_interval": -1,
        "load_mode": "mem",
        "torch_num_threads": bout.threads,
        "num_parallels": bout.workers,
        "parallel_type": "t",
        "log_level": "ERROR",
        "no_log_console": True,
        "no_tqdm": True,
    }
    runner, steps = flgo.init("task", Timed, option), counted_steps()
    if any(len(client.train_data) != len(flgo_data.train_data) // CLIENTS for client in runner.clients):
        sys.exit("the clients do not have the same number of samples")
    runner.run()
    tell("flgo", seconds, steps(), CLIENTS * STEPS)


main()
