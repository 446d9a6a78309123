"""The mesh speaks only with its own processes, and each does only what its identity allows."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from harness.a2a.sse_client import call, user_message
from harness.mesh.command_line import run_command, start_process
from harness.mesh.host_processes import PATIENCE_S
from harness.mesh.identity import mesh_credentials
from harness.mesh.mesh_methods import MODULES, all_methods
from harness.mesh.other_identities import NAME_OPTION, issue, other_authority
from harness.mesh.processes import open_services
from trunkline.cli.directory import open_directory
from trunkline.core.identity import Role
from trunkline.core.settings import Settings
from trunkline.core.small_files import FolderFiles
from trunkline.errors import (
    PeerHandshakeError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from trunkline.mesh.client import ChannelPool, RegistryClient
from trunkline.mesh.registry import RegistryServicer
from trunkline.mesh.server import MeshServer
from trunkline.observe.audit import AuditLog, open_audit_log, read_records
from trunkline.v1 import (
    agent_card_pb2,
    registry_service_pb2,
    trace_service_pb2,
    trace_service_pb2_grpc,
)


async def answers(address: str, credentials: grpc.ChannelCredentials | None) -> dict[str, str]:
    """Call every method at an address as a stranger; return the statuses of the answers."""
    channel = (
        grpc.aio.insecure_channel(address)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials, options=NAME_OPTION)
    )
    statuses: dict[str, str] = {}
    async with channel:
        for path in all_methods():
            # The request goes out at once: grpc reports a refusal during a write as INTERNAL.
            method: Callable[..., Any] = channel.unary_unary(path)
            call = method(b"", timeout=PATIENCE_S)
            statuses[path] = (await call.code()).name
    return statuses


def test_every_service_of_the_contract_is_called() -> None:
    files = Path(__file__).parents[3].glob("proto/trunkline/v1/*_service.proto")
    assert {module.DESCRIPTOR.name for module in MODULES} == {
        f"trunkline/v1/{file.name}" for file in files
    }
    assert len(all_methods()) > 30


async def test_the_address_for_tokens_refuses_everything_else(tmp_path: Path) -> None:
    roots = mesh_credentials().roots_file
    async with open_services(tmp_path) as services:
        services.reserve_mesh_address()
        await services.start("registry", "registry")
        address = await asyncio.to_thread(roots.with_name("join").read_text)
        anybody = grpc.ssl_channel_credentials(await asyncio.to_thread(roots.read_bytes))
        statuses = await answers(address, anybody)
    # An empty request to join is malformed.
    join = statuses.pop("/trunkline.v1.IdentityService/Join")
    assert join in {"INVALID_ARGUMENT", "UNAUTHENTICATED"}
    assert set(statuses.values()) == {"UNAUTHENTICATED"}, statuses


async def test_a_client_without_identity_reads_how_to_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = await asyncio.to_thread(
        issue, tmp_path, role=Role.MEMBER, authority=other_authority()
    )
    async with serving_registry() as address, ChannelPool(foreign) as channels:
        with pytest.raises(PeerHandshakeError, match="it is of another mesh") as refused:
            await RegistryClient(channels.get(address)).list_agents()
        # The commands say the same, and not that no mesh answers.
        for variable, file in (
            ("CERTIFICATE", foreign.certificate_file),
            ("KEY", foreign.certificate_file),
            ("ROOTS", foreign.roots_file),
        ):
            monkeypatch.setenv(f"TRUNKLINE_IDENTITY_{variable}", str(file))
        with pytest.raises(PeerHandshakeError, match="it is of another mesh"):
            async with open_directory(address):
                pass
    assert "`trunkline mesh token` there" in refused.value.hint
    async with ChannelPool() as channels:
        with pytest.raises(UnauthenticatedError, match="no identity there") as unknown:
            channels.get("127.0.0.1:1")
    assert "trunkline mesh join TOKEN" in unknown.value.hint


@asynccontextmanager
async def serving_registry(
    folder: Path | None = None, audit: AuditLog | None = None
) -> AsyncIterator[str]:
    async with RegistryServicer(
        audit=audit,
        folder=folder,
        files=None if folder is None else FolderFiles(folder.parent, folder.name),
    ) as registry:
        server = MeshServer(mesh_credentials())
        server.add_registry(registry)
        (address,) = await server.start("127.0.0.1:0")
        try:
            yield address
        finally:
            await server.stop(0)


def host(
    host_id: str, address: str, *agents: str, journals: Sequence[str] = ()
) -> registry_service_pb2.Host:
    return registry_service_pb2.Host(
        host_id=host_id,
        address=address,
        journal_ids=journals,
        agents=[
            registry_service_pb2.AgentRegistration(card=agent_card_pb2.AgentCard(name=name))
            for name in agents
        ],
    )


async def test_an_agent_can_not_take_the_place_of_another(tmp_path: Path) -> None:
    math = await asyncio.to_thread(issue, tmp_path / "math", agents=["math"])
    evil = await asyncio.to_thread(issue, tmp_path / "evil", agents=["evil"])
    victim = host("j-math", "127.0.0.1:7001", "math", journals=["j-math"])
    attacks = {
        "its name": host("j-evil", "127.0.0.1:7002", "math"),
        "its host": host("j-math", "127.0.0.1:7002", "evil"),
        "its journal": host("j-evil", "127.0.0.1:7002", "evil", journals=["j-evil", "j-math"]),
        "its address": host("j-evil", "127.0.0.1:7001", "evil"),
    }
    async with serving_registry(tmp_path) as address, ChannelPool(math) as owner:
        await RegistryClient(owner.get(address)).register(victim)
        async with ChannelPool(evil) as channels:
            registry = RegistryClient(channels.get(address))
            for attack in attacks.values():
                with pytest.raises(PermissionDeniedError, match="agents/evil may not"):
                    await registry.register(attack)
            with pytest.raises(PermissionDeniedError, match="speak for host j-math"):
                await registry.deregister("j-math")
            with pytest.raises(PermissionDeniedError):
                await registry.keep_alive("j-math")
            await registry.register(host("j-evil", "127.0.0.1:7002", "evil"))
            hosts = await registry.list_agents()
        assert {known.host_id: known.address for known in hosts} == {
            "j-math": "127.0.0.1:7001",
            "j-evil": "127.0.0.1:7002",
        }
    # A registry that restarts remembers who has which journal.
    async with serving_registry(tmp_path) as address, ChannelPool(evil) as channels:
        registry = RegistryClient(channels.get(address))
        with pytest.raises(PermissionDeniedError, match="j-math, which agents/math owns"):
            await registry.register(attacks["its journal"])
        with pytest.raises(PermissionDeniedError, match="may not call"):
            await registry.release_journals(["j-math"])


@pytest.mark.parametrize("name", ["j-math", "agents/math"])
async def test_the_owner_of_the_mesh_frees_the_journals_of_an_identity_that_is_gone(
    tmp_path: Path, name: str
) -> None:
    math = await asyncio.to_thread(issue, tmp_path / "math", agents=["math"])
    heir = await asyncio.to_thread(issue, tmp_path / "heir", agents=["heir"])
    owners_file = tmp_path / "journal-owners.json"
    settings = Settings(audit_file=tmp_path / "audit.jsonl")
    inherited = host("j-heir", "127.0.0.1:7002", "heir", journals=["j-heir", "j-math"])
    async with (
        open_audit_log(settings, process="registry") as audit,
        serving_registry(tmp_path, audit) as address,
        serving_registry(tmp_path) as another,
        ChannelPool(math) as owner,
        ChannelPool(heir) as other,
        ChannelPool(mesh_credentials()) as member,
    ):
        registered = host("j-math", "127.0.0.1:7001", "math", journals=["j-math"])
        for known in (address, another):
            await RegistryClient(owner.get(known)).register(registered)
            await RegistryClient(owner.get(known)).deregister("j-math")
        with pytest.raises(PermissionDeniedError):
            await RegistryClient(other.get(address)).register(inherited)
        registry = RegistryClient(member.get(address))
        assert await registry.release_journals(["j-unknown"]) == []
        assert await registry.release_journals([name]) == ["j-math"]
        await RegistryClient(other.get(address)).register(inherited)
        with pytest.raises(PermissionDeniedError, match="j-math, which agents/heir owns"):
            await RegistryClient(owner.get(another)).register(registered)
    assert json.loads(owners_file.read_text()) == {
        "j-heir": "agents/heir",
        "j-math": "agents/heir",
    }
    entries = [record.entry for record in read_records(tmp_path / "audit.jsonl")]
    (released,) = (
        entry for entry in entries if entry is not None and entry["action"] == "journal.release"
    )
    assert released["object"] == {"journal": "j-math", "owner": "agents/math"}
    assert released["actor"]["name"] == str(mesh_credentials().identity)


async def test_roles_may_call_only_the_services_of_their_work(tmp_path: Path) -> None:
    bridge = await asyncio.to_thread(issue, tmp_path / "bridge", role=Role.BRIDGE)
    async with serving_registry() as address, ChannelPool(bridge) as channels:
        registry = RegistryClient(channels.get(address))
        assert not await registry.list_agents()
        with pytest.raises(PermissionDeniedError, match="may not call"):
            await registry.register(host("h", "127.0.0.1:7003", "echo"))
        with pytest.raises(PermissionDeniedError, match="TraceService"):
            await trace_service_pb2_grpc.TraceServiceStub(channels.get(address)).ListTraces(
                trace_service_pb2.ListTracesRequest()
            )


async def run_mesh_command(*words: str, environment: Mapping[str, str], data: str = "") -> str:
    """Run `trunkline mesh` and return its output."""
    done = await run_command("mesh", *words, stdin=data, folder=None, **environment)
    assert done.exit == 0, done.err
    return done.out


STRANGER = """
from trunkline import agent, run

