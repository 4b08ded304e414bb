"""Three clients adapt one language model, and are paid with the ranks of its LoRA adapters that they have earned.

    python examples/text_lora.py [ROUNDS]

The corpus is Python's own documentation (`pydoc_data.topics`, in the standard library): which of six topics do 24
consecutive words come from? The server trains a small transformer on what it has; the clients, of whom some have much
less text than others, train adapters of rank 8 beside it. Base and classifier are everyone's; the ranks are what is
given or withheld.
"""

import copy
import sys
from collections import Counter
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn

import fedsac
from fedsac.models.shipped.transformer import TextTransformer, with_lora

TOPICS = ("specialnames", "compound", "types", "formatstrings", "string-methods", "debugger")
WORDS, VOCABULARY, RANK, BETA = 24, 1000, 8, 20.0
CLIENTS = (0.6, 0.3, 0.1)  # of the text that is not the server's


def corpus() -> tuple[Tensor, Tensor]:
    """Token numbers [n, WORDS], the most frequent words from 1 on, 0 for all others; and the topics."""
    texts = [topics[name].split() for name in TOPICS]
    common = Counter(word for text in texts for word in text).most_common(VOCABULARY - 1)
    number = {word: i + 1 for i, (word, _) in enumerate(common)}
    pieces = [
        ([number.get(word, 0) for word in text[start : start + WORDS]], topic)
        for topic, text in enumerate(texts)
        for start in range(0, len(text) - WORDS, WORDS // 2)
    ]
    order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(0))
    return torch.tensor([piece for piece, _ in pieces])[order], torch.tensor([topic for _, topic in pieces])[order]


def train(model: nn.Module, x: Tensor, y: Tensor, steps: int) -> nn.Module:
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=2e-3)
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
    x, y = corpus()
    fifth = len(y) // 5
    server, v, test = ((x[i * fifth : (i + 1) * fifth], y[i * fifth : (i + 1) * fifth]) for i in range(3))
    rest_x, rest_y = x[3 * fifth :], y[3 * fifth :]
    sizes = [int(share * len(rest_y)) for share in CLIENTS]
    clients = list(zip(rest_x[: sum(sizes)].split(sizes), rest_y[: sum(sizes)].split(sizes), strict=True))

    base = train(TextTransformer(VOCABULARY, len(TOPICS)), *server, 20 * rounds)
    model = with_lora(base, RANK)
    units = fedsac.find_units(model, x[:2]).only(lambda name: name.endswith(".a"))
    alone = [train(copy.deepcopy(model), *client, 10 * rounds) for client in clients]
    reputations = fedsac.reputation([accuracy(own, *v) for own in alone], BETA)
    for _ in range(rounds):
        masks = units.allocate(fedsac.unit_importance(model, units, *v, exact=False), reputations)
        sent = [
            (mask, train(fedsac.smaller(model, units, mask), *client, 10).state_dict())
            for mask, client in zip(masks, clients, strict=True)
        ]
        model.load_state_dict(units.aggregate(model.state_dict(), sent))

    masks = units.allocate(fedsac.unit_importance(model, units, *v, exact=False), reputations)
    print(f"the server's model {accuracy(base, *test):.3f}; adapted by all, whole {accuracy(model, *test):.3f}")
    print("client  samples  alone  reward  ranks")
    for i, mask in enumerate(masks):
        before, reward = accuracy(alone[i], *test), accuracy(fedsac.smaller(model, units, mask), *test)
        print(f"{i:6}  {sizes[i]:7}  {before:5.3f}  {reward:6.3f}  {int(mask.sum())} of {units.units}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 10)
