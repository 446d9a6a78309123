"""The views of a supervisor's task: the detailed one, and the plain one by extension or setting."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import (
    BridgedMesh,
    Caller,
    Event,
    Json,
    open_bridged_mesh,
)
from trunkline.a2a_wire.protocol import PLAIN_EXTENSION, RESUME_EXTENSION
from trunkline.core.settings import AgentSettings, Settings
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")

TWO_STEPS = "count 20 1 and count 30 1"


PLAIN = {"A2A-Extensions": PLAIN_EXTENSION}
QUESTION = "count 20 1, and @echo fail no, then @echo count 3"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BridgedMesh]:
    settings = Settings(
        default_agent="supervisor", agent_options={"echo": AgentSettings(view="plain")}
    )
    async with open_bridged_mesh(tmp_path_factory.mktemp("views"), settings) as opened:
        await opened.mesh.join(echo)
        await opened.mesh.supervise()
        yield opened


@pytest.fixture
def caller(bridged: BridgedMesh) -> Caller:
    return bridged.at("/")


async def ask(caller: Caller, text: str, headers: dict[str, str] | None = None) -> list[Event]:
    headers = headers or {}
    params = {"message": caller.message(text)}
    async with caller.stream("SendStreamingMessage", params, headers) as stream:
        assert stream.headers.get("a2a-extensions", "") == headers.get("A2A-Extensions", "")
        return await stream.rest()


def updates(events: list[Event]) -> list[Json]:
    return [event.result["artifactUpdate"] for event in events if "artifactUpdate" in event.result]


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


@pytest.mark.parametrize("view", [{}, PLAIN], ids=["detailed", "plain"])
async def test_the_view_resumes_after_any_event(caller: Caller, view: dict[str, str]) -> None:
    whole = await ask(caller, "count 3 and count 4", view)
    task = {"id": whole[0].result["task"]["id"]}
    for index, event in enumerate(whole):
        headers = {**view, "Last-Event-ID": event.id}
        async with caller.stream("SubscribeToTask", task, headers) as resumed:
            remaining = await resumed.rest()
        assert [(item.id, item.result) for item in remaining] == [
            (item.id, item.result) for item in whole[index + 1 :]
        ]


# The plain view.


def texts_of(artifacts: list[Json]) -> dict[str, str]:
    return {
        artifact["artifactId"]: "".join(part["text"] for part in artifact["parts"])
        for artifact in artifacts
    }


async def test_a_client_gets_statuses_and_one_answer_streamed_and_stored(
    bridged: BridgedMesh,
) -> None:
    caller = bridged.at("/")
    events = await ask(caller, QUESTION, PLAIN)
    first, *others = updates(events)
    task_id = events[0].result["task"]["id"]
    task = await caller.call("GetTask", {"id": task_id}, PLAIN)
    detailed = await caller.call("GetTask", {"id": task_id})
    listed = await caller.call(
        "ListTasks", {"contextId": task["contextId"], "includeArtifacts": True}, PLAIN
    )

    assert first["artifact"]["metadata"]["trunkline/role"] == "answer"
    assert not first.get("append", False)
    # The first step was counted while it ran, and nothing is sent again.
    assert len(others) > 1
    assert all(update["append"] for update in others)
    assert [bool(update.get("lastChunk")) for update in others] == [False] * (len(others) - 1) + [
        True
    ]
    text = "".join(event.text for event in events)
    assert text.startswith("1 2 3 ")
    assert "Could not answer" in text
    assert texts_of(task["artifacts"]) == {"answer-1": text}
    assert texts_of(listed["tasks"][0]["artifacts"]) == {"answer-1": text}
    roles = [artifact["metadata"]["trunkline/role"] for artifact in detailed["artifacts"]]
    assert roles.count("answer") == 1
    assert texts_of(detailed["artifacts"][-1:]) == {"answer-1": text}
    for metadata in (task["metadata"], events[-1].result["statusUpdate"]["metadata"]):
        assert metadata["trunkline/outcome"] == "partial"


async def test_a_setting_chooses_the_view_of_an_agent_and_both_extensions_may_be_active(
    bridged: BridgedMesh,
) -> None:
    by_setting = await ask(bridged.at("/agents/echo"), "count 3", {})
    both = {"A2A-Extensions": f"{RESUME_EXTENSION}, {PLAIN_EXTENSION}"}
    by_extension = await ask(bridged.at("/agents/echo"), "count 3", both)

    def shown(events: list[Event]) -> list[Any]:
        return [(event.text, event.state) for event in events]

    assert shown(by_setting) == shown(by_extension)
    assert {update["artifact"]["artifactId"] for update in updates(by_setting)} == {"answer-1"}
    assert "".join(event.text for event in by_setting) == "1 2 3 "


async def test_older_versions_have_the_plain_view_too(bridged: BridgedMesh) -> None:
    caller = bridged.at("/")
    params = {
        "message": {
            "role": "user",
            "messageId": "old-1",
            "parts": [{"kind": "text", "text": "count 3"}],
        }
    }
    headers = {"X-A2A-Extensions": PLAIN_EXTENSION}
    sent = await caller.call("message/send", params, headers)
    async with caller.stream("tasks/resubscribe", {"id": sent["id"]}, headers) as stream:
        events = await stream.rest()

    (artifact,) = sent["artifacts"]
    assert artifact["metadata"] == {"trunkline/role": "answer"}
    assert artifact["parts"] == [{"kind": "text", "text": "1 2 3 "}]
    assert sent["metadata"]["trunkline/outcome"] == "complete"
    assert events[-1].result["metadata"]["trunkline/outcome"] == "complete"
