"""Remote agents that break the protocol or the connection, or are unusual: our task ends well."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from harness.agents.inline_agents import status_texts, texts
from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from harness.remote.scripted_agent import (
    Answer,
    ScriptedAgent,
    artifact,
    chunk,
    error,
    head,
    http,
    message,
    raw,
    result,
    scripted_agent,
    silence,
    status,
    stream,
    task,
)
from trunkline import Client
from trunkline.a2a_client import transport, turn_follower
from trunkline.a2a_client.remote_agent import connect_remote_agent
from trunkline.a2a_client.settings import RemoteSettings
from trunkline.a2a_wire.protocol import RESUME_EXTENSION
from trunkline.core.json_values import has_member, read_member, value_json
from trunkline.core.small_files import FolderFiles
from trunkline.errors import PeerProtocolError
from trunkline.mesh.client.breaker import BreakerSettings
from trunkline.tasks.lifecycle import State
from trunkline.v1 import message_service_pb2, snapshot_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAM = "SendStreamingMessage"
SETTINGS = RemoteSettings(url="", name="far", breaker=BreakerSettings(failures=1000))


@dataclass
class Far:
    """A mesh, and an agent elsewhere that answers by the script of a test.

    Each test, and each call with settings, puts the agent on the mesh under another name.
    """

    mesh: SmallMesh
    agent: ScriptedAgent
    joined: int = 0

    async def join(self, agent: ScriptedAgent | None = None, **settings: Any) -> str:
        """Put an agent elsewhere on the mesh; return its name there."""
        self.joined += 1
        name = f"far-{self.joined}"
        url = (agent or self.agent).url
        remote = connect_remote_agent(replace(SETTINGS, url=url, name=name, **settings))
        await self.mesh.join((await self.mesh.enter(remote)).agent)
        return name

    async def ask(
        self, agent: ScriptedAgent | None = None, **settings: Any
    ) -> snapshot_pb2.TaskSnapshot:
        """Put an agent elsewhere on the mesh, and ask it."""
        return await self.mesh.ask("hello", agent=await self.join(agent, **settings))

    async def ask_shared(self) -> snapshot_pb2.TaskSnapshot:
        """Ask the agent as the remote agent `far`, which all tests share."""
        return await self.mesh.ask("hello", agent="far")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Far]:
    async with scripted_agent() as agent, open_small_mesh(tmp_path_factory.mktemp("mesh")) as mesh:
        remote = await mesh.enter(connect_remote_agent(replace(SETTINGS, url=agent.url)))
        await mesh.join(remote.agent)
        yield Far(mesh, agent)


@pytest.fixture
def far(served: Far) -> Far:
    """The mesh, and the agent without the script of an earlier test."""
    for method in served.agent.answers.keys() - {"card"}:
        del served.agent.answers[method]
    served.agent.on("CancelTask", result(task("CANCELED")["task"]))
    served.agent.calls.clear()
    return served


BREACHES: dict[str, tuple[Answer, str]] = {
    "another task's update": (
        stream(task(), chunk("a", task_id="t-2")),
        "in the stream of another",
    ),
    "another task's status": (
        stream(task(), status("COMPLETED", taskId="t-2")),
        "in the stream of another",
    ),
    "append to an unknown artifact": (stream(task(), chunk("a", append=True)), "before it began"),
    "append behind the last chunk": (
        stream(task(), chunk("a", lastChunk=True), chunk("b", append=True)),
        "after its last chunk",
    ),
    "a message in a task": (stream(task(), message("a")), "in the middle of a task"),
    "a message without parts": (
        stream({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": []}}),
        "without parts",
    ),
    "an unknown state": (stream(task("ASLEEP")), "no state"),
    "no state": (stream(task(), {"statusUpdate": {"taskId": "t-1", "status": {}}}), "no state"),
    "an unspecified state": (stream(task("UNSPECIFIED")), "a state that A2A doesn't have"),
    "a task without an id": (stream({"task": {"status": {"state": "TASK_STATE_WORKING"}}}), "id"),
    "none of the events": (stream(task(), {"news": {}}), "can't be read"),
    "no object": (stream(task(), [1, 2]), "can't be read"),
    "wrong types": (
        stream(task(), {"artifactUpdate": {"taskId": 7, "artifact": {"artifactId": []}}}),
        "can't be read",
    ),
    "deep nesting": (
        raw(head("text/event-stream") + b"data: " + b"[" * 100_000 + b"\n\n"),
        "without a JSON-RPC response",
    ),
    "a lone surrogate": (
        stream(task(), 'data: {"result":{"statusUpdate":{"taskId":"\\ud800","status":{}}}}'),
        "can't be read",
    ),
    "bad JSON": (raw(head("application/json") + b"{"), "without a JSON-RPC response"),
    "a page": (http("200 OK", "<html>", kind="text/html"), "without a JSON-RPC response"),
    "garbage events": (stream(task(), "data: {"), "without a JSON-RPC response"),
    "neither result nor error": (
        raw(head("application/json") + b"{}"),
        "without a JSON-RPC response",
    ),
    "a redirect": (http("302 Found", more="location: http://127.0.0.1:1/\r\n"), "redirects"),
    "a giant event": (
        stream(task(), "data: " + "x" * (5 * 1024 * 1024)),
        "over 4 MiB",
    ),
    "a compressed answer": (
        http("200 OK", "x", kind="application/json", more="content-encoding: br\r\n"),
        "compressed body",
    ),
    "other credentials": (http("401 Unauthorized"), "rejects the credentials"),
    "an error of its own": (error(-32603, "out of\n order"), "out of order"),
    "an error in the stream": (
        stream(task(), 'data: {"error":{"code":-32603,"message":"lost it"}}'),
        "lost it",
    ),
}


@pytest.mark.parametrize("name", BREACHES)
async def test_a_protocol_violation_fails_the_task_with_the_reason(name: str, far: Far) -> None:
    answer, reason = BREACHES[name]
    far.agent.on(STREAM, answer)
    ended = await far.ask_shared()
    assert ended.task.status.state == State.TASK_STATE_FAILED
    assert reason in status_texts(ended)
    assert "remote agent 'far'" in status_texts(ended)
    # If the remote task was known, it was canceled.
    if ended.children:
        assert (await far.agent.until("CancelTask")).params["id"] == "t-1"
    else:
        assert "t-1" not in str(ended.task.metadata)


def update(*parts: object, artifact_id: object = "a-1") -> dict[str, object]:
    return {
        "artifactUpdate": {
            "taskId": "t-1",
            "contextId": "c-1",
            "artifact": {"artifactId": artifact_id, "parts": parts},
        }
    }


GOOD: dict[str, object] = {"text": "good"}
BAD_PARTS: dict[str, object] = {
    "no content": {},
    "an unknown kind": {"kind": "hologram", "hologram": 1},
    "two contents": {"text": "a", "url": "https://example.com"},
    "a number as text": {"text": 7},
    "no object": "text",
    "null": None,
    "metadata that is no object": {"text": "a", "metadata": [1]},
    "a file without content": {"kind": "file", "file": "x"},
}


@pytest.mark.parametrize("name", BAD_PARTS)
async def test_a_part_that_cannot_be_used_costs_only_itself(
    name: str, far: Far, caplog: pytest.LogCaptureFixture
) -> None:
    bad = BAD_PARTS[name]
    done = status("COMPLETED", "done")
    done["statusUpdate"]["status"]["message"]["parts"].insert(0, bad)
    far.agent.on(STREAM, stream(task(), update(bad, GOOD), done))
    ended = await far.ask()
    assert ended.task.status.state == State.TASK_STATE_COMPLETED, status_texts(ended)
    assert texts(ended) == ["good"]
    assert status_texts(ended) == "done"
    assert {member.rpartition(".")[2] for member in left_out(caplog)} == {"parts[0]"}


def left_out(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the members that the log says were left out."""
    records = [each.__dict__ for each in caplog.records if each.message == "remote.left_out"]
    assert all(record["peer"].startswith("remote agent 'far") for record in records)
    return [record["member"] for record in records]


