"""The only use of Flower's internal modules, which may change in any version. Tried with Flower 1.41.0.

Reports say how many bytes each site was sent, and the guard refuses replies that are too large. Flower splits a
message into objects (the message, its records, chunks of its arrays) and sends those; its public API has no function
that gives their sizes. `get_all_nested_objects` is what Flower itself calls before it sends.

A site talks to Flower's server as Flower's own node does (`FleetConnection`), because that node starts a new Python
process for each message and runs in it whatever app the server hands out. The coordinator's server and executor
(`hub.py`) are Flower's with two changes for which it has no setting: a credential on the control API, and no token on
the command line. If another version has moved something, this is the only file to change.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import httpx
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_id,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

BUNDLE = "bundle"  # the one record of a bundled content
HEARTBEAT_INTERVAL_SECONDS = 15.0
"""Flower takes a node for dead after two intervals without a heartbeat."""
PATIENCE_SECONDS = 60.0  # for the server to answer while a message is on its way
RETRY_SECONDS = 0.5


def message_bytes(message: Message) -> int:
    """Bytes of a message as Flower sends it: the sum over all objects it consists of."""
    return sum(len(part.deflate()) for part in get_all_nested_objects(message).values())


def bundled(content: RecordDict) -> RecordDict:
    """The same content as one record. Flower carries every record, array and chunk of an array in requests of their
    own, each with transactions of its database: for a perceptron's six arrays 66 requests, there and back."""
    return RecordDict({BUNDLE: ConfigRecord({"bytes": framed(content)})})


def unbundled(content: RecordDict) -> RecordDict:
    """The content that was bundled; any other is returned as it is."""
    if BUNDLE not in content:
        return content
    found = unframed(content.config_records[BUNDLE]["bytes"])
    if len(content) != 1 or not isinstance(found, RecordDict):
        raise ValueError("there is something else than a bundle")
    return found


def framed(message: Message | RecordDict) -> bytes:
    """All objects that a message (or content) consists of, one after the other, after a line with their lengths; the
    last one is the message itself."""
    objects = get_all_nested_objects(message)
    parts = [part.deflate() for id, part in objects.items() if id != message.object_id]
    parts.append(message.deflate())
    return json.dumps([len(part) for part in parts]).encode() + b"\n" + b"".join(parts)


def unframed(content: Any) -> Any:
    """What was framed. Objects are known by their hashes."""
    if not isinstance(content, bytes):
        raise ValueError("these are no bytes")
    head, _, body = content.partition(b"\n")
    parts, start, id = {}, 0, ""
    for length in json.loads(head):
        if type(length) is not int or length < 0:
            raise ValueError("a length is no length")
        part, start = body[start : start + length], start + length
        id = get_object_id(part)
        parts[id] = part
    if start != len(body):
        raise ValueError("the lengths do not add up")
    return inflated(id, parts)


def inflated(id: str, parts: dict[str, bytes]) -> Any:
    """The message (or content) with this id, from the objects it consists of."""
    found = inflate_object_from_contents(id, dict(parts))
    if isinstance(found, Message):
        found.metadata.__dict__["_message_id"] = id
    return found


