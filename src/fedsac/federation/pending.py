"""The order that a site is working on and its reply, as files in its folder: a site that was killed goes on with them.

Flower's server gives a message to a node once. Without these files a site that is killed in a round, and restarted at
once, would count as connected and never answer, and everybody would wait for it until the round's timeout. And it takes
one reply to a message: of one that was announced, and not uploaded before the kill, the very same has to be sent again.
"""

from pathlib import Path

from fedsac.atomic import write_atomic
from fedsac.errors import FedsacError

ORDER_FILE, REPLY_FILE = "pending.order", "pending.reply"


def keep(path: Path, message: bytes) -> None:
    """Write a message to a file."""
    try:
        write_atomic(path, message)
    except OSError as error:
        raise FedsacError(f"{path}: cannot be written ({error.strerror})") from None


def drop(folder: Path) -> None:
    """Remove both: the order has been answered, or nobody waits for the answer any more. The order goes first: a reply
    without its order is sent again, and an order without its reply would be carried out again."""
    (folder / ORDER_FILE).unlink(missing_ok=True)
    (folder / REPLY_FILE).unlink(missing_ok=True)
