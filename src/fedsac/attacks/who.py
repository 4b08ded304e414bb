"""Who is hostile: by name, or those in the middle, at the lower or at the upper end of the clients' sizes."""

import numpy as np

from fedsac.attacks.base import Attack
from fedsac.data.split import Split
from fedsac.doors import SCENES
from fedsac.errors import FedsacError

MEDIAN, LARGEST, SMALLEST = "median", "largest", "smallest"


def attackers(named: str | None, split: Split, attack: Attack) -> tuple[str, ...]:
    """The names of the hostile clients: `median`, `largest` or `smallest` by size (what the attack says, where nothing
    is `named`), as many as the attack has parties, or as a number behind a colon says; else names with commas between
    them."""
    rule, colon, count = (named or attack.who).partition(":")
    if rule in (MEDIAN, LARGEST, SMALLEST):
        number = int(count) if count.isdigit() else 0 if colon else attack.parties
        if not 1 <= number < len(split.clients):
            shown = named if named and colon else f"{rule}:{number}{'' if named else ', as the attack has it'}"
            raise FedsacError(
                f"attackers {shown}: of {len(split.clients)} clients at least one must be hostile, and one honest; "
                f"{rule} takes 1 to {len(split.clients) - 1} of them, as --attackers {rule}:1, or take more clients"
            )
        by_size = sorted(range(len(split.clients)), key=lambda i: (_size(split, i), i))
        left = len(by_size) - number
        first = {SMALLEST: 0, MEDIAN: left // 2, LARGEST: left}[rule]
        chosen = set(by_size[first : first + number])
        return tuple(name for i, name in enumerate(split.clients) if i in chosen)
    names = tuple(name.strip() for name in str(named).split(","))
    for name in names:
        if name not in split.clients:
            raise FedsacError(
                f"attackers: {name!r} is no client; they are {', '.join(split.clients)}, or median, largest or smallest"
            )
    if len(set(names)) < len(names) or len(names) == len(split.clients):
        raise FedsacError(f"attackers {named}: name each once, and leave an honest client")
    return names


def _size(split: Split, client: int) -> int:
    """What a client's size is counted in: samples, or classes where the scene says so (CLA)."""
    own = split.rows[client]
    by_class = split.scene != "silos" and getattr(SCENES.resolve(split.scene), "size_is_classes", False)
    return len(np.unique(split.data.y[own])) if by_class else len(own)
