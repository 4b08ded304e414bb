"""Rounds of pfl's FederatedAveraging. With several workers it is started by torchrun, as pfl's guide has it.

pfl cuts each client's samples into batches once and keeps them: unlike all others it does not shuffle.
"""

import time

import numpy as np
import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.peers.bout import ROUNDS, WARM_UP, Bout, between, tell
from benchmarks.work import BATCH, CLIENTS, LR, STEPS, clients, counted_steps, network


class Model(nn.Module):
    """pfl asks a module for its loss."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layers = network(features)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.layers(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        """Asked for in the very first round only, which is not counted."""
        return {"loss": Weighted(float(self.loss(x, y)) * len(x), len(x))}


class Watch(TrainingProcessCallback):
    """The moments at which rounds end."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self.moments.append(time.perf_counter())
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.moments.append(time.perf_counter())
        return False, Metrics()


def main() -> None:
    bout = Bout.asked()
    torch.set_num_threads(bout.threads)
    np.random.seed(0)  # noqa: NPY002  pfl's workers must draw the same cohort from numpy's global state
    torch.manual_seed(0)
    own = {str(i): PyTorchTensorDataset(data, user_id=str(i)) for i, data in enumerate(clients(bout.features))}
    dealt = FederatedDataset(own.__getitem__, get_user_sampler("minimize_reuse", list(own)))
    module = Model(bout.features)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    watch, steps = Watch(), counted_steps()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=WARM_UP + ROUNDS,
            evaluation_frequency=10**9,
            train_cohort_size=CLIENTS,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=dealt, val_data=dealt),
        model,
        NNTrainHyperParams(
            local_num_epochs=None, local_num_steps=STEPS, local_learning_rate=LR, local_batch_size=BATCH
        ),
        callbacks=[watch],
        send_metrics_to_platform=False,
    )
    world = pytorch_ops.distributed.world_size
    if pytorch_ops.distributed.global_rank == 0:
        tell(
            "pfl", between(watch.moments), steps(), len(range(0, CLIENTS, world)) * STEPS + 1
        )  # one more: the server's
    if world > 1:
        torch.distributed.barrier()  # a worker that leaves before the others aborts them
        torch.distributed.destroy_process_group()


main()