class FleetConnection:
    """A node's requests to Flower's server. `key` is the private key that is registered there; without TLS (`ca` None)
    Flower takes none, and the node registers itself with a new one. Errors are httpx's."""

    def __init__(self, address: str, ca: bytes | None, key: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key
        from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
        from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
        from flwr.supernode.fleet_http_client import FleetHttpClient
        from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

        self._registers_itself = ca is None
        private = generate_key_pairs()[0] if ca is None else load_ssh_private_key(key, None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        public = private.public_key()
        self._public = public_key_to_bytes(public)
        signing: list[Any] = [RuntimeVersionHttpInterceptor("SuperNode"), NodeAuthHttpInterceptor(private, public)]
        self._client = FleetHttpClient.from_server_address(address, ca is None, ca, interceptors=signing)
        self._node = Node()

    def activate(self) -> int:
        """Tell the server that this node is there; returns its number."""
        if self._registers_itself and not self._node.node_id:
            self._client.RegisterNode(RegisterNodeFleetRequest(public_key=self._public))
        request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT_INTERVAL_SECONDS)
        self._node = Node(node_id=self._client.ActivateNode(request).node_id)
        return int(self._node.node_id)

    def deactivate(self, node: int) -> None:
        """Tell the server that this node has gone."""
        self._client.DeactivateNode(DeactivateNodeRequest(node_id=node))
        if self._registers_itself:
            self._client.UnregisterNode(UnregisterNodeFleetRequest(node_id=node))

    def heartbeat(self) -> bool:
        """Whether the server still knows this node."""
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT_INTERVAL_SECONDS)
        return bool(self._client.SendNodeHeartbeat(request).success)

    def receive(self) -> Message | None:
        """The next message, if there is one. The server gives it once."""
        response = self._client.PullMessages(PullMessagesRequest(node=self._node))
        if not response.messages_list:
            return None
        run, tree = response.messages_list[0].metadata.run_id, response.message_object_trees[0]
        parts = {}
        for part in iterate_object_tree(tree):
            parts[part.object_id] = self._part(run, part.object_id)
        return cast(Message, inflated(tree.object_id, parts))

    def _part(self, run: int, id: str) -> bytes:
        """One object of a message. The coordinator may not have uploaded it yet."""
        request, end = PullObjectRequest(node=self._node, run_id=run, object_id=id), time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            response = self._patiently(self._client.PullObject, request)
            if not response.object_found:
                break
            if response.object_available:
                return bytes(response.object_content)
            time.sleep(RETRY_SECONDS)
        raise LookupError("a message was announced, and is not there")

    def _patiently(self, call: Callable[[Any], Any], request: Any) -> Any:
        """A request that is made again while the server is down, restarts, or finds its database locked."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return call(request)
            except httpx.HTTPError as error:
                lasting = isinstance(error, httpx.HTTPStatusError) and error.response.status_code < 500
                if lasting or time.monotonic() > end:
                    raise
            time.sleep(RETRY_SECONDS)

    def confirm(self, message: Message) -> None:
        """Tell the server that a message has arrived whole."""
        id, run = message.metadata.message_id, message.metadata.run_id
        request = ConfirmMessageReceivedRequest(node=self._node, run_id=run, message_object_id=id)
        self._patiently(self._client.ConfirmMessageReceived, request)

    def send(self, reply: Message, seconds: float, *, again: bool = False) -> None:
        """Send a reply; `seconds` is how long it took to compute. `again`: a process that was killed may have announced
        it. The server then waits for what was not uploaded, names none of it, and takes parts without a session."""
        from flwr.app.message import remove_content_from_message
        from flwr.common.serde import message_to_proto

        reply.metadata.__dict__["_message_id"] = reply.object_id
        request = PushMessagesRequest(
            node=self._node,
            messages_list=[message_to_proto(remove_content_from_message(reply) if reply.has_content() else reply)],
            message_object_trees=[get_object_tree(reply)],
            clientapp_runtime_list=[seconds],
        )
        response = self._patiently(self._client.PushMessages, request)
        parts, run = get_all_nested_objects(reply), reply.metadata.run_id
        for id in parts if again else response.objects_to_push:
            part = PushObjectRequest(
                node=self._node,
                run_id=run,
                object_id=id,
                object_content=parts[id].deflate(),
                session_id=response.session_id if id in response.objects_to_push else "",
            )
            self._patiently(self._client.PushObject, part)

    def close(self) -> None:
        self._client.close()


def run_superlink(arguments: list[str], is_secret: Callable[[str], bool]) -> None:
    """Run Flower's server; whoever uses its control API must show a bearer token for which `is_secret` is True."""
    from importlib import import_module

    from flwr.common.constant import ACCESS_TOKEN_KEY
    from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin

    class SecretRequired(NoOpControlAuthnPlugin):  # type: ignore[misc, unused-ignore]
        def validate_tokens_in_metadata(self, metadata: Any) -> Any:
            given = dict(metadata).get(ACCESS_TOKEN_KEY, "")
            return super().validate_tokens_in_metadata(metadata) if is_secret(str(given)) else (False, None)

    program: Any = import_module("flwr.superlink.cli.flower_superlink")  # in its package, the name is the function's
    program.load_control_authn_plugin = SecretRequired
    sys.argv = ["flower-superlink", *arguments]
    program.flower_superlink()


def run_executor(address: str, ca: str | None, secret: bytes, start: Callable[[list[str], str], None]) -> None:
    """Run Flower's executor of submitted runs; `start` starts a ServerApp with these options and this token."""
    from flwr.supercore.constant import TaskType
    from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
    from flwr.supercore.superexec.executor.types import LaunchResult
    from flwr.supercore.superexec.run_superexec import run_superexec

    def launch(self: Any, spec: Any) -> Any:
        if spec.task_type == TaskType.SERVER_APP:
            trust = ["--insecure"] if ca is None else ["--root-certificates", ca]
            start(["--runtime-api-address", spec.runtime_api_address, *trust], spec.token)
        return LaunchResult.accepted()

    SubprocessExecutor.launch = launch  # type: ignore[method-assign]
    run_superexec(address, ca is None, ca, secret, parent_pid=os.getppid())


def store_credential(path: Path, address: str, secret: str) -> None:
    """Write the secret to where the flwr command looks for its bearer token for the server at this address."""
    from flwr.cli.constant import ACCESS_TOKEN_STORE_KEY, AUTHN_TYPE_STORE_KEY, REFRESH_TOKEN_STORE_KEY
    from flwr.common.constant import AuthnType
    from flwr.supercore.credential_store.file_credential_store import FileCredentialStore

    store = FileCredentialStore(path)
    store.set(AUTHN_TYPE_STORE_KEY % address, AuthnType.OIDC.encode())
    store.set(ACCESS_TOKEN_STORE_KEY % address, secret.encode())
    store.set(REFRESH_TOKEN_STORE_KEY % address, b"none")
