"""The gate reads nothing of who is not a site: real uploads over TLS, and the bytes that are under way."""

import asyncio
import base64
import re
import socket
import ssl
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedsac.federation.callers import Callers, UnknownCallerError
from fedsac.federation.folder import Federation
from fedsac.federation.gate import Budget, Gate, serve_gate
from fedsac.federation.identity import new_key, sign
from fedsac.federation.setup import init, remove

MAX_BYTES = 2_000_000
ANNOUNCED, UPLOADED = 400_000_000, 150_000_000
PIECE = b"x" * 65536
GROWTH = 60_000_000  # of the gate's memory: buffers of sockets and of TLS
ALONE = """
import sys
from pathlib import Path
from fedsac.federation.callers import Callers
from fedsac.federation.folder import Federation
from fedsac.federation.gate import Gate, serve_gate
folder, port = Path(sys.argv[1]), int(sys.argv[2])
server = folder / "server"
gate = Gate("127.0.0.1", 1, server / "ca.pem", 512_000_000, Callers(Federation.load(folder)))
serve_gate(gate, "127.0.0.1", port, server / "server.pem", server / "server.key")
print("ready", flush=True)
sys.stdin.read()
"""


def free_port():
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        return there.getsockname()[1]


class Upstream(BaseHTTPRequestHandler):
    """Stands where Flower's server is: says how much it was sent."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        said = f"{len(body)} {self.headers['flwr-timestamp']}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate") / "fed"
    init(folder, ["a", "b", "gone"], "127.0.0.1:9092")
    remove(folder, "gone", revoked=True)
    server = folder / "server"
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(server / "server.pem", server / "server.key")
    upstream.socket = tls.wrap_socket(upstream.socket, server_side=True)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    gate = Gate("127.0.0.1", upstream.server_port, server / "ca.pem", MAX_BYTES, Callers(Federation.load(folder)))
    port = free_port()
    running = serve_gate(gate, "127.0.0.1", port, server / "server.pem", server / "server.key")
    yield folder, port, gate
    running.should_exit = True
    upstream.shutdown()
    upstream.server_close()


def headers(folder, name, *, key=None, when=None, signature=None):
    """The headers of Flower's nodes."""
    from cryptography.hazmat.primitives import serialization as s

    public = s.load_ssh_public_key((folder / name / "key.pub").read_bytes() if key is None else key[1])
    pem = public.public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    stamp = (when or datetime.now(UTC)).isoformat()
    private = (folder / name / "key").read_bytes() if key is None else key[0]
    return {
        "flwr-timestamp": stamp,
        "flwr-public-key": base64.b64encode(pem).decode(),
        "flwr-signature": signature or sign(private, stamp.encode()),
    }


def upload(folder, port, size, more=None, announced=None, path="/v1/fleet/push-object"):
    """Send a body of `size` bytes, until the other end has enough of it: how much went out, and the answer."""
    context = ssl.create_default_context(cafile=str(folder / "server" / "ca.pem"))
    lines = [f"POST {path} HTTP/1.1", "host: 127.0.0.1", *(f"{k}: {v}" for k, v in (more or {}).items())]
    lines += [f"content-length: {size if announced is None else announced}"] if announced != "" else []
    sent, answer = 0, b""
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1") as there:
        there.settimeout(30)
        there.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        try:
            while sent < size:
                piece = PIECE[: size - sent]
                there.sendall(piece)
                sent += len(piece)
        except OSError:
            pass
        try:
            while b"\r\n\r\n" not in answer and (piece := there.recv(65536)):
                answer += piece
            if answer.startswith(b"HTTP/1.1 200"):
                answer += there.recv(65536)
        except OSError:
            pass
    return sent, answer


def peak(process):
    """The most memory that a process has had, in bytes."""
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1])


