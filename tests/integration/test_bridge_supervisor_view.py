"""A supervisor's task over the bridge: its view on the wire, for each way to read it."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from itertools import groupby
from pathlib import Path

import pytest

from harness.a2a.bridged_mesh import Caller, Event, Json, Stream, open_bridged_mesh
from harness.mesh.small_mesh import PATIENCE_S
from trunkline.agents import FunctionAgent, agent
from trunkline.settings import Settings
from trunkline.tasks.context import TaskContext
from trunkline_agents.echo.agent import echo

TWO_STEPS = "count 20 1 and count 30 1"


@pytest.fixture
async def caller(tmp_path: Path) -> AsyncIterator[Caller]:
    settings = Settings(default_agent="supervisor")
    async with open_bridged_mesh(tmp_path, settings) as bridged:
        await bridged.mesh.join(echo)
        await bridged.mesh.supervise()
        yield bridged.at("/")


async def ask(caller: Caller, text: str) -> list[Event]:
    async with caller.streamed(text) as stream:
        return await stream.rest()


def updates(events: list[Event]) -> list[Json]:
    return [event.result["artifactUpdate"] for event in events if "artifactUpdate" in event.result]


def folded_texts(events: list[Event]) -> dict[str, str]:
    """Return the text of each artifact, folded from events by the rules of A2A."""
    texts: dict[str, str] = {}
    for update in updates(events):
        artifact = update["artifact"]
        before = texts[artifact["artifactId"]] if update.get("append") else ""
        texts[artifact["artifactId"]] = before + "".join(part["text"] for part in artifact["parts"])
    return texts


async def test_the_view_is_the_task_the_plan_the_tools_the_results_and_the_end(
    caller: Caller,
) -> None:
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


async def test_the_plan_streams_between_brackets_and_is_then_whole_under_its_id(
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
    assert whole["artifact"]["parts"] == [{"text": streamed}]
    assert streamed == "⟦1. echo: count 20 1\n2. echo: count 30 1⟧"
    assert whole.get("append", False) is False
    assert whole["lastChunk"] is True


async def test_each_parallel_writer_keeps_one_artifact_id(caller: Caller) -> None:
    events = await ask(caller, TWO_STEPS)
    results = [
        update for update in updates(events) if update["artifact"]["name"] == "streaming_result"
    ]
    firsts = [update for update in results if not update.get("append", False)]
    ids = {update["artifact"]["artifactId"] for update in results}
    metadata = [update["artifact"]["metadata"] for update in firsts]
    assert {item["trunkline/agent"] for item in metadata} == {"echo"}
    assert sorted(item["trunkline/step"] for item in metadata) == ["step-1", "step-2"]
    assert {update["artifact"]["artifactId"] for update in firsts} == ids
    counted = {"".join(f"{n} " for n in range(1, upto + 1)) for upto in (20, 30)}
    assert {folded_texts(events)[artifact_id] for artifact_id in ids} == counted


async def test_the_folded_stream_equals_get_task(caller: Caller) -> None:
    events = await ask(caller, TWO_STEPS)
    task = await caller.call("GetTask", {"id": events[0].result["task"]["id"]})
    texts = {
        artifact["artifactId"]: "".join(part["text"] for part in artifact["parts"])
        for artifact in task["artifacts"]
    }
    assert folded_texts(events) == texts
    assert task["metadata"]["trunkline/route"]["agent"] == "echo"


async def test_the_view_resumes_after_any_event(caller: Caller) -> None:
    whole = await ask(caller, "count 3 and count 4")
    task = {"id": whole[0].result["task"]["id"]}
    for index, event in enumerate(whole):
        headers = {"Last-Event-ID": event.id}
        async with caller.stream("SubscribeToTask", task, headers) as resumed:
            remaining = await resumed.rest()
        assert [(item.id, item.result) for item in remaining] == [
            (item.id, item.result) for item in whole[index + 1 :]
        ]


class Chorus:
    """Eight agents that write a word each in rounds; the test starts each round."""

    names = ("ada", "bob", "cyd", "dan", "eve", "fay", "gus", "hal")

    def __init__(self) -> None:
        self.rounds = [asyncio.Event() for _ in range(4)]

    def agent(self, name: str) -> FunctionAgent:
        @agent(name=name, description="Sings.", tags=[name])
        async def sing(_task: TaskContext) -> AsyncGenerator[str, None]:
            for number, may_begin in enumerate(self.rounds):
                await may_begin.wait()
                yield f"{name} {number} "

        return sing

    def text_of(self, name: str) -> str:
        return "".join(f"{name} {number} " for number in range(len(self.rounds)))

    async def conduct(self, stream: Stream) -> list[Event]:
        """Read a stream to its end; start each round when all words of the previous one arrived."""
        self.rounds[0].set()
        index: list[Event] = []
        words: Counter[str] = Counter()
        async for event in stream:
            index.append(event)
            number = event.text.strip().rpartition(" ")[2]
            words[number] += number.isdecimal()
            if words[number] == len(self.names) and int(number) + 1 < len(self.rounds):
                self.rounds[int(number) + 1].set()
        return index


async def test_eight_concurrent_children_are_each_one_artifact_in_the_view(tmp_path: Path) -> None:
    chorus = Chorus()
    settings = Settings(default_agent="supervisor")
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
    assert all("artifactUpdate" in event.result for event in events[2:-1])
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
    plan_ids = {plan["artifact"]["artifactId"] for plan in by_name["execution_plan_streaming"]}
    assert {plan["artifact"]["artifactId"] for plan in by_name["execution_plan_update"]} == plan_ids
    for name in ("tool_notification_start", "tool_notification_complete"):
        notes = by_name[name]
        assert len({note["artifact"]["artifactId"] for note in notes}) == len(notes) == 8
        assert all(note["lastChunk"] and not note.get("append", False) for note in notes)
    results = by_name["streaming_result"]
    written: dict[str, list[Json]] = {}
    for update in results:
        written.setdefault(update["artifact"]["artifactId"], []).append(update)
    assert len(written) == 8
    for own in written.values():
        first, *others = own
        agent_name = first["artifact"]["metadata"]["trunkline/agent"]
        step = chorus.names.index(agent_name) + 1
        assert first["artifact"]["metadata"]["trunkline/step"] == f"step-{step}"
        assert not first.get("append", False)
        assert all(other["append"] for other in others)
        assert [item.get("lastChunk", False) for item in own] == [False] * (len(own) - 1) + [True]
        full_text = "".join(part["text"] for item in own for part in item["artifact"]["parts"])
        assert full_text == chorus.text_of(agent_name)
    # They streamed concurrently: every round has a word of each.
    round_words = [update["artifact"]["parts"][0]["text"].split()[1:] for update in results]
    numbers = [int(number) for words in round_words for number in words]
    assert numbers == sorted(numbers)
    (whole,) = by_name["partial_result"]
    assert whole["artifact"]["parts"] == [{"text": "\n".join(map(chorus.text_of, chorus.names))}]
    assert whole["lastChunk"] is True
    assert updates(events)[-1] == whole
    assert folded_texts(events) == {
        artifact["artifactId"]: "".join(part["text"] for part in artifact["parts"])
        for artifact in task["artifacts"]
    }
