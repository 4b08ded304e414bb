"""Sending orders to sites and checking their replies with the guard; refusals are counted and logged in the ledger."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedsac.federation import identity
from fedsac.federation.folder import REVOKED, Federation
from fedsac.federation.guard import Asked, RefusedError, Reply, admit, printable
from fedsac.federation.ledger import Ledger
from fedsac.federation.link import Exchange, Link
from fedsac.federation.members import Member
from fedsac.federation.site import DECLINED
from fedsac.federation.wire import Order, described

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class CheckedReplies:
    """By site: the arrays and facts of admitted replies, and why the others `failed` (lost or refused). `payload` is
    the bytes of all arrays that were sent."""

    arrays: dict[str, dict[str, np.ndarray]]
    facts: dict[str, Mapping[str, Any]]
    failed: dict[str, str]
    exchange: Exchange
    payload: int


class Requests:
    """Sends orders and checks replies. `refused` counts successive refusals of sites that are not members yet (a
    member's are in `Member.refused`)."""

    def __init__(
        self,
        federation: Federation,
        link: Link,
        ledger: Ledger,
        members: dict[str, Member],
        say: Callable[[str], None],
    ) -> None:
        self.federation, self.link, self.ledger, self.members, self.say = federation, link, ledger, members, say
        self.refused: dict[str, int] = {}

    def ask(
        self, orders: Mapping[str, Order], expected: Mapping[str, Shapes], start: Mapping[str, Arrays]
    ) -> CheckedReplies:
        """Send an order to each site and wait for the replies. A reply must have the `expected` arrays and not be too
        far from the model that the site was to `start` from."""
        if not orders:
            return CheckedReplies({}, {}, {}, Exchange(), 0)
        exchange = self.link.exchange(orders, self.federation.timeout)
        self._log(orders, exchange)
        arrays, facts, failed = {}, {}, dict(exchange.lost)
        for name, reason in exchange.refused.items():
            failed[name] = self.refuse(name, reason)
        sites = self.federation.sites()
        for name, reply in sorted(exchange.replies.items()):
            if sites[name]["status"] == REVOKED:
                failed[name] = self.refuse(name, "identity: its key was revoked")
                continue
            key = sites[name]["public_key"].encode()
            asked = self._asked(name, orders[name], key, expected[name], start.get(name, {}))
            try:
                arrays[name] = _admitted(asked, reply)
            except RefusedError as error:
                failed[name] = self.refuse(name, str(error))
                continue
            facts[name] = reply.facts
            if name in self.members:
                self.members[name].refused = 0
        payload = sum(array.nbytes for order in orders.values() for array in order.arrays.values())
        return CheckedReplies(arrays, facts, failed, exchange, payload)

    def _asked(self, name: str, order: Order, key: bytes, expected: Shapes, start: Arrays) -> Asked:
        return Asked(
            site=name,
            kind=order.kind,
            round=order.round,
            token=order.token,
            arrays=expected,
            start=start,
            max_step=self.federation.max_step,
            max_bytes=self.federation.max_message_bytes,
            check=partial(identity.signed, key),
        )

    def _log(self, orders: Mapping[str, Order], exchange: Exchange) -> None:
        """Write to the ledger what was sent, and which sites did not answer."""
        first = next(iter(orders.values()))
        sites = {name: described(order.arrays, exchange.sent.get(name, 0)) for name, order in orders.items()}
        self.ledger.append("sent", what=first.kind, round=first.round, sites=sites)
        for name, reason in sorted(exchange.lost.items()):
            self.ledger.append("lost", site=name, what=first.kind, round=first.round, reason=reason)
            self.say(f"{name}: no answer ({reason})")

    def refuse(self, name: str, reason: str) -> str:
        """Count and log a refusal; after `aside_after` in a row the site is asked no more. Returns the reason as
        printable text."""
        reason = printable(reason)
        member = self.members.get(name)
        if member is None:
            count = self.refused[name] = self.refused.get(name, 0) + 1
        else:
            count = member.refused = member.refused + 1
        aside = count >= self.federation.aside_after
        if member is not None:
            member.aside = member.aside or aside
        self.ledger.append("refused", site=name, reason=reason, in_a_row=count, aside=aside)
        self.say(f"{name}: refused: {reason}" + ("; it is set aside" if aside else ""))
        return reason


def _admitted(asked: Asked, reply: Reply) -> dict[str, np.ndarray]:
    """The arrays of a reply that passes the guard. If the site declines, its reason is raised as the refusal, once the
    signature is checked."""
    declined = reply.facts.get(DECLINED)
    if declined is None:
        return admit(asked, reply)
    admit(Asked(asked.site, asked.kind, asked.round, asked.token, max_bytes=asked.max_bytes, check=asked.check), reply)
    raise RefusedError(printable(declined)[:600])


def token() -> str:
    """A random nonce, which the reply has to repeat: an answer to another message is not taken for this one's."""
    return secrets.token_hex(16)
