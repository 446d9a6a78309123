"""Remote agents on the mesh: another mesh's bridge, called over each binding and version."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.a2a.grpc_client import open_bridge_grpc
from harness.agents.inline_agents import status_texts, texts
from harness.mesh.small_mesh import PATIENCE_S
from trunkline.a2a_client.remote_agent import connect_remote_agent
from trunkline.a2a_client.settings import RemoteSettings
from trunkline.core.json_values import read_member
from trunkline.core.settings import Settings
from trunkline.mesh.client.artifacts import ArtifactClient, parse_reference
from trunkline.tasks.lifecycle import TERMINAL, State
from trunkline.v1 import message_pb2, message_service_pb2, snapshot_pb2, task_service_pb2
from trunkline_agents.echo.agent import echo

BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")
VERSIONS = ("1.0", "0.3")


@pytest.fixture(params=[f"{binding} {version}" for binding in BINDINGS for version in VERSIONS])
async def far(request: pytest.FixtureRequest, bridged: BridgedMesh) -> AsyncIterator[BridgedMesh]:
    binding, version = request.param.split()
    settings = RemoteSettings(
        url=f"{bridged.url}/agents/echo",
        name="far",
        hosts=("127.0.0.1",),
        bindings=(binding,),
        versions=(version,),
    )
    async with open_bridge_grpc(bridged), connect_remote_agent(settings) as remote:
        await bridged.mesh.join(remote.agent)
        yield bridged


async def test_text_is_forwarded(far: BridgedMesh) -> None:
    task = await far.mesh.ask("count 300", agent="far")
    assert task.task.status.state == State.TASK_STATE_COMPLETED, status_texts(task)
    assert texts(task) == ["".join(f"{n} " for n in range(1, 301))]
    assert task.artifacts[0].closed
    assert task.task.artifacts[0].name == "count"


async def test_the_chain_of_agents_and_what_remains_go_to_the_other_mesh(far: BridgedMesh) -> None:
    await far.mesh.ask("count 1", agent="far")
    page = await far.mesh.client("echo").tasks.ListTasks(
        task_service_pb2.ListTasksRequest(agent="echo")
    )
    remote = await far.mesh.get_task(page.tasks[0].task_id)
    assert [(ancestor.agent, ancestor.task_id) for ancestor in remote.tree.ancestors] == [
        ("far", "")
    ]
    assert remote.tree.budget.levels == 7
    assert not remote.HasField("parent")


async def test_a_question_is_answered_by_the_next_turn(far: BridgedMesh) -> None:
    waiting = await far.mesh.ask("ask which one?", agent="far")
    assert waiting.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert status_texts(waiting) == "which one?"
    completed = await far.mesh.ask("this one", agent="far", task_id=waiting.task.id)
    assert completed.task.status.state == State.TASK_STATE_COMPLETED, status_texts(completed)
    assert texts(completed) == ["answer: this one"]


async def test_a_direct_reply_stays_a_direct_reply(far: BridgedMesh) -> None:
    answer = await far.mesh.client("far").send_message(
        agent="far",
        message=far.mesh.message("message hello"),
        submission=message_service_pb2.Submission(),
    )
    assert isinstance(answer, message_pb2.Message)
    assert [part.text for part in answer.parts] == ["hello"]


async def test_bytes_are_forwarded(far: BridgedMesh) -> None:
    task = await far.mesh.ask("file 100000", agent="far")
    (part,) = task.task.artifacts[0].parts
    assert (part.media_type, part.filename) == ("application/octet-stream", "100000.bin")
    # The file is stored on this mesh, and its URL does not lead to the other one.
    reference = parse_reference(part.url)
    assert reference is not None
    assert reference.task_id == task.task.id
    async with ArtifactClient(far.mesh.directory).open(reference, account="") as download:
        content = b"".join([chunk async for chunk in download])
    assert content == (bytes(range(256)) * 400)[:100_000]


async def test_a_small_file_is_forwarded_in_the_message(far: BridgedMesh) -> None:
    task = await far.mesh.ask("file 1000", agent="far")
    (part,) = task.task.artifacts[0].parts
    assert part.raw == (bytes(range(256)) * 4)[:1000]


async def test_a_file_stored_on_this_mesh_is_sent_as_bytes(far: BridgedMesh) -> None:
    content = bytes(range(256)) * 1000
    message = far.mesh.message("parts")
    message.parts.add(raw=content, filename="given.bin")
    answer = await far.mesh.client("far").send_message(
        agent="far", message=message, submission=message_service_pb2.Submission()
    )
    assert isinstance(answer, snapshot_pb2.TaskSnapshot)
    assert parse_reference(answer.task.history[0].parts[1].url) is not None
    assert answer.task.status.state == State.TASK_STATE_COMPLETED, status_texts(answer)
    assert await _sizes_at_echo(far) == [len(content)]


async def _sizes_at_echo(far: BridgedMesh) -> list[float]:
    """Return the sizes of the files that the agent `echo` received."""
    query = task_service_pb2.ListTasksRequest(agent="echo", page_size=10)
    page = await far.mesh.client("echo").tasks.ListTasks(query)
    found = [(await far.mesh.get_task(row.task_id)).task for row in page.tasks]
    parts = [part for task in found for part in task.history[0].parts]
    return [read_member(part.metadata, "size_bytes") for part in parts if part.url]


async def test_a_remote_end_keeps_its_state_and_its_reason(far: BridgedMesh) -> None:
    failed = await far.mesh.ask("fail no crates", agent="far")
    assert (failed.task.status.state, status_texts(failed)) == (
        State.TASK_STATE_FAILED,
        "no crates",
    )
    rejected = await far.mesh.ask("reject not mine", agent="far")
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


async def test_a_cancel_reaches_the_remote_task(far: BridgedMesh) -> None:
    task_id = await far.mesh.begin("wait 3600", agent="far")
    local_task = await far.mesh.until(task_id, lambda task: status_texts(task) == "Waiting 3600 s")
    remote = read_member(local_task.task.metadata, "trunkline/remote")
    await far.mesh.directory.client_for_task(task_id).cancel_task(task_id, account="")
    remote_id = str(remote["taskId"])
    ended = await far.mesh.until(remote_id, lambda task: task.task.status.state in TERMINAL)
    assert ended.task.status.state == State.TASK_STATE_CANCELED
