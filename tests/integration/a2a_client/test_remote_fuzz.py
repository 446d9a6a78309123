"""For any stream of a remote agent, our task ends, and its journal is valid."""

import asyncio
import json
import random
from pathlib import Path

from harness.mesh.small_mesh import PATIENCE_S, open_small_mesh
from harness.remote.scripted_agent import (
    Call,
    Writer,
    artifact,
    chunk,
    head,
    result,
    scripted_agent,
    status,
    task,
)
from trunkline.a2a_client.remote_agent import connect_remote_agent
from trunkline.a2a_client.settings import RemoteSettings
from trunkline.core.task_states import INTERRUPTED, TERMINAL
from trunkline.journal.fold import Fold
from trunkline.mesh.client.breaker import BreakerSettings
from trunkline.tasks.lifecycle import State

STREAMS = 100
EVENTS = (
    task(artifacts=[artifact("in the snapshot", "s-1")]),
    status("WORKING", "on it"),
    chunk("one "),
    chunk("two", append=True),
    chunk("other", artifact_id="a-2", lastChunk=True),
    chunk("instead"),
    chunk("!", append=True, lastChunk=True),
    status("COMPLETED", "done", metadata={"cost": 3}),
)
OLD = {"kind": "status-update", "taskId": "t-1", "status": {"state": "input-required"}}


def mutated(rng: random.Random) -> bytes:
    """Return a stream with shuffled, repeated, omitted and corrupted events."""
    events = [event for event in EVENTS for _ in range(rng.choice((0, 1, 1, 1, 1, 2)))]
    if rng.random() < 0.3:
        rng.shuffle(events)
    if rng.random() < 0.2:
        events.insert(rng.randrange(len(events) + 1), OLD)
    lines = [json.dumps({"jsonrpc": "2.0", "id": 1, "result": event}) for event in events]
    data = bytearray("".join(f"data: {line}\n\n" for line in lines).encode())
    for _ in range(rng.choice((0, 0, 1, 2, 8))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(3):
            case 0:
                data[at : at + rng.randrange(1, 30)] = b""
            case 1:
                data[at:at] = rng.choice((b'"', b"{", b"\n", b"\r", b"null", b"[]", b"\xff", b":"))
            case _:
                data[at : at + 1] = bytes([rng.randrange(256)])
    return bytes(data)


async def test_our_task_ends_and_its_journal_can_be_read(tmp_path: Path) -> None:
    rng = random.Random(20)

    async def answer(_call: Call, writer: Writer) -> None:
        writer.write(head("text/event-stream") + mutated(rng))
        await writer.drain()

    async with (
        asyncio.timeout(PATIENCE_S),
        scripted_agent() as agent,
        open_small_mesh(tmp_path) as mesh,
    ):
        agent.on("SendStreamingMessage", answer)
        agent.on("message/stream", answer)
        agent.on("GetTask", result(task("COMPLETED", artifacts=[artifact("whole")])["task"]))
        settings = RemoteSettings(
            url=agent.url, name="far", patience_s=1, breaker=BreakerSettings(failures=10_000)
        )
        remote = await mesh.enter(connect_remote_agent(settings))
        await mesh.join(remote.agent)
        states_seen: set[int] = set()
        for number in range(STREAMS):
            ended = await mesh.ask(f"stream {number}", agent="far")
            assert ended.task.status.state in TERMINAL | INTERRUPTED
            states_seen.add(ended.task.status.state)
            fold = Fold(ended.task.id)
            for batch in await mesh.events(ended.task.id):
                fold.apply(batch)
            assert fold.snapshot().task.artifacts == ended.task.artifacts
        assert states_seen >= {State.TASK_STATE_COMPLETED, State.TASK_STATE_FAILED}
