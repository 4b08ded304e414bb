"""A site's node: one process that stays connected to Flower's server and answers its messages.

It stands in for Flower's own node (SuperNode), which starts a new Python process for each message and runs in it
whatever app the server hands out: here torch is loaded and the data read once, and nothing is run but the installed
package. It never gives up: a server that is down, restarts or does not let the site in yet is asked again, and what is
the matter is said once.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
from flwr.app import Error, Message

from fedsac.federation.answering import answered
from fedsac.federation.flower_internals import HEARTBEAT_INTERVAL_SECONDS, FleetConnection, framed, unframed
from fedsac.federation.folder import SiteSettings, write_json
from fedsac.federation.link import UNDECODABLE
from fedsac.federation.pending import ORDER_FILE, REPLY_FILE, drop, keep
from fedsac.federation.renewing_site import NEXT_KEY_FILE, use_next_key
from fedsac.federation.site import Site
from fedsac.federation.site_lock import locked

BUSY_POLL_SECONDS, IDLE_POLL_SECONDS = 0.5, 3.0  # between two questions whether there is a message
BUSY_FOR_SECONDS = 120.0  # after a message, and before the node asks more rarely
RETRY_SECONDS = 2.0  # before the server is asked again after an error
HEARTBEATS_PER_INTERVAL = 3
NOT_KNOWN, NOT_RUNNING, ACTIVATION_FAILED = 401, 403, 412  # answers of the gate and of Flower
CLOCK_TOLERANCE_SECONDS = 4.0  # of Flower: 5 s ahead of the server, 305 s behind it
SITE_FAILED = 1  # the code of an error reply
NODE_FILE, BOOT_FILE = "node.json", Path("/proc/sys/kernel/random/boot_id")

log = logging.getLogger("fedsac.site")


class Node:
    """A site's connection to the server."""

    def __init__(self, settings: SiteSettings, say: Callable[[str], None]) -> None:
        self.settings, self._say = settings, say
        self._connection = self._connected_by("key")
        self._site = Site(settings.path)
        self._node, self._trouble, self._stop = 0, "", threading.Event()

    def serve(self) -> None:
        """Answer messages until interrupted."""
        with locked(self.settings):
            try:
                self._enter()
                threading.Thread(target=self._beat, daemon=True).start()
                self._go_on()
                self._answer_all()
            finally:
                self._stop.set()
                self._leave()

    def _answer_all(self) -> None:
        last = time.monotonic()
        while True:
            try:
                received = self._connection.receive()
                self._well()
            except UNDECODABLE as error:
                log.error("a message cannot be decoded, or is not there (%s)", error)
                continue
            except httpx.HTTPError as error:
                self._unwell(error)
                if _status(error) == NOT_KNOWN:
                    self._enter()
                continue
            if received is not None:
                self._take(received)
                last = time.monotonic()
            busy = time.monotonic() - last < BUSY_FOR_SECONDS
            time.sleep(BUSY_POLL_SECONDS if busy else IDLE_POLL_SECONDS)

    # -- coming and going

    def _connected_by(self, key: str) -> FleetConnection:
        """A connection with the key in this file."""
        own = self.settings
        ca = None if own.insecure else (own.path / "ca.pem").read_bytes()
        return FleetConnection(own.address, ca, (own.path / key).read_bytes())

    def _enter(self) -> None:
        """Have the server take this node for connected; however long that takes."""
        while True:
            try:
                self._node = self._connection.activate()
                break
            except httpx.HTTPError as error:
                if _status(error) == NOT_KNOWN and self._renewed():
                    break
                if _status(error) == ACTIVATION_FAILED and self._was_here():
                    self._leave()  # the server still waits for the heartbeats of a process that was killed here
                    if self._activates():
                        break
                self._unwell(error)
        self._well()
        if self.settings.insecure is False:
            write_json(self.settings.path / NODE_FILE, {"node": self._node, "boot": _boot()})
        log.info("connected to %s as node %d", self.settings.address, self._node)

    def _activates(self) -> bool:
        try:
            self._node = self._connection.activate()
        except httpx.HTTPError:
            return False
        return True

    def _renewed(self) -> bool:
        """Whether the server knows the new key that waits beside the present one: it is this site's from then on."""
        if not (self.settings.path / NEXT_KEY_FILE).exists():
            return False
        before, self._connection = self._connection, self._connected_by(NEXT_KEY_FILE)
        if not self._activates():
            self._connection = before
            return False
        use_next_key(self.settings.path)
        self._say("this site's new key is in use")
        log.info("the new key is in use")
        return True

    def _was_here(self) -> bool:
        """Whether the node that the server takes for connected was a process on this host, since it was booted: then
        it has ended, for its folder is locked by this one. A copy of the folder elsewhere may be at work."""
        try:
            said = json.loads((self.settings.path / NODE_FILE).read_text())
            self._node = int(said["node"])
            return bool(said["boot"]) and said["boot"] == _boot()
        except (OSError, ValueError, LookupError, TypeError):
            return False

    def _leave(self) -> None:
        if self._node:
            try:
                self._connection.deactivate(self._node)
            except httpx.HTTPError as error:
                log.info("the server was not told that this site goes (%s)", error)

    def _beat(self) -> None:
        """Send heartbeats, from a thread of its own: training may take longer than Flower waits."""
        while not self._stop.wait(HEARTBEAT_INTERVAL_SECONDS / HEARTBEATS_PER_INTERVAL):
            try:
                if not self._connection.heartbeat():
                    log.warning("the server does not know this node any more")
            except (httpx.HTTPError, RuntimeError) as error:
                log.info("no heartbeat (%s)", error)

    # -- messages

    def _take(self, message: Message) -> None:
        """Answer a message that has arrived; it is on disk before the server is told so."""
        keep(self.settings.path / ORDER_FILE, framed(message))
        try:
            self._connection.confirm(message)
        except httpx.HTTPError as error:
            log.warning("the server was not told that a message has arrived (%s)", error)
        self._answer(message)

    def _go_on(self) -> None:
        """Go on with what this site was at when it ended."""
        if (reply := self._kept(REPLY_FILE)) is not None:
            log.info("sending once more the reply that this site was sending when it ended")
            self._send(reply, time.monotonic(), again=True)
        elif (message := self._kept(ORDER_FILE)) is not None:
            log.info("going on with the order that this site was at when it ended")
            self._answer(message)
        drop(self.settings.path)

    def _kept(self, name: str) -> Message | None:
        """The message in a file, if somebody may still wait for it or for its answer."""
        try:
            message: Message = unframed((self.settings.path / name).read_bytes())
            expired = message.metadata.created_at + message.metadata.ttl < time.time()
        except (FileNotFoundError, *UNDECODABLE):
            return None
        return None if expired else message

    def _answer(self, message: Message) -> None:
        began = time.monotonic()
        reply = self._reply(message)
        keep(self.settings.path / REPLY_FILE, framed(reply))
        self._send(reply, began)

    def _send(self, reply: Message, began: float, *, again: bool = False) -> None:
        try:
            self._connection.send(reply, time.monotonic() - began, again=again)
            log.info("answered in %.2f s", time.monotonic() - began)
        except (httpx.HTTPError, LookupError) as error:
            over = _status(error) == NOT_RUNNING
            log.warning("the answer was not sent: %s", "the run has ended" if over else error)
        drop(self.settings.path)

    def _reply(self, message: Message) -> Message:
        try:
            reply, joined = answered(self._site, message)
            if joined:
                self._site = Site(self.settings.path)  # other terms, perhaps
            return reply
        except Exception:  # what went wrong stays in this site's log
            log.exception("an order could not be carried out")
            self._site = Site(self.settings.path)
            return Message(
                Error(SITE_FAILED, "the site could not carry out the order; its log says why"), reply_to=message
            )

    # -- what is the matter

    def _unwell(self, error: Exception) -> None:
        """Say what is the matter, if it is something else than before, and wait a while."""
        text = trouble(error, self.settings)
        if text != self._trouble:
            self._say(text)
            log.warning(text)
            self._trouble = text
        time.sleep(RETRY_SECONDS)

    def _well(self) -> None:
        if self._trouble:
            self._trouble = ""
            self._say(f"connected to {self.settings.address}")