@pytest.mark.skipif(sys.platform != "linux", reason="reads memory from /proc")
def test_uploads_of_strangers_cost_no_memory(served):
    """Five at once of 400 MB each, by nobody, by somebody's key, by a key that was revoked, and too large ones of a
    site; before, they were held in memory until they were whole."""
    folder, port = served[0], free_port()
    command = [sys.executable, "-c", ALONE, str(folder), str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as gate:
        assert gate.stdout.readline() == "ready\n"
        upload(folder, port, 100)
        before = peak(gate)
        stranger = headers(folder, "a", key=new_key())
        for more in ({}, stranger, headers(folder, "gone"), headers(folder, "a", signature="AAAA")):
            with ThreadPoolExecutor(5) as pool:
                answers = [pool.submit(upload, folder, port, UPLOADED, more, ANNOUNCED) for _ in range(5)]
            # A reset may overtake the answer.
            assert {answer.result()[1][:12] for answer in answers} <= {b"", b"HTTP/1.1 401"}
        assert peak(gate) - before < GROWTH
        gate.stdin.close()


@pytest.mark.parametrize("size", [0, 10])
def test_a_stranger_is_told_why(served, size):
    folder, port, _ = served
    assert b"401" in upload(folder, port, size)[1].split(b"\r\n")[0]
    assert b"404" in upload(folder, port, size, path="/v1/control/start-run")[1].split(b"\r\n")[0]


def test_a_site_is_let_through_byte_for_byte(served):
    folder, port, _ = served
    for _ in range(3):  # three of the largest size, and all of a site's budget each time
        more = headers(folder, "a")
        sent, answer = upload(folder, port, MAX_BYTES, more)
        assert sent == MAX_BYTES
        assert answer.endswith(f"{MAX_BYTES} {more['flwr-timestamp']}".encode())


def test_a_site_cannot_send_too_much_or_without_end(served):
    folder, port, _ = served
    assert b" 413 " in upload(folder, port, 0, headers(folder, "a"), announced=MAX_BYTES + 1)[1]
    assert b" 411 " in upload(folder, port, 0, headers(folder, "a"), announced="")[1]


def test_a_body_that_stops_coming_gives_its_budget_back(served, monkeypatch):
    """As of a host that lost its power in the middle of an upload: else two of them would keep everybody waiting."""
    folder, port, _ = served
    monkeypatch.setattr("fedsac.federation.gate.STALL_SECONDS", 0.5)
    assert b" 502 " in upload(folder, port, 10, headers(folder, "a"), announced=MAX_BYTES)[1]
    more = headers(folder, "a")  # all of the site's budget, once more
    assert upload(folder, port, MAX_BYTES, more)[1].endswith(f"{MAX_BYTES} {more['flwr-timestamp']}".encode())


def test_headers_have_a_bound(served):
    folder, port, _ = served
    assert not upload(folder, port, 0, {"x-large": "y" * 1_000_000})[1].startswith(b"HTTP/1.1 2")


def test_who_is_who(served):
    folder = served[0]
    callers = Callers(Federation.load(folder))

    def of(more):
        return callers.of({name.encode(): value.encode() for name, value in more.items()})

    assert of(headers(folder, "a")) == "a" and of(headers(folder, "b")) == "b"
    now = datetime.now(UTC)
    assert of(headers(folder, "a", when=now - timedelta(seconds=290))) == "a"
    for refused, text in [
        ({}, "not signed"),
        (headers(folder, "a", key=new_key()), "no site"),
        (headers(folder, "gone"), "no site"),
        (headers(folder, "a", signature=headers(folder, "b")["flwr-signature"]), "not the key's"),
        (headers(folder, "a", signature="AAAA"), "not the key's"),
        (headers(folder, "a", when=now + timedelta(seconds=30)), "clock"),
        (headers(folder, "a", when=now - timedelta(seconds=400)), "clock"),
        (headers(folder, "a") | {"flwr-timestamp": "yesterday"}, "not signed"),
        (headers(folder, "a") | {"flwr-timestamp": "2026-01-01T00:00:00"}, "not signed"),
    ]:
        with pytest.raises(UnknownCallerError, match=text):
            of(refused)


def test_a_key_that_is_revoked_is_unknown_at_once(tmp_path):
    init(tmp_path / "fed", ["a", "b"], "127.0.0.1:9092")
    callers = Callers(Federation.load(tmp_path / "fed"))
    more = {name.encode(): value.encode() for name, value in headers(tmp_path / "fed", "a").items()}
    assert callers.of(more) == "a"
    remove(tmp_path / "fed", "a", revoked=True)
    with pytest.raises(UnknownCallerError):
        callers.of(more)


def test_what_is_under_way_is_bounded_in_all_and_for_each():
    async def play():
        budget, log, most = Budget(100, 60), [], [0, 0]

        async def upload(caller, size):
            async with budget.hold(caller, size):
                log.append((caller, size))
                most[0] = max(most[0], sum(budget.held.values()))
                most[1] = max(most[1], max(budget.held.values()))
                await asyncio.sleep(0)

        await asyncio.gather(*(upload(caller, size) for caller in "abc" for size in (60, 30, 30, 10, 60)))
        return budget, log, most

    budget, log, most = asyncio.run(play())
    assert len(log) == 15 and budget.held == {}
    assert most[0] <= 100 and most[1] <= 60


def test_the_gate_on_ipv6(tmp_path):
    import httpx

    init(tmp_path / "fed", ["a", "b"], "[::1]:9092")
    server, port = tmp_path / "fed" / "server", free_port()
    gate = Gate("127.0.0.1", 1, server / "ca.pem", MAX_BYTES, Callers(Federation.load(tmp_path / "fed")))
    running = serve_gate(gate, "::1", port, server / "server.pem", server / "server.key")
    trust = ssl.create_default_context(cafile=str(server / "ca.pem"))
    url = f"https://[::1]:{port}/v1/fleet/pull-messages"
    assert httpx.post(url, content=b"", verify=trust, trust_env=False).status_code == 401
    more = headers(tmp_path / "fed", "a")
    assert httpx.post(url, content=b"", headers=more, verify=trust, trust_env=False).status_code == 502
    running.should_exit = True
