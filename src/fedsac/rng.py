"""Named random streams: the same names give the same numbers, on every engine and in any order of calls.

Nothing in the project draws from a global generator. A stream is named by the run's seed (what the split of the data
draws: by the split's), its purpose and the round and client it is for (`stream(0, "batches", 12, "client-03")`), so
results do not depend on how clients are ordered or grouped, and a resumed run draws what the uninterrupted one would
have drawn.
"""

import hashlib
import json

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """A new generator, determined by the seed and these names.

    >>> bool((stream(0, "batches", 1, "a").random(3) == stream(0, "batches", 1, "a").random(3)).all())
    True
    >>> bool((stream(0, "batches", 1, "a").random(3) == stream(0, "batches", 2, "a").random(3)).any())
    False
    """
    # JSON keeps ("a", "b") and ("a/b",) apart; a hash, because neighbouring keys must not give related streams.
    digest = hashlib.blake2b(json.dumps([seed, *names]).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