HISTORY = [{"messageId": "m", "role": "ROLE_USER", "parts": [GOOD]}]
BAD_ENTRIES: dict[str, tuple[Answer, str]] = {
    "an artifact without an id": (
        stream(task(), update(GOOD, artifact_id=""), update(GOOD), status("COMPLETED")),
        "artifact",
    ),
    "an artifact whose id is a number": (
        result(task("COMPLETED", artifacts=[{"artifactId": 1, "parts": []}, artifact("good")])),
        "task.artifacts[0]",
    ),
    "an artifact that is no object": (
        result(task("COMPLETED", artifacts=[artifact("good"), "x"])),
        "task.artifacts[1]",
    ),
    "an artifact with parts that are no list": (
        result(task("COMPLETED", artifacts=[{"artifactId": "b", "parts": 7}, artifact("good")])),
        "task.artifacts[0]",
    ),
    "a message of the history": (
        result(task("COMPLETED", artifacts=[artifact("good")], history=[*HISTORY, 7])),
        "task.history[1]",
    ),
    "a part of the history": (
        result(
            task(
                "COMPLETED",
                artifacts=[artifact("good")],
                history=[{"messageId": "m", "role": "ROLE_USER", "parts": [{"text": 7}]}],
            )
        ),
        "task.history[0].parts[0]",
    ),
}


