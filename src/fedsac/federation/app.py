"""The Flower app: a ServerApp around the coordinator, a ClientApp around a site.

Both find their folder in the environment of the process that Flower starts them from (`fedsac federation server` and
`site` set it), or, for the site, in the node's config.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedsac.atomic import write_atomic
from fedsac.errors import FedsacError
from fedsac.federation.coordinator import Coordinator
from fedsac.federation.folder import FAILED, REQUESTED, Federation
from fedsac.federation.introductions import WHO, Introductions, introduce
from fedsac.federation.link import GridLink, packed_reply, read_order
from fedsac.federation.simulation import SIMULATED
from fedsac.federation.site import Site

FOLDER, SITE = "FEDSAC_FEDERATION", "FEDSAC_SITE"
PATIENCE = 300  # seconds for an earlier coordinator to end

server = ServerApp()
client = ClientApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Begin the federation's run, or go on with it; what cannot be put right by going on is left to a person."""
    federation = Federation.load(Path(_place(FOLDER, "")))
    if not os.environ.get(SIMULATED):
        _end_with_parent()
    with held(federation.server):
        try:
            Coordinator(federation, GridLink(grid, _nodes(grid, federation)), say=print).run()
        except FedsacError as error:
            # Nothing that trying again would mend: the request is withdrawn, and the reason written down.
            (federation.server / REQUESTED).unlink(missing_ok=True)
            write_atomic(federation.server / FAILED, " ".join(str(error).split()).encode())
            raise
        (federation.server / REQUESTED).unlink(missing_ok=True)


@client.train()
def train(message: Message, context: Context) -> Message:
    """Answer one order."""
    own = _simulated(context) if os.environ.get(SIMULATED) else str(context.node_config.get("site", ""))
    if os.environ.get(SITE):
        _end_with_parent()
    site = Site(Path(_place(SITE, str(own))))
    if WHO in message.content:
        return introduce(site, message)
    return Message(packed_reply(site.answer(read_order(message))), reply_to=message)


def _nodes(grid: Grid, federation: Federation) -> Callable[[], Mapping[str, int]]:
    """Which node is which site: as keys were registered or, where Flower knows none, as nodes can prove."""
    if federation.insecure or os.environ.get(SIMULATED):
        return Introductions(grid, federation)
    return federation.nodes


def _simulated(context: Context) -> Path:
    """The folder of the site that a simulated node stands for."""
    federation = Federation.load(Path(_place(FOLDER, "")))
    return federation.path / sorted(federation.sites())[int(str(context.node_config["partition-id"]))]


def _place(variable: str, given: str) -> str:
    place = given or os.environ.get(variable, "")
    if not place:
        raise FedsacError(f"{variable} names no folder; start with fedsac federation server, or site")
    return place


@cache
def _end_with_parent() -> None:
    """Flower's processes outlive the one that started them, and go on asking a server that is gone. Whatever is final
    is on disk: nothing is lost by ending at once."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the coordinator's folder. A coordinator that was cut off from its server may need a moment to end."""
    try:
        import fcntl
    except ImportError:  # Windows: the folder is simply not guarded
        yield
        return
    with (folder / "lock").open("wb") as file:
        for _ in range(PATIENCE):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(1)
        else:
            raise RuntimeError(f"{folder}: another coordinator is at work")
        yield
