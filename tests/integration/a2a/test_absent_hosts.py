"""A brief absence of a host is invisible to A2A clients; a long one is an error."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness.a2a.bridged_mesh import BridgedMesh, Caller, Event, open_bridged_mesh
from harness.a2a.sse_client import ClientFold, RefusedError, sse
from harness.agents.stepped_agent import SteppedAgent
from harness.mesh.small_mesh import PATIENCE_S, JoinedHost
from trunkline.core.settings import Settings
from trunkline.errors import PeerUnavailableError
from trunkline.processes.hosting import describe_host
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import message_pb2, message_service_pb2
from trunkline_agents.echo.agent import echo

HEARTBEAT_S = 0.05


@asynccontextmanager
async def gated_mesh(
    folder: Path, *, patience_s: float = PATIENCE_S
) -> AsyncIterator[tuple[BridgedMesh, JoinedHost, SteppedAgent]]:
    gate = SteppedAgent()
    settings = Settings(default_agent="tested", heartbeat_s=HEARTBEAT_S, patience_s=patience_s)
    async with asyncio.timeout(PATIENCE_S), open_bridged_mesh(folder, settings) as bridged:
        yield bridged, await bridged.mesh.join(gate.agent()), gate


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events)


async def test_a_stream_continues_when_its_host_is_back(tmp_path: Path) -> None:
    async with (
        gated_mesh(tmp_path) as (bridged, host, gate),
        bridged.at("/").streamed("go") as stream,
    ):
        events = [await anext(stream)]
        for number in range(5):
            gate.write(f"{number} ")
            while not events[-1].text.endswith(f"{number} "):
                events.append(await anext(stream))
            await host.cut()
            # Text written meanwhile is not lost, and comments keep the stream open.
            gate.write("meanwhile ")
            assert await stream.comment() == ": alive"
            await host.serve_again()
        gate.write("")
        events += await stream.rest()
    assert text(events) == "".join(f"{number} meanwhile " for number in range(5))
    assert events[-1].state == "TASK_STATE_COMPLETED"
    assert len({event.id for event in events}) == len(events)


async def test_a_waiting_call_gets_its_task_when_its_host_is_back(tmp_path: Path) -> None:
    async with gated_mesh(tmp_path) as (bridged, host, gate), asyncio.TaskGroup() as group:
        caller = bridged.at("/")
        waiting = group.create_task(caller.send("go"))
        await gate.began.wait()
        await host.cut()
        gate.write("done", "")
        await host.serve_again()
        task = await waiting
        listed = (await caller.call("ListTasks", {}))["tasks"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"][0]["parts"] == [{"text": "done"}]
    assert [item["id"] for item in listed] == [task["id"]]


async def test_a_message_for_an_unreachable_host_is_accepted_once_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with gated_mesh(tmp_path) as (bridged, host, gate), asyncio.TaskGroup() as group:
        caller = bridged.at("/")
        gate.write("first", "", "second", "")
        await caller.send("go")
        await host.cut()
        waiting = group.create_task(caller.send("go again"))
        await host.serve_again()
        task = await waiting
        listed = (await caller.call("ListTasks", {}))["tasks"]
    assert task["artifacts"][0]["parts"] == [{"text": "second"}]
    assert len(listed) == 2


async def test_a_long_absence_of_a_host_ends_the_stream_with_an_error(tmp_path: Path) -> None:
    async with gated_mesh(tmp_path, patience_s=0.3) as (bridged, host, gate):
        caller = bridged.at("/")
        async with caller.streamed("go") as stream:
            events = [await anext(stream)]
            await host.cut()
            last = (await stream.rest())[-1]
        assert last.kind == "error"
        assert last.id == ""
        error = last.response["error"]
        assert error["data"][0]["reason"] == "UNAVAILABLE"
        assert error["data"][1]["retryDelay"] == "1s"
        await host.serve_again()
        gate.write("back", "")
        fold = await resume(bridged.url, events[-1])
    assert list(fold.texts.values()) == ["back"]


async def test_a_message_that_is_sent_again_is_no_first_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gated_mesh(tmp_path) as (bridged, host, gate):
        submit = host.host.submit
        attempts: list[tuple[str, bool]] = []

        async def refuse_once(
            agent: str,
            message: message_pb2.Message,
            submission: message_service_pb2.Submission,
            *,
            is_held: bool = False,
        ) -> SubmitResult | message_pb2.Message:
            attempts.append((submission.task_id, submission.is_first_attempt))
            if len(attempts) == 1:
                raise PeerUnavailableError("this host", "try again")
            return await submit(agent, message, submission, is_held=is_held)

        monkeypatch.setattr(host.host, "submit", refuse_once)
        gate.write("")
        task = await bridged.at("/").send("go")
    assert attempts == [(task["id"], True), (task["id"], False)]


async def test_a_call_fails_after_a_long_absence_of_its_host(tmp_path: Path) -> None:
    async with gated_mesh(tmp_path, patience_s=0.3) as (bridged, host, gate):
        caller = bridged.at("/")
        async with asyncio.TaskGroup() as group:
            params = {"message": caller.message("go")}
            waiting = group.create_task(caller.post("SendMessage", params))
            await gate.began.wait()
            await host.cut()
        answer = waiting.result()
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        await host.serve_again()


async def test_tasks_of_an_agent_that_left_are_served_by_the_host_that_took_them_over(
    tmp_path: Path,
) -> None:
    async with gated_mesh(tmp_path) as (bridged, _, _gate):
        joined = await bridged.mesh.join(echo)
        caller = bridged.at("/agents/echo")
        ended = await caller.send("hello")
        waiting = await caller.send("ask what?")
        new_host = describe_host(joined.host, address=joined.address)
        del new_host.agents[:]
        await bridged.mesh.register(new_host)
        await bridged.mesh.directory.wait_until(
            lambda known: "echo" not in known.list_agents(), timeout_s=PATIENCE_S
        )
        assert await caller.call("GetTask", {"id": ended["id"]}) == ended
        async with caller.stream("SubscribeToTask", {"id": waiting["id"]}) as stream:
            first = await anext(stream)
            assert first.result["task"]["id"] == waiting["id"]
            canceled = await caller.call("CancelTask", {"id": waiting["id"]})
            assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
            assert (await stream.rest())[-1].state == "TASK_STATE_CANCELED"
        # Operations on the agent need a host of the agent; at other agents its tasks are unknown.
        other_agent, unknown_agent = bridged.at("/"), bridged.at("/agents/nobody")
        for caller_there, method, params in (
            (caller, "SendMessage", {"message": caller.message("hello")}),
            (caller, "ListTasks", {}),
            (caller, "GetTask", {"id": "another-task"}),
            (caller, "GetTask", {"id": ["no", "id"]}),
            (unknown_agent, "GetTask", {"id": "another-task"}),
        ):
            assert await reason(caller_there, method, params) == "AGENT_NOT_FOUND", (method, params)
        assert await reason(unknown_agent, "GetTask", {"id": ended["id"]}) == "TASK_NOT_FOUND"
        assert await reason(other_agent, "GetTask", {"id": ended["id"]}) == "TASK_NOT_FOUND"


async def reason(caller: Caller, method: str, params: object) -> str:
    """Return the reason of a refused call."""
    return str((await caller.error(method, params))["data"][0]["reason"])


async def resume(url: str, last: Event) -> ClientFold:
    """Resume after a task's first event, with retries until its host is reachable."""
    task = {"id": last.result["task"]["id"]}
    fold = ClientFold()
    async with asyncio.timeout(PATIENCE_S):
        while not fold.has_ended:
            try:
                async with sse(url, "/", "SubscribeToTask", task, {"Last-Event-ID": last.id}) as on:
                    async for event in on.events():
                        fold.apply(event)
            except RefusedError as refused:
                if refused.status != 503:
                    raise
    return fold


async def test_an_unreachable_host_is_waited_for_until_the_deadline(tmp_path: Path) -> None:
    settings = Settings(default_agent="echo", patience_s=3600)
    async with open_bridged_mesh(tmp_path, settings) as bridged:
        joined = await bridged.mesh.join(echo)
        await joined.cut()
        caller = bridged.at("/agents/echo")
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo hi"}]}
        answer = await caller.post(
            "SendMessage", {"message": message}, {"Trunkline-Timeout": "0.5"}
        )
        assert answer.status_code == 503
        assert "the agent's host can't be reached" in answer.json()["error"]["message"]
        assert joined.address not in answer.text


async def test_tasks_of_a_host_that_left_are_unavailable_and_not_unknown(tmp_path: Path) -> None:
    async with open_bridged_mesh(tmp_path) as bridged:
        joined = await bridged.mesh.join(echo)
        caller = bridged.at("/agents/echo")
        task = await caller.send("echo hi")
        await joined.cut()
        answer = await caller.post("GetTask", {"id": task["id"]})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["error"]["data"][0]["reason"] == "UNAVAILABLE"
        error = answer.json()["error"]["message"]
        assert "again" in error.partition("; ")[2]
        assert "errno" not in error.lower()
