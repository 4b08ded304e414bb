"""The client of Flower's simulation, in a module of its own so that Ray's actors import it, and keep its data."""

from functools import cache

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from benchmarks import work

app = ClientApp()
steps = work.counted_steps()


@cache
def data(features: int) -> list[tuple[Tensor, Tensor]]:
    """Of all clients: an actor may be given any of them."""
    return work.clients(features)


@app.train()
def train(message: Message, context: Context) -> Message:
    features, before = int(message.content["config"]["features"]), steps()
    x, y = data(features)[int(context.node_config["partition-id"])]
    module = work.network(features)
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(module.parameters(), lr=work.LR)
    for batch_x, batch_y in DataLoader(TensorDataset(x, y), batch_size=work.BATCH, shuffle=True, drop_last=True):
        optimiser.zero_grad()
        F.cross_entropy(module(batch_x), batch_y).backward()
        optimiser.step()
    metrics = MetricRecord({"num-examples": len(x), "steps": steps() - before})
    return Message(
        content=RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics}), reply_to=message
    )
