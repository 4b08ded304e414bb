"""A site's answer to a message on Flower's grid."""

from flwr.app import Message

from fedsac.federation.flower_internals import bundled
from fedsac.federation.introductions import INTRODUCTION, introduce
from fedsac.federation.link import packed_reply, read_order
from fedsac.federation.site import Site


def answered(site: Site, message: Message) -> tuple[Message, bool]:
    """The reply, and whether the site has joined anew: what it has read of its data is then out of date."""
    if INTRODUCTION in message.content:
        return introduce(site, message), False
    order = read_order(message)
    return Message(bundled(packed_reply(site.answer(order))), reply_to=message), order.kind == "join"
