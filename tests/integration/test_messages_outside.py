"""Messages for callers outside: over HTTP, server-sent events and WebSockets."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from harness.a2a.bridged_mesh import BridgedMesh, Stream, open_bridged_mesh
from harness.mesh.messaging import join_messages
from trunkline import (
    EvaluationRequest,
    EvaluationResult,
    MeshMessage,
    TaskContext,
    agent,
)
from trunkline.audit import AuditLog
from trunkline_bridge.edge import api_keys
from trunkline_bridge.edge.api_keys import ApiKey, hash_key, save_keys
from trunkline_bridge.settings import BridgeSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
ANN, BOB, READER, MATH_ONLY = ("ann", "bob", "reader", "math-only")


@agent(name="teacher", description="Evaluates drafts.")
async def teacher(task: TaskContext) -> str:
    return f"you said {task.text}"


@teacher.on(EvaluationRequest)
async def evaluate(_: TaskContext, request: EvaluationRequest) -> EvaluationResult:
    if request.context == "fail":
        raise RuntimeError("broken")
    return EvaluationResult(approved=True, proposal=request.proposal, score=80)


@agent(name="listener", description="Listens to rooms.")
async def listener(_: TaskContext) -> str:
    return "heard"


@listener.on("*")
async def hear(_: TaskContext, __: object) -> None:
    return None


def headers(key: str) -> dict[str, str]:
    return {"X-API-Key": f"key-of-{key}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BridgedMesh]:
    folder = tmp_path_factory.mktemp("outside")
    keys = folder / "keys"
    limits: dict[str, Any] = {
        READER: {"methods": ("read",)},
        MATH_ONLY: {"agents": ("math", "room:math")},
    }
    save_keys(
        keys,
        [
            ApiKey(
                name,
                "acme" if name != BOB else "other",
                hash_key(f"key-of-{name}"),
                **limits.get(name, {}),
            )
            for name in (ANN, BOB, READER, MATH_ONLY)
        ],
    )
    settings = BridgeSettings(default_agent="teacher", api_keys_file=keys)
    async with open_bridged_mesh(folder, settings) as mesh:
        await mesh.mesh.join(teacher, listener)
        await join_messages(mesh.mesh, attempts=2)
        yield mesh


async def post(
    mesh: BridgedMesh, path: str, body: object, key: str = ANN, **extra: str
) -> httpx2.Response:
    return await mesh.client.post(mesh.url + path, json=body, headers=headers(key) | extra)


async def get(mesh: BridgedMesh, path: str, key: str = ANN) -> httpx2.Response:
    return await mesh.client.get(mesh.url + path, headers=headers(key))


async def test_a_request_gets_its_reply(outside: BridgedMesh) -> None:
    body = {"recipient": "teacher", "type": "evaluation_request", "data": {"proposal": "a draft"}}
    answer = await post(outside, "/messages:request", body)
    reply = answer.json()
    assert answer.status_code == 200, reply
    assert (reply["type"], reply["sender"], reply["recipient"]) == (
        "evaluation_result",
        "teacher",
        "user:ann",
    )
    assert reply["data"] == {"approved": True, "proposal": "a draft", "score": 80, "feedback": None}
