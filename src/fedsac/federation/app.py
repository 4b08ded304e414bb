"""The Flower app: a ServerApp that runs the coordinator, a ClientApp that runs a site.

Flower starts both in processes of its own. They read the path of their folder from an environment variable, which
`fedsac federation server` sets, or from the run's config (`flwr run`); a site also from its node's config. `fedsac
federation site` does without the ClientApp (see `node.py`): it is for Flower's simulation and for whoever runs Flower's
own nodes.
"""

import errno
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

from fedsac.config import Config, known
from fedsac.errors import FedsacError
from fedsac.federation.answering import answered
from fedsac.federation.coordinator import Coordinator
from fedsac.federation.folder import Federation
from fedsac.federation.introductions import Introductions
from fedsac.federation.link import GridLink
from fedsac.federation.requesting import stop, withdraw
from fedsac.federation.simulation import SIMULATED_VARIABLE, deal_out
from fedsac.federation.site import Site

FEDERATION_VARIABLE, SITE_VARIABLE = "FEDSAC_FEDERATION", "FEDSAC_SITE"
FOLDER = "folder"  # in a run's config
LOCK_TIMEOUT_SECONDS = 300  # that a new coordinator waits for an earlier one to end

server = ServerApp()
client = ClientApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Begin or resume the federation's run. After an error that a restart would not remove, the reason is written to a
    file and the run is not started again until the user asks for it."""
    federation = _federation(context)
    if os.environ.get(FEDERATION_VARIABLE) and not os.environ.get(SIMULATED_VARIABLE):
        _end_with_parent()
    with locked(federation.server):
        try:
            Coordinator(federation, GridLink(grid, _nodes(grid, federation)), say=print).run()
        except FedsacError as error:
            # The user has to act first (settings, data, sites): do not restart.
            stop(federation, str(error))
            raise
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                where = f"{error.filename or federation.server}"
                stop(federation, f"{where}: the disk is full; make room, then go on with the same command")
            raise
        withdraw(federation)


@client.train()
def train(message: Message, context: Context) -> Message:
    """Carry out one order and return the reply."""
    own, simulated = str(context.node_config.get("site", "")), context.node_config.get("partition-id")
    if not own and simulated is not None:
        own = str(_simulated_site(context, int(str(simulated))))
    return answered(Site(Path(_folder_named_by(SITE_VARIABLE, own))), message)[0]


def _nodes(grid: Grid, federation: Federation) -> Callable[[], Mapping[str, int]]:
    """A function that returns each site's node: by the keys that our server has registered with Flower or, where there
    are none (without TLS, in a simulation, on a server of Flower's own), by asking the nodes for a signature."""
    if federation.insecure or not federation.nodes():
        return Introductions(grid, federation)
    return federation.nodes


def _federation(context: Context) -> Federation:
    """The federation that a run is of. One that `flwr run` names and that is not there yet is made for a simulation:
    data, split over sites."""
    if folder := os.environ.get(FEDERATION_VARIABLE):
        return Federation.load(Path(folder))
    settings = dict(context.run_config)
    folder = str(settings.pop(FOLDER, ""))
    if not Path(folder).is_absolute():
        raise FedsacError(
            f"folder {folder!r} is no absolute path; name the federation's: flwr run APP --run-config "
            "'folder=\"/path/of/it\"'"
        )
    if not (Path(folder) / "federation.toml").exists():
        deal_out(Config(**known(settings, "run config")), Path(folder))
    return Federation.load(Path(folder))


def _simulated_site(context: Context, number: int) -> Path:
    """The folder of the site that a simulated node plays."""
    federation = _federation(context)
    sites = sorted(federation.sites())
    if number >= len(sites):
        raise FedsacError(f"{federation.path} has {len(sites)} sites; set num-supernodes to that")
    return federation.path / sites[number]


def _folder_named_by(variable: str, given: str) -> str:
    folder = given or os.environ.get(variable, "")
    if not folder:
        raise FedsacError(
            f"{variable} names no folder; start with fedsac federation site, or with flower-supernode --node-config "
            "'site=\"/path/of/it\"'"
        )
    return folder


@cache
def _end_with_parent() -> None:
    """Exit as soon as the parent process has ended. Flower's processes would otherwise outlive it and go on polling a
    server that is gone; all committed rounds are on disk, so nothing is lost."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the coordinator's folder, waiting for an earlier coordinator that lost its server and has not ended yet."""
    try:
        import fcntl
    except ImportError:  # Windows: no lock
        yield
        return
    with (folder / "lock").open("wb") as file:
        for _ in range(LOCK_TIMEOUT_SECONDS):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(1)
        else:
            raise RuntimeError(f"{folder}: another coordinator is at work")
        yield
