"""Rounds of FedAvg in Flower's simulation. Ray gives an actor as many threads as a client has CPUs."""

import logging
import time

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.bout import ROUNDS, WARM_UP, Bout, between, tell
from benchmarks.peers.flower_client import app as client
from benchmarks.work import CLIENTS, STEPS, network

bout = Bout.asked()
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    moments: list[float] = []
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(network(bout.features).state_dict()),
        num_rounds=WARM_UP + ROUNDS,
        train_config=ConfigRecord({"features": bout.features}),
        evaluate_fn=lambda *_: moments.append(time.perf_counter()),  # called before the first round and after each
    )
    # The metrics are means over the clients.
    steps = sum(CLIENTS * float(metrics["steps"]) for metrics in result.train_metrics_clientapp.values())
    tell("flwr", between(moments), round(steps), CLIENTS * STEPS)


logging.getLogger("flwr").setLevel(logging.ERROR)
run_simulation(
    server,
    client,
    num_supernodes=CLIENTS,
    backend_config={
        "init_args": {"num_cpus": bout.workers * bout.threads, "log_to_driver": False, "logging_level": logging.ERROR},
        "client_resources": {"num_cpus": bout.threads, "num_gpus": 0.0},
    },
)
