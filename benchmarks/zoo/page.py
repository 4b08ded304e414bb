"""The page of results: a table of networks, and what stays whole in each of them and why."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
Found = Mapping[str, Any]
INTRODUCTION = """# Units of networks that people use

Which units the finder (`fedsac.models.finding`) finds in networks as their packages build them, and which parts stay
whole. Weights are random: units follow from the operations, not from the weights. Images have 64 x 64 pixels (96 x 96
for Inception) and ten classes, texts 12 tokens; the transformers called tiny have two layers and the width 128 or less.

- *in units*: the share of the parameters that belong to a unit, and so are not in every submodel; *left*: how many do
  not, and are (the last layer's bias; embeddings, LayerNorms, biases of their stream).
- *half*: what a submodel with a random half of each group's units has of the parameters.
- *change*: how much the outputs change when the other half is cut (so that something is compared at all);
  *difference*: between this submodel's outputs and the whole network's with the other units' parameters set to 0. Both
  in float64, as shares of the largest output, with weights that were moved at random.
- *seconds*: for tracing and the proof, on one thread of a busy machine.

```
python -m benchmarks.zoo
```
installs {packages} into an environment of its own, below `.bench`, and writes this page and
[units.json](units.json), which has every group. Measured with {versions}.
"""
SHOWN = 6  # kinds of groups of a network
GROUPS = """## Groups of units

How many groups, and how many units each of them has; `*` stands for numbers, and the name is the first layer's whose
outputs the units are. In transformers, `query`, `c_attn`, `qkv`, `q_proj` and `q` are heads; `lora_A` are ranks.

| network | groups |
|---|---|"""
MEANING = """
## What stays whole, and why

*Slots* are the indices of an axis: the width of a stream, the entries of an embedding.
In every network the last layer's outputs, the first layer's inputs and the sizes of kernels stay, of course.

- **LayerNorm (and RMSNorm)** computes a mean over the stream it normalises; without some of its channels, the others
  would change. So the stream of a transformer, of a ConvNeXt or of a Swin transformer stays whole, and the heads, the
  feed-forward units and the ranks of adapters inside are cut.
- **Heads of torch's own `nn.MultiheadAttention`** (torchvision's ViT) stay: its code takes the width of a head from its
  input's width, so that a module of this class with fewer heads computes something else. timm's and Hugging Face's ViT,
  which keep the number of heads beside the tensors, lose heads.
- **Heads of torchvision's Swin transformer** stay for the same reason, which the proof found out: the smaller
  network does not run.
- **Streams of ShuffleNet**: each block splits the channels into halves and shuffles them. In two of its stages the
  constraints of all blocks together leave a single unit. The channels inside the blocks are cut.
"""


def write(found: Sequence[Found]) -> None:
    (RESULTS / "units.json").write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")  # a line a network
    (RESULTS / "units.md").write_text(text(found))


def line(found: Found) -> str:
    """One row of the table."""
    if "failed" in found:
        return f"| {found['network']} | {found['failed']} | | | | | | |"
    total = found["parameters"]
    cells = [
        found["network"], f"{total:,}", len(found["groups"]), f"{found['units']:,}", f"{found['in_units'] / total:.1%}",
        f"{total - found['in_units']:,}",
        f"{found['with_half_of_the_units'] / total:.1%}", f"{found['change']:.2f}",
        f"{found['difference']:.0e}", found["seconds"],
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def heading() -> str:
    names = ["network", "parameters", "groups", "units", "in units", "left", "half", "change", "difference", "seconds"]
    return f"| {' | '.join(names)} |\n|{'---|' + '---:|' * (len(names) - 1)}"


def text(found: Sequence[Found]) -> str:
    versions = next(each["versions"] for each in found if "versions" in each)
    introduction = INTRODUCTION.format(
        packages=_listed([name for name in versions if name != "torch"]),
        versions=_listed([f"{name} {version.partition('+')[0]}" for name, version in versions.items()]),
    )
    rows = [heading(), *map(line, found)]
    groups = [GROUPS, *(_groups(each) for each in found if "groups" in each)]
    whole = [MEANING, *filter(None, (_whole(each) for each in found if "whole" in each))]
    return "\n\n".join(["\n".join(part).strip() for part in ([introduction], rows, groups, whole)]) + "\n"


def _groups(found: Found) -> str:
    """A network's groups, those whose names differ only in their numbers together, the largest first."""
    alike: dict[str, list[Found]] = {}
    for each in found["groups"]:
        alike.setdefault(_numbers_apart(each["name"]), []).append(each)
    ordered = sorted(alike.items(), key=lambda item: -sum(each["parameters"] for each in item[1]))
    told = [f"`{name}` {len(each)} x {_range(one['units'] for one in each)}" for name, each in ordered[:SHOWN]]
    more = sum(len(each) for _, each in ordered[SHOWN:])
    return f"| {found['network']} | {', '.join(told)}{f', {more} more' if more else ''} |"


def _whole(found: Found) -> str:
    """What stays whole in one network: layers that differ only in their numbers together."""
    alike: dict[tuple[str, str], list[Found]] = {}
    for each in found["whole"]:
        if each["reason"] not in ("the network's output", "inputs that are never cut"):
            alike.setdefault((_numbers_apart(each["name"]), _numbers_apart(each["reason"])), []).append(each)
    if not alike:
        return ""
    rows = [
        f"| `{name}` | {len(each)} | {_range(one['slots'] for one in each)} | {each[0]['reason']} |"
        for (name, _), each in alike.items()
    ]
    return (
        f"### {found['network']}\n\n| where | how many | slots | why |\n|---|---:|---:|---|\n" + "\n".join(rows) + "\n"
    )


def _numbers_apart(text: str) -> str:
    """With a `*` for every number but those of axes."""
    return re.sub(r"\d+(?!\]$|\d)", "*", text)


def _range(numbers: Iterable[int]) -> str:
    several = sorted(set(numbers))
    return str(several[0]) if len(several) == 1 else f"{several[0]} to {several[-1]}"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
