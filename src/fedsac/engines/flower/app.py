"""The Flower app: a ServerApp around the coordinator, a ClientApp around a site.

Both find their folder in the environment of the process that Flower starts them from (`fedsac federation server` and
`site` set it), or, for the site, in the node's config.
"""

import os
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedsac.engines.flower.coordinator import Coordinator
from fedsac.engines.flower.folder import Federation
from fedsac.engines.flower.link import GridLink, packed_reply, read_order
from fedsac.engines.flower.site import Site
from fedsac.errors import FedsacError

FOLDER, SITE = "FEDSAC_FEDERATION", "FEDSAC_SITE"

server = ServerApp()
client = ClientApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Begin the federation's run, or go on with it."""
    federation = Federation.load(Path(_place(FOLDER, "")))
    Coordinator(federation, GridLink(grid, federation.nodes), say=print).run()


@client.train()
def train(message: Message, context: Context) -> Message:
    """Answer one order."""
    site = Site(Path(_place(SITE, str(context.node_config.get("site", "")))))
    return Message(packed_reply(site.answer(read_order(message))), reply_to=message)


def _place(variable: str, given: str) -> str:
    place = given or os.environ.get(variable, "")
    if not place:
        raise FedsacError(f"{variable} names no folder; start with fedsac federation server, or site")
    return place
