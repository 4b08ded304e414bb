"""`fedsac federation`: a federation of real sites over a network, on Flower."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fedsac.errors import FedsacError


def add(commands: Any) -> None:
    top = commands.add_parser(
        "federation",
        help="real sites over a network: init, join, server, site, run, status, verify, add, leave, readmit, "
        "revoke, renew",
        description="Real sites over a real network, on Flower. docs/deployment.md goes through it step by step.",
        allow_abbrev=False,
    )
    actions = top.add_subparsers(metavar="ACTION", required=True, parser_class=type(top))
    init = _action(actions, "init", "write keys, certificates and configs of a new federation", do_init)
    init.add_argument("--sites", default="", metavar="A,B,C", help="make these sites' keys here [sites join later]")
    init.add_argument(
        "--address", default="127.0.0.1:9092", metavar="HOST:PORT", help="where sites reach the server [127.0.0.1:9092]"
    )
    init.add_argument("--insecure", action="store_true", help="no TLS: for trials on one machine only")
    join = _action(actions, "join", "at a site: make its key and FOLDER, named like the site, and a request", do_join)
    join.add_argument("invitation", type=Path, metavar="INVITATION", help="the coordinator's invitation.json")
    _action(actions, "server", "start the coordinator's server (Flower's SuperLink)", do_server)
    _action(actions, "site", "start a site's node (Flower's SuperNode); FOLDER is the site's own", do_site)
    run = _action(actions, "run", "begin the federation's run, or go on with it, and wait for its end", do_run)
    run.add_argument("--detach", action="store_true", help="do not wait")
    status = _action(actions, "status", "who takes part, how far the run is, what was refused", do_status)
    status.add_argument("--json", action="store_true", help="print one JSON object")
    status.add_argument(
        "--watch", nargs="?", type=float, const=2.0, metavar="SECONDS", help="again and again, every 2 s, until Ctrl-C"
    )
    verify = _action(
        actions, "verify", "check ledger, receipts and rewards; at a site, what the site has seen and signed", do_verify
    )
    verify.add_argument("--ledger", type=Path, metavar="FILE", help="at a site: a copy of the coordinator's ledger")
    renew = _action(
        actions,
        "renew",
        "new keys and certificates: at the coordinator certificate, authority, signer, switch, or a site's --request; "
        "at a site key, or the coordinator's renewal --from FILE",
        do_renew,
    )
    renew.add_argument("what", nargs="?", choices=("certificate", "authority", "signer", "switch", "key"))
    renew.add_argument("--request", type=Path, metavar="FILE", help="what renew FOLDER key has written at a site")
    renew.add_argument("--from", dest="renewal", type=Path, metavar="FILE", help="the coordinator's renewal.json")
    renew.add_argument("--signer", default="", metavar="SHA256:...", help="the new signer's fingerprint, by telephone")
    for name, text, do in (
        ("add", "take a site in: by its request, or with a key that is made here", do_add),
        ("leave", "let a site go, with what it has earned so far", do_leave),
        ("readmit", "take a site that was set aside, or has left, in again", do_readmit),
        ("revoke", "take a site's key away: it is sent nothing more", do_revoke),
    ):
        action = _action(actions, name, text, do)
        action.add_argument("site", metavar="SITE")
        if name == "add":
            action.add_argument("--request", type=Path, metavar="FILE", help="what join has written at the site")


def _action(actions: Any, name: str, text: str, do: Any) -> Any:
    action = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    action.add_argument("folder", type=Path, metavar="FOLDER")
    action.set_defaults(do=partial(_privately, do))
    return action


def _privately(do: Callable[[argparse.Namespace], None], chosen: argparse.Namespace) -> None:
    """Do it so that nobody but this user reads what is written: keys, rewards, Flower's database, logs."""
    before = os.umask(0o077)
    try:
        do(chosen)
    finally:
        os.umask(before)


def _needs_flower() -> None:
    try:
        import cryptography  # noqa: F401
        import flwr  # noqa: F401
    except ImportError as error:
        raise FedsacError(f"a federation needs {error.name}; install fedsac[flower]") from None


