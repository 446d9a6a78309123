"""Promise 2: after any number of cuts, a reader has received the same events as an uncut one."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.a2a.reconnecting_client import stream_with_reconnects
from harness.a2a.sse_client import PATIENCE_S, ClientFold, Json, WireEvent, call, sse, user_message
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import Services, running_mesh, running_services
from harness.polling import poll
from harness.promise_scale import PromiseScale
from trunkline.mesh.client import ChannelPool, HostClient
from trunkline.v1 import event_pb2, snapshot_pb2

EVENTS = 1000


def comparable_events(events: Sequence[WireEvent]) -> list[tuple[str, Json]]:
    """Return the ids and contents of events, for comparison."""
    return [(event.id, event.result) for event in events]


async def read_cut(
    url: str, task_id: str, last_event_id: str, *, rng: random.Random, cuts: int
) -> tuple[list[WireEvent], int]:
    """Read the events after `last_event_id` over many connections, each cut at a random point.

    Return the events and the number of cuts.
    """
    received: list[WireEvent] = []
    has_ended = False
    cut_count = 0
    while not has_ended:
        headers = {"Last-Event-ID": last_event_id}
        params = {"id": task_id}
        async with sse(url, "/agents/echo", "SubscribeToTask", params, headers) as answer:
            # A cut comes after a few events, before the first one, or in the middle of one.
            remaining = rng.randrange(3) if cut_count < cuts else EVENTS * 2
            if remaining:
                async for event in answer.events():
                    received.append(event)
                    last_event_id = event.id
                    remaining -= 1
                    if not remaining:
                        break
                else:
                    has_ended = True
            if not has_ended:
                answer.cut()
                cut_count += 1
    return received, cut_count


async def test_resume_anywhere(tmp_path: Path, scale: PromiseScale, rng: random.Random) -> None:
    """A 1,000-event task is cut at many random points, while it runs and after it has ended."""
    cuts = scale.pick(ci=40, prove=1000)
    async with running_mesh(tmp_path) as mesh:
        url = mesh.http_url
        params = {"message": user_message(f"count {EVENTS} 2")}
        async with sse(url, "/agents/echo", "SendStreamingMessage", params) as answer:
            events = answer.events()
            first = await anext(events)
            task_id = first.result["task"]["id"]
            # Most cuts happen while the task runs. The uncut reader's events wait in its socket
            # buffer.
            during, live_cuts = await read_cut(url, task_id, first.id, rng=rng, cuts=cuts)
            uncut = [first, *[event async for event in events]]
        assert comparable_events([first, *during]) == comparable_events(uncut)
        assert len(uncut) > EVENTS
        after, late_cuts = await read_cut(url, task_id, first.id, rng=rng, cuts=cuts)
        assert comparable_events([first, *after]) == comparable_events(uncut)
        await grpc_reader_resumes(mesh.mesh_address, task_id, rng=rng, cuts=cuts)
    scale.report(events=len(uncut), cuts_live=live_cuts, cuts_after_the_end=late_cuts, grpc=cuts)


@pytest.mark.parametrize("victim", ["bridge", "registry", "echo"])
async def test_resume_after_a_kill(
    tmp_path: Path, scale: PromiseScale, rng: random.Random, victim: str
) -> None:
    """A process is killed at a random point of a task; its reader still gets the whole task."""
    kills = scale.pick(ci=1, prove=50)
    environment = {"TRUNKLINE_LEASE_S": str(scale.pick(ci=3, prove=1))}
    async with running_services(tmp_path, agents=("echo",), environment=environment) as services:
        # The bridge learns of an agent a moment after its process has registered.
        await poll(
            lambda: call(services.http_url, "/agents/echo", "ListTasks", {}),
            lambda answer: "result" in answer,
        )
        for _ in range(kills):
            at = rng.randrange(1, EVENTS)
            received = 0

            async def on_event(fold: ClientFold, _event: WireEvent) -> None:
                nonlocal received
                received += 1
                if received == at:  # noqa: B023  read within this iteration of the loop
                    await services.kill(victim)
                    await services.restart(victim)

            fold = await stream_with_reconnects(
                services.http_url, "/agents/echo", f"count {EVENTS} 1", on_event=on_event
            )
            assert fold.state == "TASK_STATE_COMPLETED"
            whole = "".join(f"{n} " for n in range(1, EVENTS + 1))
            assert list(fold.texts.values()) == [whole]
            assert await read_task_texts(services, fold.task_id) == fold.texts
    scale.report(victim=victim, kills=kills)


async def read_task_texts(services: Services, task_id: str) -> dict[str, str]:
    """Return the texts of a task by GetTask."""
    again = ClientFold()
    answer = await call(services.http_url, "/agents/echo", "GetTask", {"id": task_id})
    assert "result" in answer, answer
    again.take_task(answer["result"])
    return again.texts


async def grpc_reader_resumes(address: str, task_id: str, *, rng: random.Random, cuts: int) -> None:
    """The same by WatchTask: each batch is a cursor."""
    async with ChannelPool(mesh_credentials(), ping_s=PATIENCE_S) as channels:
        client = HostClient(channels.get(address))
        whole = await client.get_task(task_id, account="anonymous")
        cursor = 0
        texts: list[str] = []
        while cursor < whole.sequence:
            after = rng.randrange(cursor + 1) if cuts % 7 == 0 else cursor
            async with client.watch_task(
                task_id, account="anonymous", after=after, with_snapshot=False
            ) as stream:
                async for batches in stream:
                    for sealed in batches:
                        batch = event_pb2.EventBatch.FromString(sealed)
                        cursor = take(batch, cursor, texts)
                    cuts -= 1
                    if cuts > 0:
                        break
        assert "".join(texts) == text_of(whole)


def take(batch: event_pb2.EventBatch, cursor: int, texts: list[str]) -> int:
    """Add the texts of the events after a cursor; return the cursor after the batch."""
    sequence = batch.header.first_sequence
    assert sequence <= cursor + 1
    for event in batch.events:
        run = list(event.delta.texts) or [""]
        for text in run:
            if sequence > cursor:
                texts.append(text)
                cursor = sequence
            sequence += 1
    return cursor


def text_of(snapshot: snapshot_pb2.TaskSnapshot) -> str:
    """Return the joined text of a task's artifacts."""
    return "".join(part.text for artifact in snapshot.task.artifacts for part in artifact.parts)
