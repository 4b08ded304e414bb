"""Sending orders to sites and checking their replies with the guard; refusals and losses are counted and logged in the
ledger."""

import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fedsac.federation import identity
from fedsac.federation.declining import DECLINED, OWN_NETWORK, shown
from fedsac.federation.folder import REVOKED, Federation
from fedsac.federation.guard import Asked, RefusedError, Reply, admit, printable
from fedsac.federation.history import signed_order
from fedsac.federation.ledger import FIRST_PREVIOUS, Ledger
from fedsac.federation.link import Exchange, Link
from fedsac.federation.members import Member
from fedsac.federation.renewing import former_signers
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
    """Sends orders and checks replies. Of sites that are not members yet, `refused` counts successive failures and
    `readmitted` how often they were taken in again (a member's are in `Member`); `seen` is how many lines of the ledger
    each site has signed."""

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
        self.readmitted: dict[str, int] = {}
        self.seen = {name: e["body"]["length"] for e in ledger.of_kind("signed") for name in e["body"]["sites"]}

    def ask(
        self, orders: Mapping[str, Order], expected: Mapping[str, Shapes], start: Mapping[str, Arrays]
    ) -> CheckedReplies:
        """Send an order to each site and wait for the replies. A reply must have the `expected` arrays and not be too
        far from the model that the site was to `start` from."""
        if not orders:
            return CheckedReplies({}, {}, {}, Exchange(), 0)
        keys = self._keys(orders)
        orders = self._signed(orders)
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
            key = keys[name]
            asked = self._asked(name, orders[name], key, expected[name], start.get(name, {}))
            try:
                arrays[name] = _admitted(asked, reply, orders[name])
            except RefusedError as error:
                failed[name] = self.refuse(name, str(error))
                self._believe(name, reply, key)
                continue
            facts[name] = reply.facts
            if name in self.members:
                self.members[name].refused = 0
        self._log_signatures(orders, {name: exchange.replies[name] for name in facts})
        payload = sum(array.nbytes for order in orders.values() for array in order.arrays.values())
        return CheckedReplies(arrays, facts, failed, exchange, payload)

    def _keys(self, names: Collection[str]) -> dict[str, bytes]:
        """The public key of each of these sites. One that was renewed, and a new key of the coordinator's, is written
        to the ledger before it is used: `verify` checks the signatures after that line with it."""
        sites, renewed = self.federation.sites(), [e["body"] for e in self.ledger.of_kind("renewed")]
        for name in sorted(names):
            keys = [*sites[name].get("former_keys", []), sites[name]["public_key"]]
            for key in keys[1 + sum(body["site"] == name for body in renewed) :]:
                self.ledger.append("renewed", site=name, key=identity.fingerprint(key.encode()))
        signers = [*former_signers(self.federation), (self.federation.server / "receipts.pub").read_bytes()]
        for key in signers[1 + sum(body["site"] is None for body in renewed) :]:
            self.ledger.append("renewed", site=None, key=identity.fingerprint(key))
        return {name: sites[name]["public_key"].encode() for name in names}

    def _signed(self, orders: Mapping[str, Order]) -> dict[str, Order]:
        """The orders with the ledger's head and what each site has not seen of it, signed."""
        key = (self.federation.server / "receipts.key").read_bytes()
        signed = {}
        for name, order in orders.items():
            contribution = self.members[name].validation if name in self.members else None
            order = replace(order, contribution=contribution)
            signed[name] = signed_order(name, order, self.ledger, self.seen.get(name, 0), key)
        return signed

    def _log_signatures(self, orders: Mapping[str, Order], replies: Mapping[str, Reply]) -> None:
        """Write to the ledger who has signed its head: whoever rewrites it later lacks these signatures."""
        if not replies:
            return
        first = next(iter(orders.values()))
        sites = {
            name: {"token": reply.token, "content": reply.content(), "signature": reply.signature}
            for name, reply in replies.items()
        }
        length, head = first.ledger["length"], first.ledger["head"]
        self.seen.update(dict.fromkeys(replies, length))
        self.ledger.append("signed", what=first.kind, round=first.round, length=length, head=head, sites=sites)

    def _believe(self, name: str, reply: Reply, key: bytes) -> None:
        """If a refused reply says which line of the ledger the site knows (its folder may be an old copy), go on from
        there."""
        length, head = reply.head
        ours = [FIRST_PREVIOUS, *(entry["hash"] for entry in self.ledger.entries)]
        if 0 <= length < len(ours) and ours[length] == head and identity.signed(key, reply.digest(), reply.signature):
            self.seen[name] = length

    def readmit(self) -> None:
        """Ask sites again that were set aside and that the coordinator has taken in again since."""
        for name, site in self.federation.sites().items():
            times, member = site.get("readmitted", 0), self.members.get(name)
            if times <= (self.readmitted.get(name, 0) if member is None else member.readmitted):
                continue
            if member is None:
                self.readmitted[name] = times
                self.refused.pop(name, None)
            else:
                member.readmitted, member.refused, member.aside = times, 0, False
            self.ledger.append("readmitted", site=name)
            self.say(f"{name} is asked again")

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
            head=(order.ledger["length"], order.ledger["head"]),
        )

    def _log(self, orders: Mapping[str, Order], exchange: Exchange) -> None:
        """Write to the ledger what was sent, and which sites did not answer."""
        first = next(iter(orders.values()))
        sites = {name: described(order.arrays, exchange.sent.get(name, 0)) for name, order in orders.items()}
        self.ledger.append("sent", what=first.kind, round=first.round, sites=sites)
        # If nobody has answered, the fault may be the coordinator's own.
        counts = len(orders) == 1 or len(exchange.lost) < len(orders)
        for name, reason in sorted(exchange.lost.items()):
            count, aside = self._failed_again(name) if counts else (None, False)
            body = {"what": first.kind, "round": first.round, "reason": reason, "in_a_row": count, "aside": aside}
            self.ledger.append("lost", site=name, **body)
            self.say(f"{name}: no answer ({reason})" + ("; it is set aside" if aside else ""))

    def refuse(self, name: str, reason: str) -> str:
        """Count and log a refusal. Returns the reason as printable text."""
        reason = printable(reason)
        count, aside = self._failed_again(name)
        self.ledger.append("refused", site=name, reason=reason, in_a_row=count, aside=aside)
        self.say(f"{name}: refused: {reason}" + ("; it is set aside" if aside else ""))
        return reason

    def _failed_again(self, name: str) -> tuple[int, bool]:
        """Count a refusal or a loss: how many in a row there were, and whether the site is asked no more."""
        member = self.members.get(name)
        if member is None:
            count = self.refused[name] = self.refused.get(name, 0) + 1
        else:
            count = member.refused = member.refused + 1
        aside = count >= self.federation.aside_after
        if member is not None:
            member.aside = member.aside or aside
        return count, aside


def _admitted(asked: Asked, reply: Reply, order: Order) -> dict[str, np.ndarray]:
    """The arrays of a reply that passes the guard. If the site declines, what its code means is raised as the refusal,
    once the signature is checked."""
    declined = reply.facts.get(DECLINED)
    if declined is None:
        return admit(asked, reply)
    admit(Asked(asked.site, asked.kind, asked.round, asked.token, max_bytes=asked.max_bytes, check=asked.check), reply)
    own, ours = reply.facts.get(OWN_NETWORK), order.facts.get(OWN_NETWORK, {}).get("structure")
    raise RefusedError(shown(declined, runs=reply.facts.get("fedsac"), own=own, ours=ours))


def token() -> str:
    """A random nonce, which the reply has to repeat: an answer to another message is not taken for this one's."""
    return secrets.token_hex(16)