def do_init(chosen: argparse.Namespace) -> None:
    _needs_flower()
    from fedsac.federation.setup import init

    sites = [name.strip() for name in chosen.sites.split(",") if name.strip()]
    if chosen.insecure:
        print("fedsac: WARNING: no TLS: whoever sees the network sees every model", file=sys.stderr)
    init(chosen.folder, sites, chosen.address, insecure=chosen.insecure)
    print(f"{chosen.folder}: next,")
    print(f"  edit {chosen.folder / 'federation.toml'}, and put the validation data beside it")
    if sites:
        print(f"  bring {', '.join(str(chosen.folder / name) for name in sites)} to the sites: each has a secret key")
    else:
        print(f"  send {chosen.folder / 'invitation.json'} to the sites, for: fedsac federation join")
    print(f"  fedsac federation server {chosen.folder}")


def do_join(chosen: argparse.Namespace) -> None:
    _needs_flower()
    from fedsac.federation.joining import join

    request, own, coordinator = join(chosen.folder, chosen.invitation)
    print(f"{chosen.folder}: next,")
    print(f"  compare by telephone: the coordinator's key is {coordinator}, this site's {own}")
    print(f"  send {request} to the coordinator: fedsac federation add FOLDER {chosen.folder.name} --request FILE")
    print(f"  put the data into {chosen.folder}, look through site.toml, then: fedsac federation site {chosen.folder}")


def do_server(chosen: argparse.Namespace) -> None:
    _needs_flower()
    from fedsac.federation.data import coordinator_split
    from fedsac.federation.folder import Federation
    from fedsac.federation.processes import Server
    from fedsac.federation.setup import require_server_files

    federation = Federation.load(chosen.folder)
    require_server_files(federation)
    coordinator_split(federation)  # so that an error in the data is shown here, not only in a log
    _close(federation.path)
    Server(federation, _say).serve()


def do_site(chosen: argparse.Namespace) -> None:
    _needs_flower()
    from fedsac.federation.folder import SiteSettings
    from fedsac.federation.joining import require_keys, require_signer
    from fedsac.federation.processes import run_site
    from fedsac.federation.renewing_site import mend

    settings = SiteSettings.load(chosen.folder)
    mend(settings.path)
    require_signer(settings)
    require_keys(settings)
    _close(chosen.folder)
    run_site(chosen.folder, _say)


def _close(folder: Path) -> None:
    """Let nobody but its owner into a folder: earlier versions left it open."""
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)


def do_run(chosen: argparse.Namespace) -> None:
    _needs_flower()
    from fedsac.federation.control import LOOPBACK
    from fedsac.federation.data import coordinator_split
    from fedsac.federation.folder import REVOKED, Federation
    from fedsac.federation.processes import is_listening
    from fedsac.federation.requesting import request
    from fedsac.federation.watch import OVER, as_table, follow, status

    federation = Federation.load(chosen.folder)
    state = status(federation)
    owed = [site for site in state["sites"].values() if site["status"] != REVOKED and site["reward"] is not None]
    if state["state"] == OVER and all(site["delivered"] for site in owed):
        _say(as_table(state))
        return
    coordinator_split(federation)  # so that an error in the data is shown here, not only in a log
    request(federation)
    if not is_listening(LOOPBACK, federation.control_port):
        _say(
            f"the server is not running; start it with: fedsac federation server {chosen.folder} "
            "(the run begins as soon as it is there)"
        )
    if not chosen.detach:
        follow(federation, _say, time.sleep)


def do_status(chosen: argparse.Namespace) -> None:
    from fedsac.federation.folder import Federation
    from fedsac.federation.watch import as_table, status

    if chosen.watch is not None and not 0.1 <= chosen.watch <= 86_400:
        raise FedsacError(f"--watch takes seconds, from 0.1 to 86400, not {chosen.watch:g}")
    while True:
        state = status(Federation.load(chosen.folder))
        clear = "\x1b[H\x1b[2J" if chosen.watch and sys.stdout.isatty() and not chosen.json else ""
        print(clear + (json.dumps(state) if chosen.json else as_table(state)), flush=True)
        if chosen.watch is None:
            return
        time.sleep(chosen.watch)


def do_verify(chosen: argparse.Namespace) -> None:
    _needs_flower()
    from fedsac.federation.folder import Federation
    from fedsac.federation.verifying import verify, verify_site

    if (chosen.folder / "site.toml").exists():
        print("\n".join(verify_site(chosen.folder, chosen.ledger)))
        return
    if chosen.ledger is not None:
        raise FedsacError(f"--ledger is for a site's folder, and {chosen.folder} has no site.toml")
    print("\n".join(verify(Federation.load(chosen.folder))))


