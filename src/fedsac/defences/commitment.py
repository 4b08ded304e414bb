"""A commitment to contributions: a hash over what counts of every client, chained over the rounds.

It is in a round's record (and in a federation's ledger) before anything that was computed from it leaves the server.
Whoever sees the records later can tell that no contribution was changed afterwards to fit a reward.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

START = "0" * 64
HARDENED = "hardened"  # in a round's record


def commitment(previous: str, round: int, clients: Sequence[str], contributions: Sequence[float]) -> str:
    """The hash over a round's contributions and over the hash before it."""
    text = json.dumps([previous, round, list(clients), [float(c).hex() for c in contributions]], ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def first_broken(records: Sequence[Mapping[str, Any]]) -> int | None:
    """The first round whose commitment is not that of its contributions; None: all are."""
    previous = START
    for record in records:
        said = record[HARDENED]
        if said["commitment"] != commitment(previous, record["round"], said["clients"], said["contributions"]):
            return int(record["round"])
        previous = said["commitment"]
    return None