@pytest.mark.parametrize("name", BAD_ENTRIES)
async def test_an_entry_that_cannot_be_used_costs_only_itself(
    name: str, far: Far, caplog: pytest.LogCaptureFixture
) -> None:
    answer, member = BAD_ENTRIES[name]
    far.agent.on(STREAM, answer)
    ended = await far.ask()
    assert ended.task.status.state == State.TASK_STATE_COMPLETED, status_texts(ended)
    assert texts(ended) == ["good"]
    assert left_out(caplog) == [member]


GOOD_SKILL = {"id": "s", "name": "s", "description": "s", "tags": ["s"]}
BAD_SKILLS: dict[str, tuple[object, list[str], str]] = {
    "no object": ("weigh", ["s"], "card.skills[0]"),
    "null": (None, ["s"], "card.skills[0]"),
    "an id that is a number": ({"id": 7, "name": "w"}, ["s"], "card.skills[0]"),
    "a name that is a list": ({"id": "w", "name": []}, ["s"], "card.skills[0]"),
    "tags that are a number": ({"id": "w", "tags": 7}, ["w", "s"], "card.skills[0].tags"),
    "an example that is a number": (
        {"id": "w", "examples": ["a", 7]},
        ["w", "s"],
        "card.skills[0].examples",
    ),
}


