"""Four clients, one small convolutional network, submodels as rewards: FedSAC on a torch module of your own choice.

    python examples/images.py [ROUNDS]

The embedded digits, enlarged to 16 x 16. Client i has a fraction of its labels wrong; contributions are what clients
reach alone; every round the server measures the importance of each channel and neuron, hands out the submodels that
contributions have earned, and averages what comes back over its holders.
"""

import copy
import sys

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import fedsac
from fedsac.models.shipped.cnn import cnn

WRONG_LABELS = (0.0, 0.3, 0.6, 0.8)  # of each client
SERVER, LR, STEPS, BETA = 600, 0.05, 20, 3.0  # the server's samples: half for validation, half for the test


def data() -> tuple[Tensor, Tensor]:
    digits = load_digits()
    x = torch.from_numpy(digits.images).float().unsqueeze(1).repeat_interleave(2, 2).repeat_interleave(2, 3)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return (x / 8 - 1)[order], torch.from_numpy(digits.target)[order]


def train(model: nn.Module, x: Tensor, y: Tensor, steps: int) -> nn.Module:
    optimiser = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    for _ in range(steps):
        batch = torch.randint(len(y), (32,))
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimiser.step()
    return model


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return float((model.eval()(x).argmax(1) == y).float().mean())


def main(rounds: int) -> None:
    torch.manual_seed(1)
    x, y = data()
    (v_x, v_y), (test_x, test_y) = ((x[a:b], y[a:b]) for a, b in ((0, SERVER // 2), (SERVER // 2, SERVER)))
    clients = []
    parts = zip(x[SERVER:].chunk(4), y[SERVER:].chunk(4), WRONG_LABELS, strict=True)
    for own_x, own_y, wrong in parts:
        noisy = torch.where(torch.rand(len(own_y)) < wrong, torch.randint(10, own_y.shape), own_y)
        clients.append((own_x, noisy))

    model = cnn((1, 16, 16), 10)
    alone = [train(copy.deepcopy(model), *client, rounds * STEPS) for client in clients]
    contributions = [accuracy(own, v_x, v_y) for own in alone]
    units = fedsac.find_units(model, x[:2])
    reputations = fedsac.reputation(contributions, BETA)
    for _ in range(rounds):
        masks = units.allocate(fedsac.unit_importance(model, units, v_x, v_y, exact=False), reputations)
        sent = [
            (mask, train(fedsac.smaller(model, units, mask), *client, STEPS).state_dict())
            for mask, client in zip(masks, clients, strict=True)
        ]
        model.load_state_dict(units.aggregate(model.state_dict(), sent))

    masks = units.allocate(fedsac.unit_importance(model, units, v_x, v_y, exact=False), reputations)
    paid = [fedsac.smaller(model, units, mask) for mask in masks]
    rewards = [accuracy(own, test_x, test_y) for own in paid]
    on_test = [accuracy(own, test_x, test_y) for own in alone]
    print("client  wrong labels  alone  reward  units  parameters")
    for i, own in enumerate(paid):
        held, parameters = int(masks[i].sum()), sum(p.numel() for p in own.parameters())
        print(f"{i:6}  {WRONG_LABELS[i]:12.1f}  {on_test[i]:5.3f}  {rewards[i]:6.3f}  {held:5}  {parameters:10}")
    gamma = fedsac.gamma(on_test, rewards)
    print(f"gamma {'-' if gamma is None else f'{gamma:.1f}'}, inside BCF {fedsac.bcf(on_test, rewards).mean():.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 30)
