"""Promise 6: a deadline is absolute, is the same on every hop, and ends the whole tree of tasks."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from harness.a2a.sse_client import PATIENCE_S, ClientFold, call, sse, user_message
from harness.mcp.blocked_tool import BlockedTool, blocked_tool, mcp_flags
from harness.mesh.command_line import run_command
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import WITH_HARNESS, MeshProcess, running_mesh
from harness.promise_scale import PromiseScale, percentiles
from trunkline.errors import PeerTimeoutError
from trunkline.mesh.client import ChannelPool, HostClient
from trunkline.v1 import message_pb2, message_service_pb2, part_pb2, snapshot_pb2, task_pb2

FAILED = task_pb2.TASK_STATE_FAILED
CANCELED = task_pb2.TASK_STATE_CANCELED


async def the_tree(client: HostClient, root_id: str) -> list[snapshot_pb2.TaskSnapshot]:
    """Return a task and all its descendants."""
    root = await client.get_task(root_id, account="anonymous")
    tree = [root]
    for child in root.children:
        tree += await the_tree(client, child.started.task_id)
    return tree


async def warm_up(mesh: MeshProcess, tool: BlockedTool) -> None:
    """Load what a first question needs, because that takes longer than the deadlines."""
    params = {"message": user_message(tool.question)}
    async with sse(mesh.http_url, "/", "SendStreamingMessage", params) as answer:
        first = await anext(answer.events())
        ended = await tool.wait_for_call()
        await call(mesh.http_url, "/", "CancelTask", {"id": first.result["task"]["id"]})
        async with asyncio.timeout(PATIENCE_S):
            await ended.wait()


async def test_deadlines_travel(tmp_path: Path, scale: PromiseScale) -> None:
    """Bridge, supervisor, agent and a blocked tool all end at the caller's deadline."""
    runs = scale.pick(ci=2, prove=200)
    # CI's timeout covers the way to the tool on a busy machine.
    given_s = scale.pick(ci=2.0, prove=0.5)
    late: list[float] = []
    cancel_delays_s: list[float] = []
    async with (
        running_mesh(tmp_path, *mcp_flags(tmp_path)) as mesh,
        blocked_tool() as tool,
        ChannelPool(mesh_credentials(), ping_s=PATIENCE_S) as channels,
    ):
        client = HostClient(channels.get(mesh.mesh_address))
        await warm_up(mesh, tool)
        for _ in range(runs):
            params = {"message": user_message(tool.question)}
            headers = {"Trunkline-Timeout": str(given_s)}
            fold = ClientFold()
            async with sse(mesh.http_url, "/", "SendStreamingMessage", params, headers) as answer:
                async for event in answer.events():
                    fold.apply(event)
            ended_at = datetime.now(UTC)
            ended = await tool.wait_for_call()
            async with asyncio.timeout(PATIENCE_S):
                await ended.wait()
            canceled_at = datetime.now(UTC)
            assert fold.state == "TASK_STATE_FAILED"
            tree = await the_tree(client, fold.task_id)
            assert [snapshot.agent for snapshot in tree] == ["supervisor", "hold"]
            # The child meets the deadline, or its parent does first and cancels it.
            assert tree[0].task.status.state == FAILED
            assert {snapshot.task.status.state for snapshot in tree} <= {FAILED, CANCELED}
            (deadline,) = {snapshot.deadline.ToDatetime(tzinfo=UTC) for snapshot in tree}
            ends = [snapshot.task.status.timestamp.ToDatetime(tzinfo=UTC) for snapshot in tree]
            assert deadline <= max(ends)
            late.append((ended_at - deadline).total_seconds())
            cancel_delays_s.append((canceled_at - deadline).total_seconds())
    if scale.is_proof:
        assert max(late) <= 0.25, late
    scale.report(
        runs=runs, stream_ended_late=percentiles(late), tool_told_late=percentiles(cancel_delays_s)
    )