@pytest.mark.parametrize("name", BAD_SKILLS)
async def test_a_skill_that_cannot_be_used_costs_only_itself(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad, skills, member = BAD_SKILLS[name]
    async with scripted_agent() as agent:
        agent.card["skills"] = [bad, GOOD_SKILL]
        agent.card["supportedInterfaces"].append("x")
        agent.card["defaultInputModes"] = ["text/plain", 7]
        settings = replace(SETTINGS, url=agent.url, files=FolderFiles(tmp_path))
        async with connect_remote_agent(settings) as remote:
            card = remote.agent.card
            assert [skill.id for skill in card.skills] == skills
            assert list(card.default_input_modes) == ["text/plain"]
    assert sorted(left_out(caplog)) == sorted(
        [member, "card.supportedInterfaces[1]", "card.defaultInputModes[1]"]
    )


async def test_a_capability_that_cannot_be_read_may_be_required() -> None:
    async with scripted_agent() as agent:
        agent.card["capabilities"]["extensions"] = [{"uri": 7, "required": True}]
        with pytest.raises(PeerProtocolError, match="no agent card"):
            async with connect_remote_agent(replace(SETTINGS, url=agent.url)):
                pass


TOO_MANY: dict[str, Answer] = {
    "artifacts": stream(task(), *(chunk("", artifact_id=f"a-{number}") for number in range(1001))),
    "artifacts of a task": stream(
        task(artifacts=[artifact("", artifact_id=f"a-{number}") for number in range(1001)])
    ),
}


@pytest.mark.parametrize("name", TOO_MANY)
async def test_too_many_artifacts_are_refused(name: str, far: Far) -> None:
    far.agent.on(STREAM, TOO_MANY[name])
    ended = await far.ask_shared()
    assert ended.task.status.state == State.TASK_STATE_FAILED
    assert "more than 1000 artifacts in one turn" in status_texts(ended)
    async with Client(far.agent.url) as client:
        with pytest.raises(PeerProtocolError, match="more than 1000 artifacts in one turn"):
            await client.ask("hi")


LATE_ARTIFACTS: dict[str, tuple[Answer, Answer, list[str]]] = {
    "in the stream": (
        stream(task(), status("COMPLETED"), chunk("one")),
        error(-32601),
        ["one"],
    ),
    "in the stream, after a whole task": (
        stream(task("COMPLETED", artifacts=[artifact("one ")]), chunk("two", append=True)),
        error(-32601),
        ["one two"],
    ),
    "in a second task": (
        stream(task(), status("COMPLETED"), task("COMPLETED", artifacts=[artifact("one")])),
        error(-32601),
        ["one"],
    ),
    "only in the task": (
        stream(task(), status("COMPLETED")),
        result(task("COMPLETED", artifacts=[artifact("one")])["task"]),
        ["one"],
    ),
    "in the task of a stream that stays open": (
        stream(task(), chunk("o"), status("COMPLETED"), then=asyncio.Event()),
        result(task("COMPLETED", artifacts=[artifact("one")])["task"]),
        ["one"],
    ),
    "in a task whose state is not yet updated": (
        stream(task(), status("COMPLETED")),
        result(task("WORKING", artifacts=[artifact("one")])["task"]),
        ["one"],
    ),
    "before garbage": (
        stream(task(), status("COMPLETED"), chunk("one"), "data: {"),
        error(-32601),
        ["one"],
    ),
    "nowhere": (stream(task(), status("COMPLETED")), error(-32601), []),
}


@pytest.mark.parametrize("name", LATE_ARTIFACTS)
async def test_an_artifact_after_the_end_of_the_task_is_part_of_the_answer(
    name: str, far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "LATE_EVENTS_S", 0.2)
    answer, task_answer, expected = LATE_ARTIFACTS[name]
    far.agent.on(STREAM, answer)
    far.agent.on("GetTask", task_answer)
    ended = await far.ask_shared()
    assert ended.task.status.state == State.TASK_STATE_COMPLETED, status_texts(ended)
    assert texts(ended) == expected
    assert len(far.agent.find_requests("GetTask")) <= 1


def whole(text: str, state: str = "COMPLETED") -> Answer:
    """Answer `GetTask` with a task that has this text."""
    return result(task(state, artifacts=[artifact(text)])["task"])


@dataclass(frozen=True)
class Turn:
    """A turn of the remote agent, and how ours ends."""

    script: Mapping[str, tuple[Answer, ...]]
    """The answers for each method."""
    texts: list[str]
    state: State.ValueType = State.TASK_STATE_COMPLETED
    reason: str = ""
    """A part of the status text."""
    calls: Mapping[str, int] = field(default_factory=dict)
    """How often a method was called."""
    settings: Mapping[str, Any] = field(default_factory=dict)


ONE = stream(task(), chunk("one"), status("COMPLETED"))
CUT = stream(task(), chunk("on"), cut=True)
OLD_TASK = {"kind": "task", "id": "t-1", "contextId": "c-1", "status": {"state": "completed"}}
BUSY = http("429 Too Many Requests", more="retry-after: 0\r\n")
ONE_FAILURE: dict[str, Any] = {"breaker": BreakerSettings(failures=1)}
TURNS: dict[str, Turn] = {
    "more content than the limit": Turn(
        {STREAM: (stream(task(), chunk("a" * 600), chunk("b" * 600, append=True)),)},
        ["a" * 600],
        State.TASK_STATE_FAILED,
        "more than",
        settings={"content_bytes": 1000},
    ),
    "silence from the start": Turn(
        {STREAM: (silence,)},
        [],
        State.TASK_STATE_FAILED,
        "nothing came for 0.3 s",
        settings={"idle_s": 0.3},
    ),
    "a cut stream continues from a snapshot without doubling or loss": Turn(
        {
            STREAM: (stream(task(), chunk("one "), chunk("two ", append=True), cut=True),),
            "SubscribeToTask": (
                stream(
                    task(artifacts=[artifact("one two three ")]),
                    chunk("four", append=True),
                    status("COMPLETED"),
                ),
            ),
            "GetTask": (whole("one two three four"),),
        },
        ["one two three four"],
    ),
    # The snapshot contains text that the stream then repeats.
    "text doubled by a gap is corrected at the end": Turn(
        {
            STREAM: (stream(task(), chunk("one ", lastChunk=False), cut=True),),
            "SubscribeToTask": (
                stream(
                    task(artifacts=[artifact("one two ")]),
                    chunk("two ", append=True),
                    status("COMPLETED"),
                ),
            ),
            "GetTask": (whole("one two "),),
        },
        ["one two "],
    ),
    "a task that ended during the gap is read": Turn(
        {STREAM: (CUT,), "SubscribeToTask": (error(-32004),), "GetTask": (whole("one"),)},
        ["one"],
    ),
    "a peer whose subscriptions lack a snapshot is polled": Turn(
        {
            STREAM: (CUT,),
            "SubscribeToTask": (stream(chunk("e more", append=True)),),
            "GetTask": (whole("one mo", "WORKING"), whole("one more")),
        },
        ["one more"],
        calls={"SubscribeToTask": 1},
    ),
    "a card may declare streams that do not exist": Turn(
        {
            STREAM: (error(-32004),),
            "SendMessage": (result(task("COMPLETED", artifacts=[artifact("one")])),),
        },
        ["one"],
    ),
    "a stream may be a single response": Turn(
        {STREAM: (result(task("COMPLETED", artifacts=[artifact("one")])),)}, ["one"]
    ),
    "a peer with another version than on its card is called in its version": Turn(
        {
            STREAM: (error(-32601),),
            "message/stream": (stream({**OLD_TASK, "artifacts": [artifact("one")]}),),
        },
        ["one"],
    ),
    "if neither version works, the first refusal is the error": Turn(
        {}, [], State.TASK_STATE_FAILED, "refused"
    ),
    "an overloaded peer is retried after its delay": Turn(
        {STREAM: (BUSY, http("503 Service Unavailable"), ONE)}, ["one"]
    ),
    "an overloaded agent opens no breaker": Turn(
        {STREAM: (BUSY, ONE)}, ["one"], settings=ONE_FAILURE
    ),
    "a message that may have arrived is not sent twice": Turn(
        {STREAM: (raw(),)}, [], State.TASK_STATE_FAILED, "may have arrived", calls={STREAM: 1}
    ),
    "the task of an unreachable peer fails with the reason": Turn(
        {STREAM: (CUT,), "SubscribeToTask": (raw(),), "GetTask": (raw(),)},
        ["on"],
        State.TASK_STATE_FAILED,
        "can't be reached",
        settings={"patience_s": 0.5},
    ),
    "a canceled remote task is canceled here": Turn(
        {STREAM: (stream(task(), status("CANCELED", "by its operator")),)},
        [],
        State.TASK_STATE_CANCELED,
        "by its operator",
    ),
}


@pytest.mark.parametrize("name", TURNS)
async def test_a_turn_ends_as_well_as_the_peer_allows(name: str, far: Far) -> None:
    turn = TURNS[name]
    for method, answers in turn.script.items():
        far.agent.on(method, *answers)
    ended = await far.ask(**turn.settings)
    assert ended.task.status.state == turn.state, status_texts(ended)
    assert texts(ended) == turn.texts
    assert turn.reason in status_texts(ended)
    for method, count in turn.calls.items():
        assert len(far.agent.find_requests(method)) == count
    # The header names the version of each call.
    for call in far.agent.find_requests("message/stream"):
        assert call.headers["a2a-version"] == "0.3"


async def test_endless_silence_ends_the_task_on_both_sides(far: Far) -> None:
    far.agent.on(STREAM, stream(task(), then=asyncio.Event()))
    # Far longer than the remote task takes to become known, because only then can it be canceled.
    ended = await far.ask(idle_s=1.5)
    assert ended.task.status.state == State.TASK_STATE_FAILED
    assert "nothing came for 1.5 s" in status_texts(ended)
    await far.agent.until("CancelTask")


async def test_a_resumable_stream_continues_after_its_last_event(far: Far) -> None:
    async with scripted_agent(resumes=RESUME_EXTENSION) as agent:
        agent.on(STREAM, stream(task(), chunk("one "), ids=True, cut=True))
        agent.on("SubscribeToTask", stream(chunk("two", append=True), status("COMPLETED")))
        assert texts(await far.ask(agent)) == ["one two"]
        assert agent.find_requests("SubscribeToTask")[0].headers["last-event-id"] == "2"
        assert agent.find_requests(STREAM)[0].headers["a2a-extensions"] == RESUME_EXTENSION
        assert not agent.find_requests("GetTask")


async def test_a_peer_without_streams_is_polled_until_the_end(far: Far) -> None:
    async with scripted_agent(streaming=False) as agent:
        agent.on("SendMessage", result(task("SUBMITTED")))
        agent.on("GetTask", whole("o", "WORKING"), whole("one"))
        assert texts(await far.ask(agent)) == ["one"]
        configuration = agent.find_requests("SendMessage")[0].params["configuration"]
        assert configuration["returnImmediately"] is True


async def test_a_polled_task_that_still_writes_is_not_idle(far: Far) -> None:
    """New content in a polled snapshot restarts `idle_s`, as an event of a stream does."""
    growing = ["x" * length for length in range(1, 17)]
    async with scripted_agent(streaming=False) as agent:
        agent.on("SendMessage", result(task("WORKING")))
        agent.on("GetTask", *(whole(text, "WORKING") for text in growing), whole(growing[-1]))
        # The polls take longer than this in all.
        ended = await far.ask(agent, idle_s=1.2)
        assert ended.task.status.state == State.TASK_STATE_COMPLETED, status_texts(ended)
        assert texts(ended) == [growing[-1]]


FAILED_SERVERS: dict[str, tuple[str, str, str, str]] = {
    "a page": ("JSONRPC", "502 Bad Gateway", "<html>", "HTTP 502"),
    "no body": ("JSONRPC", "500 Internal Server Error", "", "HTTP 500"),
    "an error object": (
        "JSONRPC",
        "500 Internal Server Error",
        '{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"lost it"}}',
        "lost it (HTTP 500)",
    ),
    "a page over HTTP+JSON": ("HTTP+JSON", "502 Bad Gateway", "<html>", "HTTP 502"),
    "an error over HTTP+JSON": (
        "HTTP+JSON",
        "500 Internal Server Error",
        '{"error":{"code":500,"message":"lost it"}}',
        "lost it (HTTP 500)",
    ),
    "a problem over HTTP+JSON": ("HTTP+JSON", "502 Bad Gateway", '{"title":"away"}', "HTTP 502"),
}


@pytest.mark.parametrize("name", FAILED_SERVERS)
@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "response"])
async def test_the_text_of_a_failure_has_its_http_status(
    name: str, far: Far, *, streaming: bool
) -> None:
    binding, answered, body, expected = FAILED_SERVERS[name]
    async with scripted_agent(streaming=streaming) as agent:
        agent.card["supportedInterfaces"][0]["protocolBinding"] = binding
        for method in (STREAM, "SendMessage", "/message:stream", "/message:send"):
            agent.on(method, http(answered, body, kind="application/json"))
        ended = await far.ask(agent)
        assert ended.task.status.state == State.TASK_STATE_FAILED
        assert expected in status_texts(ended)


