"""The only use of Flower's internal modules, which may change in any version. Tried with Flower 1.41.0.

Reports say how many bytes each site was sent, and the guard refuses replies that are too large. Flower splits a
message into objects (the message, its records, chunks of its arrays) and sends those; its public API has no function
that gives their sizes. `get_all_nested_objects` is what Flower itself calls before it sends. If another version has
moved it, this is the only file to change.
"""

from flwr.app import Message
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects


def message_bytes(message: Message) -> int:
    """Bytes of a message as Flower sends it: the sum over all objects it consists of."""
    return sum(len(part.deflate()) for part in get_all_nested_objects(message).values())
