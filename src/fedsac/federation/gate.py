"""The door that sites knock at: it lets through what nodes say to Flower's server, and nothing else.

Flower serves three interfaces on one port: the one for nodes, where every request carries a node's signature; the
control API, which anybody may use to submit code; and that of its own processes. Its server therefore listens on
loopback alone, and this gate, with the federation's certificate, forwards requests for the first.
"""

import re
import ssl
import threading
from pathlib import Path
from typing import Any

from fedsac.errors import FedsacError

FLEET = re.compile(r"/v1/fleet/[a-z-]+")
DROPPED = (b"host", b"connection", b"transfer-encoding", b"content-length")
START_SECONDS = 30.0


class Gate:
    """An ASGI application that forwards to a server on loopback; `ca` is whom to trust, None where there is no TLS.
    `limit` is how many megabytes a message may have."""

    def __init__(self, host: str, port: int, ca: Path | None, limit: float) -> None:
        import httpx

        tls: dict[str, Any] = {} if ca is None else {"verify": ssl.create_default_context(cafile=str(ca))}
        upstream = f"{'http' if ca is None else 'https'}://{host}:{port}"
        self._client = httpx.AsyncClient(base_url=upstream, timeout=300, trust_env=False, **tls)
        self._limit = int(limit * 1e6)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] != "POST" or not FLEET.fullmatch(scope["path"]):
            await _answer(send, 404, b"only nodes are served here")
            return
        body = await self._body(receive)
        if body is None:
            await _answer(send, 413, b"too large")
            return
        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in DROPPED]
        import httpx

        try:
            found = await self._client.post(scope["path"], content=body, headers=headers)
        except httpx.HTTPError:
            await _answer(send, 502, b"the server behind the gate does not answer")
            return
        kept = [(n, v) for n, v in found.headers.raw if n.lower() not in (*DROPPED, b"content-encoding")]
        await _answer(send, found.status_code, found.content, kept)

    async def _body(self, receive: Any) -> bytes | None:
        """The request's body, or None where it is larger than any message may be."""
        parts, size = [], 0
        while True:
            event = await receive()
            parts.append(event.get("body", b""))
            size += len(parts[-1])
            if size > self._limit:
                return None
            if not event.get("more_body", False):
                return b"".join(parts)


async def _answer(send: Any, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    length = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": (headers or []) + length})
    await send({"type": "http.response.body", "body": body})


def open_gate(gate: Gate, host: str, port: int, certificate: Path | None, key: Path | None) -> Any:
    """Serve the gate from a thread of its own; returns uvicorn's server. Without a certificate: no TLS."""
    import uvicorn

    tls: dict[str, Any] = {} if certificate is None else {"ssl_certfile": certificate, "ssl_keyfile": key}
    settings = uvicorn.Config(
        gate, host=host, port=port, log_level="error", lifespan="off", access_log=False, server_header=False, **tls
    )
    server = uvicorn.Server(settings)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined, unused-ignore]
    thread = threading.Thread(target=_serve, args=(server,), daemon=True)
    thread.start()
    waiting = threading.Event()
    for _ in range(int(START_SECONDS * 10)):
        if server.started:
            return server
        if not thread.is_alive():
            break
        waiting.wait(0.1)
    raise FedsacError(f"cannot listen on {host}:{port}; is another server at work there?")


def _serve(server: Any) -> None:
    try:
        server.run()
    except SystemExit:  # uvicorn's way of saying that it cannot listen; the caller sees that it has not started
        return