async def test_a_turn_waits_for_the_probe_of_a_breaker_that_its_tries_opened(far: Far) -> None:
    async with scripted_agent(resumes=RESUME_EXTENSION) as agent:
        agent.on(STREAM, raw(), ONE)
        ended = await far.ask(agent, **ONE_FAILURE)
        assert texts(ended) == ["one"], status_texts(ended)
        first, second = agent.find_requests(STREAM)
        assert first.params["message"] == second.params["message"]


ANSWERS_OF_A_RUNNING_AGENT: dict[str, Answer] = {
    "a page": http("200 OK", "<html>", kind="text/html"),
    "a redirect": http("302 Found", more="location: http://127.0.0.1:1/\r\n"),
    "an error": error(-32603),
    "an error with HTTP 500": http(
        "500 Internal Server Error", '{"error":{"code":-32603,"message":"no"}}'
    ),
    "rejected credentials": http("401 Unauthorized"),
}


@pytest.mark.parametrize("name", ANSWERS_OF_A_RUNNING_AGENT)
async def test_an_answer_of_a_running_agent_opens_no_breaker(name: str, far: Far) -> None:
    far.agent.on(STREAM, ANSWERS_OF_A_RUNNING_AGENT[name], ONE)
    agent = await far.join(**ONE_FAILURE)
    failed = await far.mesh.ask("hello", agent=agent)
    assert failed.task.status.state == State.TASK_STATE_FAILED
    assert texts(await far.mesh.ask("hello", agent=agent)) == ["one"]