def do_renew(chosen: argparse.Namespace) -> None:
    _needs_flower()
    if sum(given is not None for given in (chosen.what, chosen.request, chosen.renewal)) != 1:
        raise FedsacError("name one thing to renew, as in: fedsac federation renew FOLDER certificate (see --help)")
    at_site = chosen.what == "key" or chosen.renewal is not None
    for line in (_renewed_at_site if at_site else _renewed_at_coordinator)(chosen):
        print(line)


def _renewed_at_site(chosen: argparse.Namespace) -> list[str]:
    from fedsac.federation.folder import SiteSettings
    from fedsac.federation.joining import require_keys
    from fedsac.federation.renewing_site import new_key, take_renewal

    site = SiteSettings.load(chosen.folder)
    if chosen.renewal is not None:
        return [*take_renewal(site, chosen.renewal, chosen.signer), f"start it: fedsac federation site {site.path}"]
    require_keys(site)
    request, own = new_key(site)
    return [
        f"the new key, {own}, waits in key.next; this site changes to it when the coordinator has taken it in:",
        f"  send {request} to the coordinator: fedsac federation renew FOLDER --request FILE",
    ]


def _renewed_at_coordinator(chosen: argparse.Namespace) -> list[str]:
    from fedsac.federation.folder import Federation
    from fedsac.federation.processes import require_stopped
    from fedsac.federation.renewing import admit_new_key, prepare, renew_certificate, switch
    from fedsac.federation.setup import require_server_files

    federation = Federation.load(chosen.folder)
    require_server_files(federation)
    start = f"start it: fedsac federation server {chosen.folder}"
    if chosen.request is not None:
        name, key = admit_new_key(federation, chosen.request)
        return [f"{name} has the key {key} from now on; the old one is no longer taken"]
    if chosen.what in ("certificate", "switch"):
        require_stopped(federation)
    if chosen.what == "certificate":
        renew_certificate(federation)
        return ["the server's certificate is new, and sites need nothing", start]
    if chosen.what == "switch":
        signer = switch(federation)
        return [
            f"in use from now on; orders are signed with {signer}",
            f"send {federation.path / 'renewal.json'} to the sites: those who have not renewed need it, and the others "
            "forget the old authority by it",
            start,
        ]
    file, signer = prepare(federation, chosen.what)
    return [
        f"a new {chosen.what} is prepared; nothing has changed yet",
        f"  send {file} to the sites, each to stop and: fedsac federation renew SITE --from renewal.json",
        f"  tell them by telephone that the coordinator's key is then {signer}",
        f"  when they have, stop the server, then: fedsac federation renew {chosen.folder} switch",
    ]


def do_add(chosen: argparse.Namespace) -> None:
    _needs_flower()
    from fedsac.federation.setup import add as add_site
    from fedsac.federation.setup import admit

    if chosen.request is not None:
        key = admit(chosen.folder, chosen.site, chosen.request)
        print(f"{chosen.site} is in, with the key {key}; the run takes it in before its next round")
        return
    folder = add_site(chosen.folder, chosen.site)
    print(f"bring {folder} to the site: it has a secret key; the run takes it in before its next round")


def do_leave(chosen: argparse.Namespace) -> None:
    from fedsac.federation.folder import Federation
    from fedsac.federation.setup import remove
    from fedsac.federation.watch import UNDER_WAY, status

    remove(chosen.folder, chosen.site, revoked=False)
    state = status(Federation.load(chosen.folder))
    if state["sites"][chosen.site]["contribution"] is None:
        print(f"{chosen.site} has not taken part yet: it is not asked to join, and there is nothing to pay")
        return
    when = "" if state["state"] == UNDER_WAY else f"when the run goes on (fedsac federation run {chosen.folder}): "
    print(f"{when}{chosen.site} is paid before the next round, and leaves; if it is away then, when it comes back")


def do_readmit(chosen: argparse.Namespace) -> None:
    from fedsac.federation.setup import readmit

    readmit(chosen.folder, chosen.site)
    print(f"{chosen.site} is asked again before the next round")


def do_revoke(chosen: argparse.Namespace) -> None:
    from fedsac.federation.setup import remove

    remove(chosen.folder, chosen.site, revoked=True)
    print(f"the key of {chosen.site} is revoked: from now on it is sent nothing, and its replies do not count")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