async def test_a_stream_s_own_timeout_ends_only_the_stream(tmp_path: Path) -> None:
    """A caller's timeout, over gRPC and over SSE, does not end its task."""
    async with (
        running_mesh(tmp_path) as mesh,
        ChannelPool(mesh_credentials(), ping_s=PATIENCE_S) as channels,
    ):
        client = HostClient(channels.get(mesh.mesh_address))
        message = message_pb2.Message(
            message_id="m", role=message_pb2.ROLE_USER, parts=[part_pb2.Part(text="count 40 25")]
        )
        try:
            await client.send_message(
                agent="echo",
                message=message,
                submission=message_service_pb2.Submission(account="anonymous"),
                timeout_s=0.2,
            )
        except PeerTimeoutError:
            timed_out = True
        assert timed_out
        params = {"message": user_message("count 40 25")}
        async with sse(mesh.http_url, "/agents/echo", "SendStreamingMessage", params) as answer:
            event = await anext(answer.events())
            answer.cut()
        task_id: str = event.result["task"]["id"]
        async with client.watch_task(task_id, account="anonymous") as stream:
            async for _ in stream:
                pass
        task = await client.get_task(task_id, account="anonymous")
        assert task.task.status.state == task_pb2.TASK_STATE_COMPLETED


async def test_an_agent_has_a_default_deadline_that_a_caller_may_shorten(tmp_path: Path) -> None:
    """An agent's `timeout_s` applies to tasks without a deadline or with a later one."""
    flags = ("--agent", "harness.agents.slow_agent:slow")
    async with running_mesh(tmp_path, *flags, environment=WITH_HARNESS) as mesh:
        for header in ({}, {"Trunkline-Timeout": "0.7"}, {"Trunkline-Timeout": "600"}):
            fold = ClientFold()
            params = {"message": user_message("anything")}
            started = datetime.now(UTC)
            async with sse(
                mesh.http_url, "/agents/slow", "SendStreamingMessage", params, header
            ) as answer:
                async for event in answer.events():
                    fold.apply(event)
            assert fold.state == "TASK_STATE_FAILED"
            deadline = await deadline_of(mesh, fold.task_id)
            timeout_s = float(header.get("Trunkline-Timeout", "1.0"))
            # The deadline counts from a moment after the request was sent.
            assert (deadline - started).total_seconds() >= min(timeout_s, 1.0)


async def deadline_of(mesh: MeshProcess, task_id: str) -> datetime:
    """Return a task's absolute deadline."""
    async with ChannelPool(mesh_credentials(), ping_s=PATIENCE_S) as channels:
        client = HostClient(channels.get(mesh.mesh_address))
        task = await client.get_task(task_id, account="anonymous")
    assert task.HasField("deadline")
    return task.deadline.ToDatetime(tzinfo=UTC)


async def test_ask_sends_its_timeout(tmp_path: Path) -> None:
    """`trunkline ask --timeout` ends the task and prints the reason."""
    async with running_mesh(tmp_path) as mesh:
        asked = await run_command("ask", "wait 600", "--url", mesh.http_url, "--timeout", "0.5")
    assert asked.exit == 1
    assert "deadline" in asked.err


async def test_no_hidden_limit_ends_what_takes_over_a_minute(
    tmp_path: Path, scale: PromiseScale
) -> None:
    """A silent task may run for any time, over a stream and over a unary call."""
    seconds = scale.pick(ci=3, prove=70)
    async with (
        running_mesh(tmp_path) as mesh,
        ChannelPool(mesh_credentials(), ping_s=PATIENCE_S) as channels,
    ):
        client = HostClient(channels.get(mesh.mesh_address))
        message = message_pb2.Message(
            message_id="m",
            role=message_pb2.ROLE_USER,
            parts=[part_pb2.Part(text=f"wait {seconds}")],
        )

        async def stream() -> str:
            fold = ClientFold()
            params = {"message": user_message(f"wait {seconds}")}
            async with sse(mesh.http_url, "/", "SendStreamingMessage", params) as answer:
                async for event in answer.events():
                    fold.apply(event)
            return fold.state

        async with asyncio.TaskGroup() as group:
            streaming = group.create_task(stream())
            sending = group.create_task(
                client.send_message(
                    agent="supervisor",
                    message=message,
                    submission=message_service_pb2.Submission(),
                    timeout_s=600,
                )
            )
        assert streaming.result() == "TASK_STATE_COMPLETED"
        answer = sending.result()
        assert isinstance(answer, snapshot_pb2.TaskSnapshot)
        assert answer.task.status.state == task_pb2.TASK_STATE_COMPLETED
    scale.report(silent_for_s=seconds)