def trouble(error: Exception, settings: SiteSettings) -> str:
    """What is the matter with the connection, and what to do about it, in a line."""
    again, server, site = "trying again", settings.address, settings.name
    if isinstance(error, httpx.HTTPStatusError):
        status, said = error.response.status_code, error.response.text[:200]
        if status == NOT_KNOWN and (skew := _skew(error.response)) is not None:
            way = "ahead of" if skew > 0 else "behind"
            return f"this host's clock is {abs(skew):.0f} s {way} the server's; set the clocks (NTP); {again}"
        if status == NOT_KNOWN:
            return (
                f"the server at {settings.address} does not know the key of {settings.name}, or it was revoked; ask "
                f"the coordinator to add the site; {again}"
            )
        if status == ACTIVATION_FAILED:
            patience = f"{2 * HEARTBEAT_INTERVAL_SECONDS:.0f} s"
            return (
                f"the server takes {site} for connected: it ended less than {patience} ago, or runs elsewhere with the "
                f"same key; {again}"
            )
        return f"the server at {server} answers {status} ({said.strip()}); {again}"
    text = str(error) or type(error).__name__
    if "certificate has expired" in text:
        return (
            f"the certificate of {server} has expired; ask the coordinator to renew it: fedsac federation renew FOLDER "
            f"certificate; {again}"
        )
    if "certificate" in text.lower():
        return (
            f"the certificate of {server} is not one of ca.pem's authority, or is for another host ({text}); "
            f"bring the coordinator's ca.pem, and write the address given to init in site.toml; {again}"
        )
    return f"the server at {server} cannot be reached ({text}); is it running, and its port open from here? {again}"


def _status(error: Exception) -> int:
    return error.response.status_code if isinstance(error, httpx.HTTPStatusError) else 0


def _skew(response: httpx.Response) -> float | None:
    """How many seconds this host's clock is ahead of the server's, if that is more than Flower tolerates."""
    try:
        skew = time.time() - parsedate_to_datetime(response.headers["date"]).timestamp()
    except (KeyError, ValueError, TypeError):
        return None
    return skew if skew > CLOCK_TOLERANCE_SECONDS or skew < -300 else None


def _boot() -> str:
    """A name of this host since it was booted; empty where there is none."""
    return BOOT_FILE.read_text().strip() if BOOT_FILE.exists() else ""