async def test_a_peer_that_accepts_only_its_own_contexts_gets_none(far: Far) -> None:
    far.agent.on(STREAM, error(-32602), stream(task(), status("COMPLETED")))
    ended = await far.ask()
    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    first, second = far.agent.find_requests(STREAM)
    assert first.params["message"]["contextId"]
    assert "contextId" not in second.params["message"]


async def test_replaced_content_and_all_kinds_of_parts_are_forwarded(far: Far) -> None:
    data = {"data": {"n": [1, "two", None]}, "metadata": {"k": "v"}}
    update = {
        "taskId": "t-1",
        "contextId": "c-1",
        "artifact": {
            "artifactId": "d",
            "name": "data",
            "description": "what it is",
            "extensions": ["https://example.com/x"],
            "metadata": {"m": True},
            "parts": [data, {"raw": "AAE=", "filename": "f", "mediaType": "image/png"}],
        },
    }
    far.agent.on(
        STREAM,
        stream(
            task(metadata={"theirs": 1, "trunkline/attempt": 9}),
            status("WORKING", "on it"),
            chunk("draft", lastChunk=True),
            chunk("final "),
            chunk("text", append=True, lastChunk=True),
            {"artifactUpdate": update},
            status("COMPLETED", "done", metadata={"cost": 3}),
        ),
    )
    ended = await far.ask_shared()
    text, other_artifacts = ended.task.artifacts
    assert text.parts[0].text == "final text"
    assert (other_artifacts.name, other_artifacts.description) == ("data", "what it is")
    assert list(other_artifacts.extensions) == ["https://example.com/x"]
    assert read_member(other_artifacts.metadata, "m") is True
    assert value_json(other_artifacts.parts[0].data) == data["data"]
    assert (other_artifacts.parts[1].raw, other_artifacts.parts[1].media_type) == (
        b"\x00\x01",
        "image/png",
    )
    assert status_texts(ended) == "done"
    assert read_member(ended.task.metadata, "theirs") == 1
    assert read_member(ended.task.metadata, "cost") == 3
    assert not has_member(ended.task.metadata, "trunkline/attempt")


