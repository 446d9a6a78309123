"""The registry of conformance checks, and the systems that they run against."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import httpx2

from harness.a2a.bridged_mesh import open_bridged_mesh
from harness.a2a.grpc_client import GrpcMesh, open_bridge_grpc
from harness.a2a.protocol_variants import (
    GrpcVariant,
    JsonRpcVariant,
    ProtocolVariant,
    RefusedError,
    RestVariant,
)
from harness.agents.conformance_agent import ConformanceAgent
from harness.remote.token_issuer import SigningKey, key_set, token_settings
from harness.remote.webhook_receiver import WebhookReceiver, open_receiver
from trunkline.settings import Settings
from trunkline_bridge.a2a.webhooks.signatures import generate_secret
from trunkline_bridge.callers.api_keys import ApiKey, hash_key, save_keys

Json: TypeAlias = dict[str, Any]
Scope: TypeAlias = Literal["binding", "system", "client"]

PATIENCE_S = 60.0
WEBHOOK_SECRET = generate_secret()
ALL, NONE = "all", "none"
BINDINGS: Final[Mapping[str, type[ProtocolVariant]]] = {
    "jsonrpc": JsonRpcVariant,
    "rest": RestVariant,
    "grpc": GrpcVariant,
}
MISSING = "00000000-0000-0000-0000-000000000000"
# The refusals of operations whose capability the card does not declare.
_REFUSALS = {
    "streaming": ("stream", "UNSUPPORTED_OPERATION"),
    "pushNotifications": ("set_push", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    "extendedAgentCard": ("extended_card", "UNSUPPORTED_OPERATION"),
}
_KEYS = {"ann": "key-of-ann", "bob": "key-of-bob", "eve": "key-of-eve"}
# Eve may use no method of the agent.
_LIMITED = {"eve": ("another-agent",)}


@dataclass(frozen=True, slots=True)
class System:
    """A bridge with every capability declared and authenticated callers, or with neither."""

    mode: str
    mesh: GrpcMesh
    agent: ConformanceAgent
    receiver: WebhookReceiver
    issuer: SigningKey

    @property
    def has_all(self) -> bool:
        """True if every capability is declared."""
        return self.mode == ALL

    @property
    def headers(self) -> Mapping[str, str]:
        """The credentials of Ann; none if callers are anonymous."""
        return self.headers_of("ann") if self.has_all else {}

    @property
    def client(self) -> httpx2.AsyncClient:
        """The HTTP client."""
        return self.mesh.bridged.client

    def headers_of(self, name: str) -> Mapping[str, str]:
        """Return the credentials of a caller; callers are in different accounts."""
        return {"X-API-Key": _KEYS[name]}

    def token_for_another_mesh(self) -> Mapping[str, str]:
        """Return a valid token of the issuer that is not for this mesh."""
        return {"Authorization": f"Bearer {self.issuer.token({'aud': 'another'})}"}

    async def post(self, body: object, **headers: str) -> httpx2.Response:
        """Post a JSON-RPC body, or raw bytes, with Ann's credentials."""
        fields = {
            "Content-Type": "application/json",
            "A2A-Version": "1.0",
            **self.headers,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.post(f"{self.mesh.bridged.url}/", content=content, headers=fields)

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        """Get a path with Ann's credentials."""
        fields = {"A2A-Version": "1.0", **self.headers, **headers}
        return await self.client.get(self.mesh.bridged.url + path, headers=fields)

    async def card(self) -> Json:
        """Return the public card."""
        response = await self.client.get(f"{self.mesh.bridged.url}/.well-known/agent-card.json")
        assert response.status_code == 200
        card: Json = response.json()
        return card


Check: TypeAlias = Callable[[System, ProtocolVariant], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Registered:
    """The test of some checks."""

    ids: Sequence[str]
    run: Check
    needs: str
    """The capability that its operation needs."""
    scope: Scope
    version: str


REGISTERED: list[Registered] = []
OPEN: Final[Mapping[str, str]] = {}
"""The checks that do not hold yet, with the reason."""


def check(
    *ids: str, needs: str = "", scope: Scope = "binding", version: str = "1.0"
) -> Callable[[Check], Check]:
    """Register a function as the test of some checks.

    It runs over each binding of each system, once for each system, or for our client just once.
    """

    def register(function: Check) -> Check:
        REGISTERED.append(Registered(ids, function, needs, scope, version))
        return function

    return register


async def check_refused_without(needs: str, wire: ProtocolVariant) -> None:
    """Check that an operation is refused if the card does not declare its capability."""
    operation, reason = _REFUSALS[needs]
    fields: Json = {"text": "tck-stream-basic"} if operation == "stream" else {}
    if operation == "set_push":
        task = await completed_task(wire)
        fields = {"task": task["id"], "config": "c", "url": "https://example.com/hook"}
    assert await refusal(wire, operation, **fields) == reason


async def refusal(wire: ProtocolVariant, operation: str, **fields: Any) -> str:
    """Return the reason of an error; the operation must fail."""
    return (await refused(wire, operation, **fields)).reason


async def refused(wire: ProtocolVariant, operation: str, **fields: Any) -> RefusedError:
    """Return the error of an operation, which must fail."""
    return await wire.refusal(operation, **fields)


async def send(wire: ProtocolVariant, text: str, **fields: Any) -> Json:
    """Send a message and return the task."""
    answer: Json = await wire.ask("send", text=text, **fields)
    task: Json = answer.get("task", answer)
    return task


async def completed_task(wire: ProtocolVariant, **fields: Any) -> Json:
    """Return a completed task."""
    task = await send(wire, "tck-complete-task now", **fields)
    assert state(task) == "completed"
    return task


async def started_task(wire: ProtocolVariant, text: str = "tck-long-running now") -> Json:
    """Start a task without waiting for its end."""
    task = await send(wire, text, now=True)
    assert state(task) in ("submitted", "working")
    return task


async def poll(wire: ProtocolVariant, task_id: str, expected: str) -> Json:
    """Get a task until it is in a state."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            task: Json = await wire.ask("get", task=task_id)
            if state(task) == expected:
                return task


def state(task: Json) -> str:
    """Return the state of a task, in lower case with hyphens, as in v0.3."""
    name = str(task["status"]["state"]).removeprefix("TASK_STATE_")
    return name.lower().replace("_", "-").replace("cancelled", "canceled")


def parts(task: Json) -> list[Json]:
    """Return the parts of a task's artifacts."""
    return [part for artifact in task["artifacts"] for part in artifact["parts"]]


def texts(messages: list[Json]) -> list[str]:
    """Return the text of each message."""
    return ["".join(part.get("text", "") for part in message["parts"]) for message in messages]


@asynccontextmanager
async def open_system(folder: Path, mode: str) -> AsyncIterator[System]:
    """Open a mesh with the conformance agent and a bridge."""
    issuer = SigningKey("issuer")
    (folder / "jwks.json").write_bytes(key_set(issuer))
    keys = [
        ApiKey(name, f"account-of-{name}", hash_key(key), agents=_LIMITED.get(name, ()))
        for name, key in _KEYS.items()
    ]
    save_keys(folder / "keys.toml", keys)
    if mode == ALL:
        settings = Settings(
            default_agent="conformance",
            allow_webhook=("127.0.0.1",),
            webhook_secret=WEBHOOK_SECRET,
            api_keys_file=folder / "keys.toml",
            **token_settings(folder / "jwks.json"),
            # The checks send many wrong ones.
            failed_credentials_per_minute=0,
        )
    else:
        settings = Settings(default_agent="conformance", streaming=False, push_notifications=False)
    agent = ConformanceAgent()
    async with open_bridged_mesh(folder, settings) as bridged:
        await bridged.mesh.join(agent.agent())
        async with open_bridge_grpc(bridged) as mesh, open_receiver() as receiver:
            yield System(mode, mesh, agent, receiver, issuer)
