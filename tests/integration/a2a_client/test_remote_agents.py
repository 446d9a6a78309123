"""Remote agents on the mesh: another mesh's bridge, called over each binding and version."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import open_bridged_mesh
from harness.a2a.grpc_client import open_bridge_grpc
from harness.agents.inline_agents import status_texts
from harness.mesh.small_mesh import PATIENCE_S, SmallMesh
from trunkline.a2a_client.remote_agent import connect_remote_agent
from trunkline.a2a_client.settings import RemoteSettings
from trunkline.core.json_values import read_member
from trunkline.core.settings import Settings
from trunkline.mesh.client.artifacts import ArtifactClient, parse_reference
from trunkline.tasks.lifecycle import TERMINAL, State
from trunkline.v1 import message_pb2, message_service_pb2, snapshot_pb2, task_service_pb2
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")

BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")
WIRES = [f"{binding} {version}" for binding in BINDINGS for version in ("1.0", "0.3")]


@dataclass(frozen=True)
class Far:
    """The agent `echo` of a mesh, as a remote agent of the same mesh."""

    mesh: SmallMesh
    name: str
    """The name of the remote agent."""

    async def ask(self, text: str, *, task_id: str = "") -> snapshot_pb2.TaskSnapshot:
        return await self.mesh.ask(text, agent=self.name, task_id=task_id)

    async def send(
        self, message: message_pb2.Message
    ) -> snapshot_pb2.TaskSnapshot | message_pb2.Message:
        return await self.mesh.client(self.name).send_message(
            agent=self.name, message=message, submission=message_service_pb2.Submission()
        )

    async def read_latest(self) -> snapshot_pb2.TaskSnapshot:
        """Return the latest task of the agent `echo`."""
        query = task_service_pb2.ListTasksRequest(agent="echo", page_size=1)
        page = await self.mesh.client("echo").tasks.ListTasks(query)
        return await self.mesh.get_task(page.tasks[0].task_id)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def remotes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mapping[str, Far]]:
    """A remote agent for each wire, all on one mesh."""
    async with (
        open_bridged_mesh(tmp_path_factory.mktemp("mesh")) as bridged,
        open_bridge_grpc(bridged),
    ):
        mesh = bridged.mesh
        await mesh.join(echo)
        for number, wire in enumerate(WIRES):
            binding, version = wire.split()
            settings = RemoteSettings(
                url=f"{bridged.url}/agents/echo",
                name=f"far{number}",
                hosts=("127.0.0.1",),
                bindings=(binding,),
                versions=(version,),
            )
            await mesh.join((await mesh.enter(connect_remote_agent(settings))).agent)
        yield {wire: Far(mesh, f"far{number}") for number, wire in enumerate(WIRES)}


@pytest.fixture(params=WIRES)
def far(request: pytest.FixtureRequest, remotes: Mapping[str, Far]) -> Far:
    return remotes[request.param]


async def test_the_chain_of_agents_and_what_remains_go_to_the_other_mesh(far: Far) -> None:
    await far.ask("count 1")
    remote = await far.read_latest()
    assert [(ancestor.agent, ancestor.task_id) for ancestor in remote.tree.ancestors] == [
        (far.name, "")
    ]
    assert remote.tree.budget.levels == 7
    assert not remote.HasField("parent")


async def test_a_direct_reply_stays_a_direct_reply(far: Far) -> None:
    answer = await far.send(far.mesh.message("message hello"))
    assert isinstance(answer, message_pb2.Message)
    assert [part.text for part in answer.parts] == ["hello"]


async def test_bytes_are_forwarded(far: Far) -> None:
    task = await far.ask("file 100000")
    (part,) = task.task.artifacts[0].parts
    assert (part.media_type, part.filename) == ("application/octet-stream", "100000.bin")
    # The file is stored on this mesh, and its URL does not lead to the other one.
    reference = parse_reference(part.url)
    assert reference is not None
    assert reference.task_id == task.task.id
    async with ArtifactClient(far.mesh.directory).open(reference, account="") as download:
        content = b"".join([chunk async for chunk in download])
    assert content == (bytes(range(256)) * 400)[:100_000]


async def test_a_file_stored_on_this_mesh_is_sent_as_bytes(far: Far) -> None:
    content = bytes(range(256)) * 1000
    message = far.mesh.message("parts")
    message.parts.add(raw=content, filename="given.bin")
    answer = await far.send(message)
    assert isinstance(answer, snapshot_pb2.TaskSnapshot)
    assert parse_reference(answer.task.history[0].parts[1].url) is not None
    assert answer.task.status.state == State.TASK_STATE_COMPLETED, status_texts(answer)
    parts = (await far.read_latest()).task.history[0].parts
    sizes = [read_member(part.metadata, "size_bytes") for part in parts if part.url]
    assert sizes == [len(content)]


async def test_a_remote_end_keeps_its_state_and_its_reason(far: Far) -> None:
    failed = await far.ask("fail no crates")
    assert (failed.task.status.state, status_texts(failed)) == (
        State.TASK_STATE_FAILED,
        "no crates",
    )
    rejected = await far.ask("reject not mine")
    assert (rejected.task.status.state, status_texts(rejected)) == (
        State.TASK_STATE_REJECTED,
        "not mine",
    )


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_message_too_large_for_the_peer_is_not_retried(
    tmp_path: Path, binding: str
) -> None:
    narrow = Settings(default_agent="echo", body_limit_bytes=4000)
    async with (
        asyncio.timeout(PATIENCE_S),
        open_bridged_mesh(tmp_path, narrow) as bridged,
        open_bridge_grpc(bridged),
    ):
        await bridged.mesh.join(echo)
        settings = RemoteSettings(
            url=bridged.url, name="far", bindings=(binding,), hosts=("127.0.0.1",)
        )
        async with connect_remote_agent(settings) as remote:
            await bridged.mesh.join(remote.agent)
            task = await bridged.mesh.ask("echo " + "x" * 5000, agent="far")
    assert task.task.status.state == State.TASK_STATE_FAILED
    assert "larger than 4000 bytes" in status_texts(task)


async def test_a_cancel_reaches_the_remote_task(far: Far) -> None:
    task_id = await far.mesh.begin("wait 3600", agent=far.name)
    local_task = await far.mesh.until(task_id, lambda task: status_texts(task) == "Waiting 3600 s")
    remote = read_member(local_task.task.metadata, "trunkline/remote")
    await far.mesh.directory.client_for_task(task_id).cancel_task(task_id, account="")
    remote_id = str(remote["taskId"])
    ended = await far.mesh.until(remote_id, lambda task: task.task.status.state in TERMINAL)
    assert ended.task.status.state == State.TASK_STATE_CANCELED
