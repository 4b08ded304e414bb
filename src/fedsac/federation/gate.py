"""The gate: a reverse proxy before Flower's server that forwards the requests of nodes (sites) and nothing else.

Flower serves three interfaces on one port: the fleet API for nodes, where every request carries a node's signature; the
control API, which anybody may use to submit code; and that of its own processes. Its server therefore listens on
loopback alone, and this gate, with the federation's certificate, forwards requests to the fleet API.

Flower reads a request whole before it looks at the signature. The gate looks first, at the headers: what is not signed
by one of the sites is answered, and its body never read. Bodies pass through in pieces, and wait while those under way
would be more than `Budget` allows, in all and for one site.
"""

import asyncio
import re
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fedsac.errors import FedsacError
from fedsac.federation.callers import Callers, UnknownCallerError

FLEET_PATH = re.compile(r"/v1/fleet/[a-z-]+")
DROPPED_HEADERS = (b"host", b"connection", b"transfer-encoding", b"content-length")
START_TIMEOUT_SECONDS = 30.0
UPSTREAM_TIMEOUT_SECONDS = 300
STALL_SECONDS = 60.0  # between two pieces of a body; a host that lost its power would else keep its budget for ever
WHOLE_BODIES = 2  # of the largest size that are under way at once, in all; one of each site


class Budget:
    """The bytes of bodies under way: at most `total`, and `each` of one caller. Others wait; their bodies stay where
    they are, since the network's flow control does not let them send what nobody reads."""

    def __init__(self, total: int, each: int) -> None:
        self._total, self._each = total, each
        self.held: dict[str, int] = {}
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def hold(self, caller: str, size: int) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: self._fits(caller, size))
            self.held[caller] = self.held.get(caller, 0) + size
        try:
            yield
        finally:
            async with self._changed:
                self.held[caller] -= size
                if not self.held[caller]:
                    del self.held[caller]
                self._changed.notify_all()

    def _fits(self, caller: str, size: int) -> bool:
        return sum(self.held.values()) + size <= self._total and self.held.get(caller, 0) + size <= self._each


class Gate:
    """An ASGI application that forwards requests to `host`:`port`. `ca` is the certificate authority of the server
    there, None without TLS; larger requests than `max_bytes` are refused. `callers` tells whose request it is; None
    without TLS, where Flower takes no keys."""

    def __init__(self, host: str, port: int, ca: Path | None, max_bytes: int, callers: Callers | None = None) -> None:
        import httpx

        tls: dict[str, Any] = {} if ca is None else {"verify": ssl.create_default_context(cafile=str(ca))}
        upstream = f"{'http' if ca is None else 'https'}://{host}:{port}"
        self._client = httpx.AsyncClient(base_url=upstream, timeout=UPSTREAM_TIMEOUT_SECONDS, trust_env=False, **tls)
        self._max_bytes, self._callers = max_bytes, callers
        self.budget = Budget(WHOLE_BODIES * max_bytes, max_bytes)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] != "POST" or not FLEET_PATH.fullmatch(scope["path"]):
            await _refuse(send, 404, b"only nodes are served here")
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        try:
            caller = "" if self._callers is None else self._callers.of(headers)
        except UnknownCallerError as error:
            await _refuse(send, 401, str(error).encode())
            return
        length = headers.get(b"content-length", b"")
        if not length.isdigit():
            await _refuse(send, 411, b"the length is missing")
        elif int(length) > self._max_bytes:
            await _refuse(send, 413, b"too large")
        else:
            async with self.budget.hold(caller, int(length)):
                await self._forward(scope, receive, send, int(length))

    async def _forward(self, scope: dict[str, Any], receive: Any, send: Any, length: int) -> None:
        import httpx

        kept = [(name, value) for name, value in scope["headers"] if name.lower() not in DROPPED_HEADERS]
        kept.append((b"content-length", str(length).encode()))
        request = self._client.build_request("POST", scope["path"], content=_body(receive), headers=kept)
        try:
            response = await self._client.send(request, stream=True)
        except (httpx.HTTPError, ConnectionError):
            await _refuse(send, 502, b"the server behind the gate does not answer")
            return
        try:
            back = [(n, v) for n, v in response.headers.raw if n.lower() not in (b"connection", b"transfer-encoding")]
            await send({"type": "http.response.start", "status": response.status_code, "headers": back})
            async for piece in response.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await response.aclose()


async def _body(receive: Any) -> AsyncIterator[bytes]:
    """The body of a request, in the pieces that it comes in."""
    while True:
        try:
            event = await asyncio.wait_for(receive(), STALL_SECONDS)
        except TimeoutError:
            raise ConnectionError("nothing comes from the caller any more") from None
        if event["type"] == "http.disconnect":
            raise ConnectionError("the caller has gone")
        yield event.get("body", b"")
        if not event.get("more_body", False):
            return


async def _refuse(send: Any, status: int, body: bytes) -> None:
    """Answer, and close the connection: whatever else the caller wanted to send is not read."""
    headers = [(b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def serve_gate(gate: Gate, host: str, port: int, certificate: Path | None, key: Path | None) -> Any:
    """Serve the gate from a thread of its own, with TLS if a certificate is given; returns uvicorn's server."""
    import uvicorn

    tls: dict[str, Any] = {} if certificate is None else {"ssl_certfile": certificate, "ssl_keyfile": key}
    settings = uvicorn.Config(
        gate,
        host=host,
        port=port,
        http="h11",  # which bounds the headers; httptools does not
        ws="none",
        log_level="error",
        lifespan="off",
        access_log=False,
        server_header=False,
        **tls,
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
    raise FedsacError(
        f"cannot listen on {host}:{port}; is another server at work there? Else is it an address of this host?"
    )


def _serve(server: Any) -> None:
    try:
        server.run()
    except SystemExit:  # uvicorn raises this if it cannot listen; the caller sees that it has not started
        return
