"""The status of a federation, read from its folder; the run may be going on."""

from collections.abc import Callable
from typing import Any

from fedsac.config import FORMAT_VERSION
from fedsac.core.metrics import display_name
from fedsac.errors import FedsacError
from fedsac.federation.folder import Federation
from fedsac.federation.ledger import Entry, read
from fedsac.federation.requesting import is_requested, stopped

POLL_SECONDS = 1.0
OVER, UNDER_WAY, STOPPED, NOT_BEGUN = "over", "under way", "stopped", "not begun"


def status(federation: Federation) -> dict[str, Any]:
    """The status of the run and of each site, from the ledger."""
    entries = read(federation.ledger) if federation.ledger.exists() else []
    rounds = [e["body"]["round"] for e in entries if e["kind"] == "round"]
    return {
        "format_version": FORMAT_VERSION,
        "method": federation.config.method,
        "metric": federation.config.metric,
        "rounds": federation.config.rounds,
        "round": max(rounds, default=0),
        "state": _state(federation),
        "stopped": stopped(federation) or None,
        "sites": {name: _site(name, site["status"], entries) for name, site in federation.sites().items()},
        "ledger": {"lines": len(entries), "head": entries[-1]["hash"] if entries else None},
    }


def _state(federation: Federation) -> str:
    if federation.is_over:
        return OVER
    if is_requested(federation):
        return UNDER_WAY
    return STOPPED if stopped(federation) or federation.ledger.exists() else NOT_BEGUN


def _site(name: str, invited: str, entries: list[Entry]) -> dict[str, Any]:
    own = [e for e in entries if e["body"].get("site") == name]
    rounds = [e for e in entries if e["kind"] == "round"]
    last: dict[str, Any] = {e["kind"]: e["body"] for e in own}
    again = [i for i, e in enumerate(own) if e["kind"] == "readmitted"]
    return {
        "status": invited,
        "samples": last.get("joined", {}).get("samples"),
        "fedsac": last.get("joined", {}).get("fedsac"),
        "contribution": last.get("contribution", {}).get("validation"),
        "answered": len({e["body"]["round"] for e in rounds if name in e["body"]["answered"]}),
        "refused": sum(e["kind"] == "refused" for e in own),
        "lost": sum(e["kind"] == "lost" for e in own),
        "aside": any(e["body"].get("aside") for e in own[again[-1] if again else 0 :]),
        "last_refusal": last.get("refused", {}).get("reason"),
        "reward": last.get("reward", {}).get("accuracy_validation"),
        "delivered": last.get("delivered", {}).get("sha256") == last["reward"]["sha256"] if "reward" in last else False,
    }


def as_table(state: dict[str, Any]) -> str:
    """What `status` returns, as a table."""
    about = f"{state['method']}, scored by {display_name(state['metric'])}"
    lines = [f"{about}: round {state['round']} of {state['rounds']}, {state['state']}"]
    head = ("site", "status", "samples", "contribution", "answered", "refused", "lost", "reward", "delivered", "fedsac")
    rows = [head]
    for name, site in state["sites"].items():
        cells = [site[key] for key in head[2:]]
        rows.append((name, "aside" if site["aside"] else site["status"], *(_cell(value) for value in cells)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [f"stopped: {state['stopped']}"] if state["stopped"] else []
    lines += [f"{n}: {s['last_refusal']}" for n, s in state["sites"].items() if s["last_refusal"]]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


def follow(federation: Federation, say: Callable[[str], None], sleep: Callable[[float], None]) -> None:
    """Report new entries of the ledger until the run is over; the server may be restarted meanwhile."""
    reported = len(read(federation.ledger)) if federation.ledger.exists() else 0
    size = 0
    while is_requested(federation):
        sleep(POLL_SECONDS)
        if not federation.ledger.exists() or federation.ledger.stat().st_size == size:
            continue
        size = federation.ledger.stat().st_size
        entries = read(federation.ledger) if federation.ledger.exists() else []
        for entry in entries[reported:]:
            if text := _event_text(entry, federation.config.rounds):
                say(text)
        reported = len(entries)
    if reason := stopped(federation):
        raise FedsacError(reason)
    say(as_table(status(federation)))


def _event_text(entry: Entry, rounds: int) -> str:
    """A ledger's entry as a line for the user; empty for kinds that are not reported."""
    body = entry["body"]
    kinds = {
        "joined": lambda: f"{body['site']} joined with {body['samples']} samples",
        "contribution": lambda: f"{body['site']}: contribution {body['validation']:.3f}",
        "round": lambda: f"round {body['round']} of {rounds}: {', '.join(body['answered'])} answered",
        "repeated": lambda: f"round {body['round']} is repeated: {len(body['answered'])} answer(s)",
        "refused": lambda: f"{body['site']} refused: {body['reason']}",
        "lost": lambda: f"{body['site']} did not answer: {body['reason']}",
        "resumed": lambda: f"going on after round {body['round']}",
        "left": lambda: f"{body['site']} is gone ({body['status']})",
        "readmitted": lambda: f"{body['site']} is asked again",
        "delivered": lambda: f"{body['site']} has its reward",
        "renewed": lambda: f"{body['site'] or 'the coordinator'} has a new key, {body['key']}",
    }
    return kinds[entry["kind"]]() if entry["kind"] in kinds else ""
