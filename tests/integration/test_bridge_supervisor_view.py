"""The wire view of a supervisor's task, from the supervisor's journal to the client's hands."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from itertools import groupby
from pathlib import Path

import pytest

from harness.a2a.bridged_mesh import Caller, Event, Json, Stream, open_bridged_mesh
from harness.mesh.small_mesh import PATIENCE_S
from trunkline.agents import FunctionAgent, agent
from trunkline.tasks.context import TaskContext
from trunkline_agents.echo.agent import echo
from trunkline_bridge.settings import BridgeSettings

TWO_STEPS = "count 20 1 and count 30 1"


@pytest.fixture
async def caller(tmp_path: Path) -> AsyncIterator[Caller]:
    settings = BridgeSettings(default_agent="supervisor")
    async with open_bridged_mesh(tmp_path, settings) as bridged:
        await bridged.mesh.join(echo)
        await bridged.mesh.supervise()
        yield bridged.at("/")


async def ask(caller: Caller, text: str) -> list[Event]:
    async with caller.streamed(text) as stream:
        return await stream.rest()


def updates(events: list[Event]) -> list[Json]:
    return [one.result["artifactUpdate"] for one in events if "artifactUpdate" in one.result]


def held(events: list[Event]) -> dict[str, str]:
    """The text of each artifact, as a client that does what events say holds it."""
    texts: dict[str, str] = {}
    for update in updates(events):
        artifact = update["artifact"]
        before = texts[artifact["artifactId"]] if update.get("append") else ""
        texts[artifact["artifactId"]] = before + "".join(part["text"] for part in artifact["parts"])
    return texts


async def test_it_is_the_task_the_plan_the_tools_the_results_and_the_end(caller: Caller) -> None:
    events = await ask(caller, "count 3")
    names = [update["artifact"]["name"] for update in updates(events)]
    assert [name for name, _ in groupby(names)] == [
        "execution_plan_streaming",
        "execution_plan_update",
        "tool_notification_start",
        "streaming_result",
        "tool_notification_complete",
        "partial_result",
    ]
    assert [events[0].state, events[1].state, events[-1].state] == [
        "TASK_STATE_SUBMITTED",
        "TASK_STATE_WORKING",
        "TASK_STATE_COMPLETED",
    ]
    last = updates(events)[-1]
    assert last["artifact"]["parts"] == [{"text": "1 2 3 "}]
    assert last["lastChunk"] is True


async def test_the_plan_streams_between_brackets_and_comes_whole_under_its_id(
    caller: Caller,
) -> None:
    plan = [
        update
        for update in updates(await ask(caller, TWO_STEPS))
        if update["artifact"]["name"].startswith("execution_plan")
    ]
    assert len({update["artifact"]["artifactId"] for update in plan}) == 1
    *pieces, whole = plan
    streamed = "".join(piece["artifact"]["parts"][0]["text"] for piece in pieces)
    assert streamed.startswith("⟦")
    assert streamed.endswith("⟧")
    assert [piece.get("append", False) for piece in pieces] == [False] + [True] * (len(pieces) - 1)
    assert whole["artifact"]["name"] == "execution_plan_update"
    assert whole["artifact"]["parts"][0]["text"].splitlines() == [
        "1. count 20 1 (echo)",
        "2. count 30 1 (echo)",
    ]
    assert whole.get("append", False) is False
    assert whole["lastChunk"] is True


async def test_each_parallel_writer_has_one_id_for_its_whole_life(caller: Caller) -> None:
    events = await ask(caller, TWO_STEPS)
    results = [
        update for update in updates(events) if update["artifact"]["name"] == "streaming_result"
    ]
    firsts = [update for update in results if not update.get("append", False)]
    ids = {update["artifact"]["artifactId"] for update in results}
    written_for = [update["artifact"]["metadata"] for update in firsts]
    assert {one["trunkline/agent"] for one in written_for} == {"echo"}
    assert sorted(one["trunkline/step"] for one in written_for) == ["step-1", "step-2"]
    assert {update["artifact"]["artifactId"] for update in firsts} == ids
    counted = {"".join(f"{n} " for n in range(1, upto + 1)) for upto in (20, 30)}
    assert {held(events)[artifact_id] for artifact_id in ids} == counted


async def test_what_a_client_holds_is_what_get_task_says(caller: Caller) -> None:
    events = await ask(caller, TWO_STEPS)
    task = await caller.call("GetTask", {"id": events[0].result["task"]["id"]})
    said = {
        artifact["artifactId"]: "".join(part["text"] for part in artifact["parts"])
        for artifact in task["artifacts"]
    }
    assert held(events) == said
    assert task["metadata"]["trunkline/route"]["agent"] == "echo"


async def test_it_resumes_behind_any_event(caller: Caller) -> None:
    whole = await ask(caller, "count 3 and count 4")
    task = {"id": whole[0].result["task"]["id"]}
    for seen, event in enumerate(whole):
        headers = {"Last-Event-ID": event.id}
        async with caller.stream("SubscribeToTask", task, headers) as resumed:
            rest = await resumed.rest()
        assert [(one.id, one.result) for one in rest] == [
            (one.id, one.result) for one in whole[seen + 1 :]
        ]


class Chorus:
    """Eight agents that say a word each in rounds; the next one begins when the test says so."""

    names = ("ada", "bob", "cyd", "dan", "eve", "fay", "gus", "hal")

    def __init__(self) -> None:
        self.rounds = [asyncio.Event() for _ in range(4)]

    def agent(self, name: str) -> FunctionAgent:
        @agent(name=name, description="Sings.", tags=[name])
        async def sing(_task: TaskContext) -> AsyncGenerator[str, None]:
            for number, begins in enumerate(self.rounds):
                await begins.wait()
                yield f"{name} {number} "

        return sing

    def sung(self, name: str) -> str:
        return "".join(f"{name} {number} " for number in range(len(self.rounds)))

    async def conduct(self, stream: Stream) -> list[Event]:
        """Read a stream to its end, and begin each round when all words of the last are there."""
        self.rounds[0].set()
        seen: list[Event] = []
        heard: Counter[str] = Counter()
        async for event in stream:
            seen.append(event)
            number = event.text.strip().rpartition(" ")[2]
            heard[number] += number.isdecimal()
            if heard[number] == len(self.names) and int(number) + 1 < len(self.rounds):
                self.rounds[int(number) + 1].set()
        return seen


async def test_eight_children_that_stream_at_once_are_each_one_artifact_in_the_view(
    tmp_path: Path,
) -> None:
    chorus = Chorus()
    settings = BridgeSettings(default_agent="supervisor")
    async with asyncio.timeout(PATIENCE_S), open_bridged_mesh(tmp_path, settings) as bridged:
        await bridged.mesh.join(*(chorus.agent(name) for name in chorus.names[:4]))
        await bridged.mesh.join(*(chorus.agent(name) for name in chorus.names[4:]))
        await bridged.mesh.supervise()
        caller = bridged.at("/")
        text = ", and ".join(f"@{name} sing" for name in chorus.names)
        async with caller.streamed(text) as stream:
            events = await chorus.conduct(stream)
        task = await caller.call("GetTask", {"id": events[0].result["task"]["id"]})

    assert [events[0].state, events[1].state, events[-1].state] == [
        "TASK_STATE_SUBMITTED",
        "TASK_STATE_WORKING",
        "TASK_STATE_COMPLETED",
    ]
    assert all("artifactUpdate" in one.result for one in events[2:-1])
    by_name: dict[str, list[Json]] = {}
    for update in updates(events):
        by_name.setdefault(update["artifact"]["name"], []).append(update)
    assert list(by_name) == [
        "execution_plan_streaming",
        "execution_plan_update",
        "tool_notification_start",
        "streaming_result",
        "tool_notification_complete",
        "partial_result",
    ]
    plan_ids = {one["artifact"]["artifactId"] for one in by_name["execution_plan_streaming"]}
    assert {one["artifact"]["artifactId"] for one in by_name["execution_plan_update"]} == plan_ids
    for name in ("tool_notification_start", "tool_notification_complete"):
        notes = by_name[name]
        assert len({one["artifact"]["artifactId"] for one in notes}) == len(notes) == 8
        assert all(one["lastChunk"] and not one.get("append", False) for one in notes)
    results = by_name["streaming_result"]
    written: dict[str, list[Json]] = {}
    for update in results:
        written.setdefault(update["artifact"]["artifactId"], []).append(update)
    assert len(written) == 8
    for own in written.values():
        first, *others = own
        singer = first["artifact"]["metadata"]["trunkline/agent"]
        step = chorus.names.index(singer) + 1
        assert first["artifact"]["metadata"]["trunkline/step"] == f"step-{step}"
        assert not first.get("append", False)
        assert all(one["append"] for one in others)
        assert [one.get("lastChunk", False) for one in own] == [False] * (len(own) - 1) + [True]
        said = "".join(part["text"] for one in own for part in one["artifact"]["parts"])
        assert said == chorus.sung(singer)
    # They streamed at once: in every round there is a word of each.
    said_in = [update["artifact"]["parts"][0]["text"].split()[1:] for update in results]
    numbers = [int(number) for words in said_in for number in words]
    assert numbers == sorted(numbers)
    (whole,) = by_name["partial_result"]
    assert whole["artifact"]["parts"] == [{"text": "\n".join(map(chorus.sung, chorus.names))}]
    assert whole["lastChunk"] is True
    assert updates(events)[-1] == whole
    assert held(events) == {
        artifact["artifactId"]: "".join(part["text"] for part in artifact["parts"])
        for artifact in task["artifacts"]
    }
