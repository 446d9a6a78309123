"""Checks of streams. A bridge without the capability refuses their operations."""

from contextlib import AsyncExitStack

from harness.a2a.protocol_variants import ProtocolVariant, TaskView
from harness.conformance.registry import (
    System,
    check,
    completed_task,
    refusal,
    started_task,
)

_TERMINAL = {"completed", "failed", "canceled", "rejected"}


def _states(events: list[TaskView]) -> list[str]:
    return [event.state for event in events if event.state]


@check("STREAM-SSE-001", "STREAM-SUB-002", "GRPC-STREAM-001", needs="streaming")
async def _a_stream_ends_with_a_terminal_state(_system: System, wire: ProtocolVariant) -> None:
    events = await wire.streamed("tck-stream-basic generate")
    assert len(events) >= 2
    states = _states(events)
    # A repeated state is legal, and no other follows a terminal one.
    assert states[-1] == "completed"
    assert not _TERMINAL & set(states[:-1])
    assert "submitted" not in states[1:]
    assert (events[0].kind, events[-1].kind) == ("task", "status")


@check("STREAM-SSE-002", needs="streaming")
async def _a_stream_has_artifacts(_system: System, wire: ProtocolVariant) -> None:
    events = await wire.streamed("tck-stream-basic artifact")
    assert "".join(event.text for event in events if event.kind == "artifact") == "a text"
    assert events[-1].state == "completed"


@check("STREAM-SSE-003", needs="streaming")
async def _an_artifact_comes_in_chunks(_system: System, wire: ProtocolVariant) -> None:
    events = await wire.streamed("tck-stream-chunked multi-part")
    assert len([event for event in events if event.kind == "artifact"]) == 3
    assert _states(events)[-1] == "completed"


@check("STREAM-SUB-001", "STREAM-SSE-004", needs="streaming")
async def _a_subscription_begins_with_the_task_and_ends_with_it(
    system: System, wire: ProtocolVariant
) -> None:
    task = await started_task(wire)
    async with wire.subscribe(task["id"]) as events:
        first = await anext(events)
        assert (first.kind, first.task) == ("task", task["id"])
        assert first.state in ("submitted", "working")
        system.agent.release(task["id"])
        assert [event.state async for event in events][-1] == "completed"


@check("STREAM-SUB-003", needs="streaming")
async def _a_subscription_to_an_ended_task_is_an_error(
    _system: System, wire: ProtocolVariant
) -> None:
    task = await completed_task(wire)
    assert await refusal(wire, "subscribe", task=task["id"]) == "UNSUPPORTED_OPERATION"


@check("STREAM-MSG-001", needs="streaming")
async def _a_stream_may_be_one_message(_system: System, wire: ProtocolVariant) -> None:
    (event,) = await wire.streamed("tck-message-response streaming")
    assert (event.kind, event.text) == ("message", "a direct reply")


@check("STREAM-MULTI-001", needs="streaming")
async def _two_streams_have_the_same_events(system: System, wire: ProtocolVariant) -> None:
    task = await started_task(wire)
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(wire.subscribe(task["id"])) for _ in range(2)]
        for stream in streams:
            assert (await anext(stream)).kind == "task"
        system.agent.release(task["id"])
        first, second = [[event async for event in stream] for stream in streams]
    texts = ["".join(event.text for event in events) for events in (first, second)]
    assert texts == ["finished", "finished"]
    assert first[-1] == second[-1]
    assert first[-1].state == "completed"


@check("STREAM-MULTI-002", needs="streaming")
async def _closing_a_stream_leaves_the_other(system: System, wire: ProtocolVariant) -> None:
    task = await started_task(wire)
    async with wire.subscribe(task["id"]) as remaining:
        async with wire.subscribe(task["id"]) as closed:
            assert (await anext(closed)).kind == "task"
        assert (await anext(remaining)).kind == "task"
        system.agent.release(task["id"])
        assert [event.state async for event in remaining][-1] == "completed"


@check("STREAM-RESUB-001", needs="streaming")
async def _a_client_subscribes_again_after_a_cut(system: System, wire: ProtocolVariant) -> None:
    async with wire.stream("tck-long-running now") as events:
        task_id = (await anext(events)).task
    async with wire.subscribe(task_id) as events:
        assert (await anext(events)).task == task_id
        system.agent.release(task_id)
        assert [event.state async for event in events][-1] == "completed"