async def test_a_cancel_that_fails_is_repeated_later(far: Far) -> None:
    far.agent.on(STREAM, stream(task(), status("INPUT_REQUIRED", "which?")))
    far.agent.on("CancelTask", raw(), result(task("CANCELED")["task"]))
    waiting = await far.ask_shared()
    task_id = waiting.task.id
    canceled = await far.mesh.directory.client_for_task(task_id).cancel_task(task_id, account="")
    assert canceled.task.status.state == State.TASK_STATE_CANCELED
    await far.agent.until("CancelTask", times=2)


async def test_the_next_turn_continues_the_remote_task_and_its_artifacts(far: Far) -> None:
    question = status("INPUT_REQUIRED", "which?")
    question_status = {
        "state": "TASK_STATE_INPUT_REQUIRED",
        "message": message("which?")["message"],
    }
    reply_task = {
        "task": {**task()["task"], "status": question_status, "artifacts": [artifact("one ")]}
    }
    far.agent.on(
        STREAM,
        stream(task(), chunk("one "), question),
        stream(reply_task, status("WORKING"), chunk("two", append=True), status("COMPLETED")),
    )
    first = await far.ask_shared()
    assert first.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    ended = await far.mesh.ask("this", agent="far", task_id=first.task.id)
    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    assert texts(ended) == ["one two"]
    sent_message = far.agent.find_requests(STREAM)[1].params["message"]
    assert (sent_message["taskId"], sent_message["contextId"]) == ("t-1", "c-1")


