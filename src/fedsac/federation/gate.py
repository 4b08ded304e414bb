"""The gate: a reverse proxy before Flower's server that forwards the requests of nodes (sites) and nothing else.

Flower serves three interfaces on one port: the fleet API for nodes, where every request carries a node's signature; the
control API, which anybody may use to submit code; and that of its own processes. Its server therefore listens on
loopback alone, and this gate, with the federation's certificate, forwards requests to the fleet API.
"""

import re
import ssl
import threading
from pathlib import Path
from typing import Any

from fedsac.errors import FedsacError

FLEET_PATH = re.compile(r"/v1/fleet/[a-z-]+")
DROPPED_HEADERS = (b"host", b"connection", b"transfer-encoding", b"content-length")
START_TIMEOUT_SECONDS = 30.0
UPSTREAM_TIMEOUT_SECONDS = 300


class Gate:
    """An ASGI application that forwards requests to `host`:`port`. `ca` is the certificate authority of the server
    there, None without TLS; larger requests than `max_bytes` are refused."""

    def __init__(self, host: str, port: int, ca: Path | None, max_bytes: int) -> None:
        import httpx

        tls: dict[str, Any] = {} if ca is None else {"verify": ssl.create_default_context(cafile=str(ca))}
        upstream = f"{'http' if ca is None else 'https'}://{host}:{port}"
        self._client = httpx.AsyncClient(base_url=upstream, timeout=UPSTREAM_TIMEOUT_SECONDS, trust_env=False, **tls)
        self._max_bytes = max_bytes

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] != "POST" or not FLEET_PATH.fullmatch(scope["path"]):
            await _answer(send, 404, b"only nodes are served here")
            return
        body = await self._body(receive)
        if body is None:
            await _answer(send, 413, b"too large")
            return
        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in DROPPED_HEADERS]
        import httpx

        try:
            response = await self._client.post(scope["path"], content=body, headers=headers)
        except httpx.HTTPError:
            await _answer(send, 502, b"the server behind the gate does not answer")
            return
        kept = [(n, v) for n, v in response.headers.raw if n.lower() not in (*DROPPED_HEADERS, b"content-encoding")]
        await _answer(send, response.status_code, response.content, kept)

    async def _body(self, receive: Any) -> bytes | None:
        """The request's body, or None if it has more than `max_bytes`."""
        parts, size = [], 0
        while True:
            event = await receive()
            parts.append(event.get("body", b""))
            size += len(parts[-1])
            if size > self._max_bytes:
                return None
            if not event.get("more_body", False):
                return b"".join(parts)


async def _answer(send: Any, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    length = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": (headers or []) + length})
    await send({"type": "http.response.body", "body": body})


def serve_gate(gate: Gate, host: str, port: int, certificate: Path | None, key: Path | None) -> Any:
    """Serve the gate from a thread of its own, with TLS if a certificate is given; returns uvicorn's server."""
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
    for _ in range(int(START_TIMEOUT_SECONDS * 10)):
        if server.started:
            return server
        if not thread.is_alive():
            break
        waiting.wait(0.1)
    raise FedsacError(f"cannot listen on {host}:{port}; is another server at work there?")


def _serve(server: Any) -> None:
    try:
        server.run()
    except SystemExit:  # uvicorn raises this if it cannot listen; the caller sees that it has not started
        return
