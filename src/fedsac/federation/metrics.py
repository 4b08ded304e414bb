"""How a federation stands, for Prometheus: a page on the coordinator's loopback, made from the ledger."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fedsac.errors import FedsacError
from fedsac.federation.folder import Federation
from fedsac.federation.identity import expiry
from fedsac.federation.requesting import is_requested, stopped
from fedsac.federation.watch import status

SITE_NUMBERS = {  # by key in a site's status: type and help
    "answered": ("counter", "Rounds that a site has answered"),
    "refused": ("counter", "Replies of a site that were refused"),
    "lost": ("counter", "Orders that a site did not answer"),
    "aside": ("gauge", "1: the site is asked no more"),
    "contribution": ("gauge", "Score of the model that a site trained alone"),
    "reward": ("gauge", "Score of the model that a site has earned"),
    "delivered": ("gauge", "1: the site has its reward"),
}


def exposition(federation: Federation) -> str:
    """The status in Prometheus' text format."""
    state = status(federation)
    run: dict[str, tuple[str, str, float]] = {
        "round": ("gauge", "Rounds that are done", state["round"]),
        "rounds": ("gauge", "Rounds that the run has", state["rounds"]),
        "over": ("gauge", "1: all rounds are done", state["state"] == "over"),
        "requested": ("gauge", "1: a run was asked for", is_requested(federation)),
        "failed": ("gauge", "1: the last run ended before it was over", bool(stopped(federation))),
        "ledger_lines": ("counter", "Lines of the ledger", state["ledger"]["lines"]),
    }
    if not federation.insecure:
        ends = expiry((federation.server / "server.pem").read_bytes()).timestamp()
        run["certificate_ends"] = ("gauge", "When the server's certificate ends, in seconds since 1970", ends)
    lines = []
    for name, (kind, text, value) in run.items():
        lines += [*_head(name, kind, text), f"fedsac_{name} {_number(value)}"]
    for key, (kind, text) in SITE_NUMBERS.items():
        lines += _head(f"site_{key}", kind, text)
        for site, own in state["sites"].items():  # names are letters, digits, dots and dashes: nothing to escape
            if own[key] is not None:
                lines.append(f'fedsac_site_{key}{{site="{site}"}} {_number(own[key])}')
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP fedsac_{name} {text}", f"# TYPE fedsac_{name} {kind}"]


def _number(value: float) -> str:
    return repr(float(value)) if isinstance(value, float) else str(int(value))


def serve_metrics(federation: Federation, port: int, host: str = "127.0.0.1") -> Callable[[], None]:
    """Serve the page at /metrics from a thread of its own; returns a function that ends it."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404)
                return
            try:
                body = exposition(federation).encode()
            except FedsacError as error:
                self.send_error(500, " ".join(str(error).split())[:200])
                return
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing: this page is asked for every few seconds."""

    try:
        server = ThreadingHTTPServer((host, port), Page)
    except OSError as error:
        raise FedsacError(
            f"metrics_port {port} on {host}: cannot listen ({error.strerror}); write another in federation.toml"
        ) from None
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def end() -> None:
        server.shutdown()
        server.server_close()

    return end