@agent(name="stranger", description="Has no token.")
async def stranger(task):
    return "hi"

run(stranger)
"""


async def run_script(
    script: str, *words: str, environment: Mapping[str, str]
) -> tuple[int | None, list[str]]:
    """Run the program of an agent until it exits; return its code and the lines on stderr."""
    process = await start_process(
        *(sys.executable, "-c", script, *words),
        environment={**os.environ, **environment},
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        _, errors = await process.communicate()
    return process.returncode, errors.decode().splitlines()


async def test_another_user_s_process_joins_by_a_token_until_it_is_revoked(tmp_path: Path) -> None:
    # An empty variable counts as not set. Each user has a folder of state.
    own, other = (
        {"TRUNKLINE_IDENTITY_FOLDER": "", "XDG_STATE_HOME": str(tmp_path / user)}
        for user in ("own", "other")
    )
    async with open_services(tmp_path, environment=own) as services:
        services.reserve_mesh_address()
        await services.start("registry", "registry")
        mesh = ("--mesh", services.mesh_address)
        token = await run_mesh_command("token", "--agent", "echo", *mesh, environment=own)
        await run_mesh_command("join", "-", *mesh, environment=other, data=token)
        await services.start("echo", "agents", "echo", environment=other)
        await services.start("bridge", "bridge")
        question = {"message": user_message("hi")}
        answer = await call(services.http_url, "/agents/echo", "SendMessage", question)
        assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        shown = json.loads(await run_mesh_command("show", *mesh, "--json", environment=own))
        (joined,) = shown["joined"]
        assert (joined["subject"], joined["is_revoked"]) == ("agents/echo", False)
        code, lines = await run_script(STRANGER, *mesh, "--data", str(tmp_path), environment=other)
        assert (code, len(lines)) == (1, 1)
        assert lines[0].startswith("error: spiffe://")
        remedy = "its token names other agents: `trunkline mesh token --agent stranger`"
        assert lines[0].endswith(f" may not register agent 'stranger'; {remedy}")
        with_store = {**other, "TRUNKLINE_STORE": "postgresql://nobody@127.0.0.1:1/none"}
        code, lines = await run_script(
            STRANGER, *mesh, "--data", str(tmp_path), environment=with_store
        )
        assert (code, len(lines)) == (1, 1)
        assert "`trunkline mesh token --member`" in lines[0]
        await run_mesh_command("revoke", "agents/echo", *mesh, environment=own)
        # The registry removes the host when it reads the list.
        async with asyncio.timeout(PATIENCE_S):
            while "result" in answer:
                answer = await call(
                    services.http_url,
                    "/agents/echo",
                    "SendMessage",
                    {"message": user_message("hi")},
                )
        # The journal of the process is free for another one.
        words = ("release", "agents/echo", *mesh, "--json")
        (journal_id,) = json.loads(await run_mesh_command(*words, environment=own))["released"]
        assert journal_id
