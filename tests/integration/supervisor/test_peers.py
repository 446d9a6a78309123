"""A supervisor whose sub-agents flap, hang, flood, or send garbage: the other agents still work."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial

from harness.agents.inline_agents import status_texts, texts
from harness.mesh.contract_breaking_host import LIES, ContractBreakingHost
from harness.mesh.identity import mesh_credentials
from harness.mesh.small_mesh import SmallMesh
from trunkline.agents import agent
from trunkline.agents.calls.outcome import MAX_TEXT_CHARS
from trunkline.mesh.server import MeshServer
from trunkline.supervisor import ChildLimits
from trunkline.tasks.context import TaskContext
from trunkline.tasks.lifecycle import TERMINAL, State
from trunkline.v1 import (
    agent_card_pb2,
    message_service_pb2_grpc,
    registry_service_pb2,
    snapshot_pb2,
)
from trunkline_agents.echo.agent import echo

# Far longer than any working agent needs on any machine.
IDLE_S = 2.0


def has_text(text: str, snapshot: snapshot_pb2.TaskSnapshot) -> bool:
    return any(text in item for item in texts(snapshot))


def is_over(snapshot: snapshot_pb2.TaskSnapshot) -> bool:
    return snapshot.task.status.state in TERMINAL


async def join_breaching_host(mesh: SmallMesh, server: MeshServer) -> None:
    server.add_service(
        "trunkline.v1.MessageService",
        message_service_pb2_grpc.add_MessageServiceServicer_to_server,
        ContractBreakingHost(),
    )
    (address,) = await server.start("127.0.0.1:0")
    host = registry_service_pb2.Host(host_id="liars", address=address, journal_ids=["LIARS"])
    for name in LIES:
        skill = agent_card_pb2.AgentSkill(id=name, name=f"Say {name} things", tags=[name])
        card = agent_card_pb2.AgentCard(name=name, description="Lies.", skills=[skill])
        host.agents.add(card=card, routable=True)
    await mesh.register(host)


async def test_garbage_fails_only_its_step(mesh: SmallMesh) -> None:
    server = MeshServer(mesh_credentials())
    try:
        await join_breaching_host(mesh, server)
        await mesh.join(echo)
        await mesh.supervise()

        ended = await mesh.ask("echo well " + " ".join(f"@{name} speak" for name in LIES))
    finally:
        await server.stop(0)

    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    answered, *failures = texts(ended)[-1].splitlines()
    assert answered == "well"
    for (name, (_, problem)), failure in zip(LIES.items(), failures, strict=True):
        assert failure == (
            f"Could not answer \"speak\": agent '{name}' broke the protocol: {problem} "
            f"(agent {name})."
        )


async def test_a_silent_agent_is_canceled_and_named_in_the_answer(mesh: SmallMesh) -> None:
    stopped = asyncio.Event()

    @agent(name="mute", description="Says nothing.", tags=["mute"])
    async def mute(_task: TaskContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    await mesh.join(echo, mute)
    await mesh.supervise(limits=ChildLimits(idle_s=IDLE_S))

    ended = await mesh.ask("echo well, and be mute then")

    assert texts(ended)[-1] == (
        "well\nCould not answer \"be mute then\": agent 'mute' did not answer in time: nothing "
        "came for 2 s, so it was canceled (agent mute)."
    )
    assert stopped.is_set()
    child = next(item for item in ended.children if item.started.agent == "mute")
    child_task = await mesh.get_task(child.started.task_id)
    assert child_task.task.status.state == State.TASK_STATE_CANCELED


async def test_a_flood_is_stopped_and_the_other_answers_are_delivered(mesh: SmallMesh) -> None:
    @agent(name="flood", description="Says too much.", tags=["flood"])
    async def flood(_task: TaskContext) -> AsyncGenerator[str, None]:
        while True:
            yield "x" * 10_000

    await mesh.join(flood)
    await mesh.join(echo)
    await mesh.supervise(limits=ChildLimits(content_bytes=1024 * 1024))

    ended = await mesh.ask("count 100, and flood the place")

    counted, failure = texts(ended)[-1].splitlines()
    assert counted.split() == [str(number) for number in range(1, 101)]
    assert "it sent more than 1 MiB in one turn; ask it for less (agent flood)" in failure
    child = next(item for item in ended.children if item.started.agent == "flood")
    child_task = await mesh.until(child.started.task_id, is_over)
    assert child_task.task.status.state == State.TASK_STATE_CANCELED


async def test_a_long_text_is_forwarded_whole_and_summarized(mesh: SmallMesh) -> None:
    whole = "".join(f"{number} " for number in range(80_000))
    assert len(whole) > MAX_TEXT_CHARS

    @agent(name="author", description="Writes a book.", tags=["book"])
    async def author(_task: TaskContext) -> str:
        return whole

    await mesh.join(author)
    await mesh.supervise()

    ended = await mesh.ask("write a book")

    assert ended.task.status.state == State.TASK_STATE_COMPLETED, status_texts(ended)
    forwarded_text, answer = texts(ended)
    assert forwarded_text == whole
    assert answer[:MAX_TEXT_CHARS] == whole[:MAX_TEXT_CHARS]
    assert answer.endswith(
        f"[Shortened: {len(whole):,} characters in all; agent author has the rest.]"
    )


async def test_a_flapping_agent_is_followed_to_its_end(mesh: SmallMesh) -> None:
    steps = [asyncio.Event() for _ in range(4)]

    @agent(name="flap", description="Counts between cuts.", tags=["flap"])
    async def flap(_task: TaskContext) -> AsyncGenerator[str, None]:
        for number, step in enumerate(steps):
            yield f"{number} "
            await step.wait()

    child_task = await mesh.join(flap)
    await mesh.join(echo)
    await mesh.supervise()
    task_id = await mesh.begin("echo well, and flap about")

    for number, step in enumerate(steps):
        await mesh.until(task_id, partial(has_text, f"{number} "))
        await child_task.cut()
        step.set()
        await child_task.serve_again()
    ended = await mesh.until(task_id, is_over)

    assert texts(ended)[-1] == "well\n0 1 2 3 "
