"""An approval allows exactly the call that a user approved, once; the tool adapter checks it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.mcp.scripted_servers import awkward, collect_responses
from harness.mesh.identity import mesh_credentials
from harness.mesh.other_identities import issue
from trunkline.core.identity import MeshCredentials, Role, StatementSigner
from trunkline.core.json_values import update_struct
from trunkline.core.settings import AgentSettings, Settings
from trunkline.core.users import User, current_user
from trunkline.errors import PermissionDeniedError, ToolNotFoundError, UserNotProvenError
from trunkline.mesh.client import ChannelPool, ToolClient
from trunkline.mesh.server import MeshServer
from trunkline.observe.audit import AuditLog, open_audit_log, read_records
from trunkline.tasks.approvals import digest_call
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.approval_gate import ApprovalGate
from trunkline.tools.config import AdapterSettings, McpConfig, ServerOverlay
from trunkline.tools.tool_servicer import SERVICE, ToolServicer
from trunkline.tools.used_approvals import SqliteUsedApprovals
from trunkline.v1 import tool_service_pb2, tool_service_pb2_grpc

TASK = "j-1"
APPROVAL = f"{TASK}.1"
ARGUMENTS = {"n": 2}
DIGEST = digest_call(APPROVAL, "awkward/count", ARGUMENTS)


@pytest.fixture(autouse=True)
def _nobody() -> None:
    current_user.set(None)


@pytest.fixture
async def adapter() -> AsyncIterator[ToolAdapter]:
    server_config = awkward().model_copy(update={"trunkline": ServerOverlay(approval="always")})
    config = McpConfig({"awkward": server_config})
    async with ToolAdapter(config, settings=AdapterSettings()) as adapter:
        yield adapter


@pytest.fixture
async def address(adapter: ToolAdapter, tmp_path: Path) -> AsyncIterator[str]:
    async with serve(adapter, tmp_path) as bound:
        yield bound


@asynccontextmanager
async def serve(
    adapter: ToolAdapter, data_dir: Path, audit: AuditLog | None = None
) -> AsyncIterator[str]:
    """Serve the tools as a process with this data directory does; yield the address."""
    server = MeshServer(mesh_credentials(), audit=audit)
    server.add_service(
        SERVICE,
        tool_service_pb2_grpc.add_ToolServiceServicer_to_server,
        ToolServicer(
            adapter,
            ApprovalGate(server.statements, SqliteUsedApprovals(data_dir)),
            options={"math": AgentSettings(deny_tools=("count",))},
            audit=audit,
        ),
    )
    (bound,) = await server.start("127.0.0.1:0")
    try:
        yield bound
    finally:
        await server.stop(0)


@asynccontextmanager
async def agent(folder: Path, address: str, *names: str) -> AsyncIterator[ToolClient]:
    """Yield a client of a process of agents that joined by a token. It may send anything."""
    credentials = await asyncio.to_thread(issue, folder, agents=names or ("evil",))
    async with ChannelPool(credentials) as channels:
        yield ToolClient(channels.get(address))


async def approved(*digests: str, account: str = "acme") -> str:
    user = User(account, "alice", approved=frozenset(digests))
    return await StatementSigner(mesh_credentials()).sign(user)


def request(**changes: Any) -> tool_service_pb2.CallToolRequest:
    fields: dict[str, Any] = {
        "server": "awkward",
        "tool": "count",
        "task_id": TASK,
        "agent": "evil",
        "account": "acme",
        "approval_id": APPROVAL,
        "approval_digest": DIGEST,
    }
    arguments = changes.pop("arguments", ARGUMENTS)
    call = tool_service_pb2.CallToolRequest(**{**fields, **changes})
    update_struct(call.arguments, arguments)
    return call


async def call(client: ToolClient, call_request: tool_service_pb2.CallToolRequest) -> str:
    response = (await collect_responses(client, call_request))[-1]
    assert not response.result.is_error, response.result
    return response.result.content[0].text


async def test_a_joined_agent_makes_only_the_call_that_a_user_approved(
    tmp_path: Path, address: str
) -> None:
    statement = await approved(DIGEST)
    others = digest_call(APPROVAL, "awkward/count", {"n": 3})
    attacks = {
        "without an approval": (request(approval_id="", approval_digest=""), "request one"),
        "without a proof": (request(), "no statement"),
        "other arguments": (
            request(arguments={"n": 3}, approval_statement=statement),
            "for another call",
        ),
        "other arguments with their digest": (
            request(arguments={"n": 3}, approval_digest=others, approval_statement=statement),
            "no statement",
        ),
        "another task": (
            request(task_id="j-2", approval_statement=statement),
            "for another call",
        ),
        "another tool": (request(tool="repeat", approval_statement=statement), "for another call"),
        "another account's approval": (
            request(approval_statement=await approved(DIGEST, account="globex")),
            "no statement",
        ),
        "a statement that approves nothing": (
            request(approval_statement=await approved()),
            "no statement",
        ),
    }
    async with agent(tmp_path, address) as client:
        current_user.set(User("acme", "alice", statement=await approved()))
        for attack, problem in attacks.values():
            with pytest.raises(PermissionDeniedError, match=problem):
                await call(client, attack)
        with pytest.raises(UserNotProvenError, match="not valid"):
            await call(client, request(approval_statement=statement[:-9] + "AAAAAAAAA"))
        assert await call(client, request(approval_statement=statement)) == "counted to 2"
        with pytest.raises(PermissionDeniedError, match="was used"):
            await call(client, request(approval_statement=statement))


async def test_an_approval_is_used_up_after_a_restart(tmp_path: Path, adapter: ToolAdapter) -> None:
    approved_call = request(approval_statement=await approved(DIGEST))
    current_user.set(User("acme", "alice", statement=await approved()))
    async with open_audit_log(Settings(data_dir=tmp_path), process="tools") as audit:
        async with serve(adapter, tmp_path, audit) as address, agent(tmp_path, address) as client:
            assert await call(client, approved_call) == "counted to 2"
        async with serve(adapter, tmp_path, audit) as address, agent(tmp_path, address) as client:
            with pytest.raises(PermissionDeniedError, match="was used"):
                await call(client, approved_call)
            with pytest.raises(PermissionDeniedError, match="request one"):
                await call(client, request(tool="refuse", approval_id=""))
    path = tmp_path / "private" / "audit.jsonl"
    made, replayed, unapproved = [record.entry for record in read_records(path) if record.entry]
    assert made["outcome"] == "ok"
    assert replayed["outcome"] == unapproved["outcome"] == "denied"
    assert made["action"] == replayed["action"] == unapproved["action"] == "tool.call"
    ids = {"agent": "evil", "task": TASK, "approval": APPROVAL}
    assert made["object"] == replayed["object"] == {"tool": "awkward/count", **ids}
    assert unapproved["object"]["tool"] == "awkward/refuse"
    assert made["actor"]["user"] == "alice"
    assert made["actor"]["name"].endswith("/agents/evil")


async def test_a_joined_agent_is_only_itself(tmp_path: Path, address: str) -> None:
    async with agent(tmp_path, address, "evil", "math") as client:
        with pytest.raises(UserNotProvenError, match="without a statement"):
            await call(client, request())
        current_user.set(User("acme", "alice", statement=await approved(DIGEST)))
        with pytest.raises(PermissionDeniedError, match="act as agent 'echo'"):
            await call(client, request(agent="echo"))
        with pytest.raises(PermissionDeniedError, match="names another"):
            await call(client, request(account="globex"))
        reader = User("acme", "reader", is_read_only=True)
        statement = await StatementSigner(mesh_credentials()).sign(reader)
        token = current_user.set(replace(reader, statement=statement))
        with pytest.raises(PermissionDeniedError, match="only read"):
            await call(client, request())
        current_user.reset(token)
        for name in ("math", ""):
            # Who names no agent has the rights that all of its agents have.
            with pytest.raises(ToolNotFoundError):
                await call(client, request(agent=name))


async def test_the_owner_needs_no_proof_but_the_right_approval(address: str) -> None:
    credentials: MeshCredentials = mesh_credentials()
    assert credentials.identity.role is Role.MEMBER
    async with ChannelPool(credentials) as channels:
        client = ToolClient(channels.get(address))
        for wrong in (request(approval_id=""), request(arguments={"n": 3})):
            with pytest.raises(PermissionDeniedError):
                await call(client, wrong)
        assert await call(client, request()) == "counted to 2"
        with pytest.raises(PermissionDeniedError, match="was used"):
            await call(client, request())
