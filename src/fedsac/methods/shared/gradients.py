"""What CGSV, CFFL, FedAVE and RFFL share: clients send updates of a set length, and get a part of their sum."""

import torch
from torch import Tensor

from fedsac.core.transfer import to_device
from fedsac.errors import FedsacError
from fedsac.methods.base import Task, Updates

REWARD_BY = ("contribution", "own")
LENGTH = 0.5  # Gamma, the length that updates are brought to, as CGSV's authors set it
LENGTH_ON = {"cifar10": 0.15}  # where they set it otherwise


def published_length(data: str) -> float:
    """Gamma on this data set."""
    return LENGTH_ON.get(data, LENGTH)


def check_reward_by(value: str) -> None:
    if value not in REWARD_BY:
        raise FedsacError(f"reward_by must be {' or '.join(REWARD_BY)}, not {value!r}")


def contribution_shares(task: Task) -> Tensor:
    """c_i / sum c, float64 [N]: what `reward_by = "contribution"` puts in the place of a method's own reputation.

    A contribution below 0, which some measures find, counts as 0: shares must not be negative, nor their sum small.
    """
    c = torch.tensor(task.contributions, dtype=torch.float64).clamp_min(0)
    return c / c.sum() if c.sum() > 0 else torch.full_like(c, 1 / len(c))


def first_reputations(task: Task, reward_by: str) -> Tensor:
    """Reputations before the first round: the contributions' shares where those decide, else nothing is known yet."""
    return contribution_shares(task) if reward_by == "contribution" else torch.zeros(len(task.clients)).double()


def sample_shares(task: Task, clients: tuple[int, ...]) -> Tensor:
    """n_i / n over the clients given, float64."""
    n = torch.tensor([task.samples[i] for i in clients], dtype=torch.float64)
    return n / n.sum()


def differences(updates: Updates, models: Tensor) -> Tensor:
    """What each client that answered has learned: trained - received, [k, parameters]."""
    return updates.params - models[updates.who]


def rescaled(update: Tensor, length: float) -> Tensor:
    """Each row of [k, parameters] at the given length; one without direction stays 0."""
    norms = update.norm(dim=1, keepdim=True)
    return torch.where(norms > 0, update * (length / norms.clamp_min(torch.finfo(update.dtype).tiny)), 0)


def weighted(weights: Tensor, update: Tensor) -> Tensor:
    """sum_i w_i g_i, [parameters]."""
    return to_device(weights.to(update.dtype), update.device) @ update


def cosines(update: Tensor, total: Tensor) -> Tensor:
    """cos(g_i, total), float64 [k] on the CPU; 0 where either has no direction."""
    return torch.nn.functional.cosine_similarity(update, total.unsqueeze(0), dim=1).double().cpu()