async def test_a_remote_task_that_continued_on_its_own_is_read_as_ended(far: Far) -> None:
    far.agent.on(STREAM, stream(task(), status("AUTH_REQUIRED", "log in")), error(-32004))
    far.agent.on("GetTask", result(task("COMPLETED", artifacts=[artifact("one")])["task"]))
    first = await far.ask_shared()
    assert first.task.status.state == State.TASK_STATE_AUTH_REQUIRED
    ended = await far.mesh.ask("done", agent="far", task_id=first.task.id)
    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    assert texts(ended) == ["one"]


async def test_a_silent_stream_is_reopened(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_follower, "_STREAM_IDLE_S", 0.1)
    far.agent.on(STREAM, stream(task(), chunk("one "), then=asyncio.Event()))
    known = task(artifacts=[artifact("one ")])
    far.agent.on("SubscribeToTask", stream(known, chunk("two", append=True), status("COMPLETED")))
    far.agent.on("GetTask", result(task("COMPLETED", artifacts=[artifact("one two")])["task"]))
    ended = await far.ask_shared()
    assert ended.task.status.state == State.TASK_STATE_COMPLETED, status_texts(ended)
    assert texts(ended) == ["one two"]


async def test_each_of_our_conversations_has_its_own_remote_context(far: Far) -> None:
    far.agent.on(STREAM, stream(task(), status("COMPLETED")))
    for context_id, account in (("c", "ann"), ("c", "ann"), ("c", "bob"), ("d", "ann")):
        message = far.mesh.message("hello", context_id=context_id)
        await far.mesh.client("far").send_message(
            agent="far",
            message=message,
            submission=message_service_pb2.Submission(account=account),
        )
    first, again, other, next_one = (
        call.params["message"]["contextId"] for call in far.agent.find_requests(STREAM)
    )
    assert first == again
    assert len({first, other, next_one}) == 3
    assert "ann" not in first


async def test_a_card_that_changed_is_refused_and_the_earlier_one_stays_in_use(
    tmp_path: Path,
) -> None:
    async with scripted_agent() as agent:
        settings = replace(SETTINGS, url=agent.url, files=FolderFiles(tmp_path), pin="refuse")
        async with connect_remote_agent(settings) as remote:
            good = dict(agent.card)
            agent.card = good | {"description": "new", "skills": [{"id": "pay", "name": "Pay"}]}
            with pytest.raises(PeerProtocolError, match="new skills: pay"):
                await remote.read_card()
            assert remote.agent.card.description != "new"
        with pytest.raises(PeerProtocolError, match="new skills: pay"):
            async with connect_remote_agent(settings):
                pass
        agent.card = good
        async with connect_remote_agent(settings):
            assert agent.calls
