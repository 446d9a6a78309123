"""The agents of a mesh as tools of MCP clients: in this process, over stdio and over HTTP."""

import asyncio
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx2
import mcp_types as types
import pytest
import pytest_asyncio
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.extension import advertise
from mcp.client.streamable_http import streamable_http_client
from mcp.server.subscriptions import ToolsListChanged
from pydantic import ConfigDict

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.agents.shop import Orders, shop
from harness.mesh.command_line import COMMAND, run_command
from harness.mesh.processes import MeshProcess, read_line, running_mesh, running_process
from trunkline import TaskContext, agent
from trunkline.a2a_client import client as a2a_client
from trunkline.v1 import part_pb2, tool_service_pb2
from trunkline_agents.echo.agent import echo
from trunkline_bridge.callers.api_keys import ApiKey, hash_key, save_keys
from trunkline_bridge.http.server import serve_http
from trunkline_bridge.mcp.agent_clients import AgentClients, CallerCredentials
from trunkline_bridge.mcp.agent_sources import MeshAgents, NamedAgents
from trunkline_bridge.mcp.client_features import TASKS_EXTENSION
from trunkline_bridge.mcp.server import AgentServer
from trunkline_bridge.mcp.tasks import TaskParams, UpdateTaskParams

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT_S = 100.0
TASKS = [advertise(TASKS_EXTENSION)]


class GetTask(types.Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams


class UpdateTask(types.Request[UpdateTaskParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: UpdateTaskParams


class CancelTask(types.Request[TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams


class AnyResult(types.Result):
    model_config = ConfigDict(extra="allow")


@agent(name="gate", description="Waits until the test lets it go on.")
async def gate(task: TaskContext) -> str:
    await task.working("Waiting")
    async with GATE.waiting(task.text):
        await GATE.wait()
    return "It went on."


@agent(name="forgetful", description="Asks again and again.")
async def forgetful(task: TaskContext) -> str:
    await task.require_input("What did you say?")
    return ""


def ask_for(name: str) -> dict[str, Any]:
    """A form whose only value has a default."""
    properties = {name: {"type": "boolean", "default": True}}
    schema = {"type": "object", "properties": properties}
    params = {"mode": "form", "message": f"{name.title()}?", "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


class Letters(Orders):
    """A tool source that asks for two consents before it orders."""

    async def call_tool(
        self, request: tool_service_pb2.CallToolRequest, **_options: Any
    ) -> tool_service_pb2.ToolResult:
        if not request.continuation.responses:
            requests = {name: ask_for(name) for name in ("news", "terms")}
            question = tool_service_pb2.ToolQuestion(requests=json.dumps(requests))
            return tool_service_pb2.ToolResult(is_error=True, question=question)
        self.orders.append(json.loads(request.continuation.responses))
        return tool_service_pb2.ToolResult(content=[part_pb2.Part(text="Signed.")])


@dataclass
class Gate:
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    canceled: asyncio.Event = field(default_factory=asyncio.Event)
    runs: int = 0

    async def wait(self) -> None:
        self.runs += 1
        self.reached.set()
        await self.opened.wait()

    @asynccontextmanager
    async def waiting(self, _text: str) -> AsyncIterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            self.canceled.set()
            raise


GATE = Gate()


@dataclass(frozen=True)
class Served:
    mesh: BridgedMesh
    server: AgentServer
    orders: Orders
    letters: Letters

    def client(self, **options: Any) -> Client:
        return Client(self.server.protocol_server, **options)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    orders, letters = Orders(), Letters(needs_approval=False)
    async with (
        open_bridged_mesh(tmp_path_factory.mktemp("mesh")) as mesh,
        AgentClients(mesh.url, CallerCredentials()) as clients,
    ):
        shops = (shop("apples", orders), shop("letters", letters))
        await mesh.mesh.join(echo, gate, forgetful, *shops)
        agents = MeshAgents(mesh.mesh.directory)
        async with AgentServer(agents, clients, detach_s=0.05).running() as server:
            yield Served(mesh, server, orders, letters)


@pytest.fixture(autouse=True)
def closed_gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    opened = Gate()
    monkeypatch.setattr(sys.modules[__name__], "GATE", opened)
    return opened


def text_of(result: types.CallToolResult) -> str:
    (block, *_) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def test_agents_are_tools_with_their_descriptions_and_schemas(served: Served) -> None:
    async with served.client() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    # Another test adds one.
    assert set(tools) >= {"apples", "echo", "gate"}
    assert "Examples:\n- echo hello" in (tools["echo"].description or "")
    assert tools["echo"].input_schema["required"] == ["message"]


async def test_an_answer_has_text_and_structured_content_and_streams_as_progress(
    served: Served,
) -> None:
    texts: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        assert progress
        assert total is None
        texts.append(message or "")

    async with served.client() as client:
        result = await client.call_tool(
            "echo", {"message": "count 3"}, progress_callback=on_progress
        )
    assert (text_of(result), result.is_error) == ("1 2 3 ", False)
    content = result.structured_content
    assert content is not None
    assert (content["state"], content["outcome"], content["text"]) == (
        "completed",
        "complete",
        "1 2 3 ",
    )
    assert content["task_id"]
    assert "".join(texts).startswith("1 ")


async def test_a_failure_and_wrong_arguments_are_results_of_the_tool(served: Served) -> None:
    async with served.client() as client:
        failed = await client.call_tool("echo", {"message": "fail no ink"})
        wrong = await client.call_tool("echo", {"message": "hi", "text": "x"})
        empty = await client.call_tool("echo", {"message": " "})
        with pytest.raises(MCPError, match="there is no agent 'nobody'; there are: apples, echo"):
            await client.call_tool("nobody", {"message": "hi"})
    assert (text_of(failed), failed.is_error) == ("no ink", True)
    assert wrong.is_error
    assert "text" in text_of(wrong)
    assert empty.is_error


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_question_goes_to_the_user_of_the_client(served: Served, mode: Any) -> None:
    asked: list[str] = []

    async def answer(_context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": "Ada"})

    async with served.client(mode=mode, elicitation_callback=answer) as client:
        result = await client.call_tool("echo", {"message": "ask What is your name?"})
    assert asked == ["What is your name?"]
    assert text_of(result) == "answer: Ada"


async def test_without_elicitation_the_result_says_how_to_go_on(served: Served) -> None:
    async with served.client() as client:
        asked = await client.call_tool("echo", {"message": "ask Which city?"})
        content = asked.structured_content
        assert content is not None
        assert content["state"] == "input-required"
        assert f"task_id '{content['task_id']}'" in text_of(asked)
        result = await client.call_tool("echo", {"message": "Rome", "task_id": content["task_id"]})
    assert text_of(result) == "answer: Rome"


@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_an_approval_is_asked_for_and_kept(served: Served, decision: str) -> None:
    served.orders.orders.clear()
    asked: list[str] = []

    async def answer(_context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": decision})

    async with served.client(elicitation_callback=answer) as client:
        await client.call_tool("apples", {"message": "order 3 crates"})
    assert len(asked) == 1
    assert "apples/order" in asked[0]
    assert served.orders.orders == ([{"n": 3, "item": "crates"}] if decision == "approve" else [])


@asynccontextmanager
async def over_http(served: Served, **options: Any) -> AsyncIterator[Client]:
    async with (
        served.server.http_app("127.0.0.1") as app,
        serve_http(app, host="127.0.0.1", port=0, grace_s=1) as url,
        Client(f"{url}/mcp", **options) as client,
        asyncio.timeout(LIMIT_S),
    ):
        yield client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_call_over_http_streams_progress_or_waits_for_the_answer(
    served: Served, mode: Any
) -> None:
    texts: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        assert (progress > 0, total) == (True, None)
        texts.append(message or "")

    async with over_http(served, mode=mode) as client:
        count = {"message": "count 3"}
        streamed = await client.call_tool("echo", count, progress_callback=on_progress)
        waited = await client.call_tool("echo", count)
        question = await client.call_tool("echo", {"message": "ask Why?"})
        failed = await client.call_tool("echo", {"message": "fail no ink"})
    assert "".join(texts).startswith("1 ")
    assert text_of(streamed) == text_of(waited) == "1 2 3 "
    assert question.structured_content is not None
    assert question.structured_content["state"] == "input-required"
    assert (text_of(failed), failed.is_error) == ("no ink", True)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_call_canceled_over_http_cancels_its_task(
    served: Served, closed_gate: Gate, mode: Any
) -> None:
    async with over_http(served, mode=mode) as client, asyncio.TaskGroup() as group:
        call = group.create_task(client.call_tool("gate", {"message": "go"}))
        await closed_gate.reached.wait()
        call.cancel()
        await closed_gate.canceled.wait()
    assert not closed_gate.opened.is_set()


async def test_an_answer_that_takes_long_comes_by_a_stream_of_the_same_task(
    served: Served, closed_gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(a2a_client, "AT_ONCE_S", 0.0)
    closed_gate.opened.set()
    async with over_http(served) as client:
        result = await client.call_tool("gate", {"message": "go"})
    assert text_of(result) == "It went on."
    assert closed_gate.runs == 1


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_declined_question_is_the_result(served: Served, mode: Any) -> None:
    async def decline(_context: Any, _params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    async with served.client(mode=mode, elicitation_callback=decline) as client:
        result = await client.call_tool("echo", {"message": "ask Which city?"})
    content = result.structured_content
    assert content is not None
    assert (content["text"], content["state"]) == ("Which city?", "input-required")


async def test_a_client_that_answers_nothing_useful_is_asked_a_limited_number_of_times(
    served: Served,
) -> None:
    asked: list[str] = []

    async def answer(_context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": "ask again"})

    async with served.client(mode="legacy", elicitation_callback=answer) as client:
        result = await client.call_tool("forgetful", {"message": "go"})
    assert 1 < len(asked) < 50
    assert result.structured_content is not None
    assert result.structured_content["state"] == "input-required"


async def ask_raw(client: Client, tool: str, message: str, **more: Any) -> dict[str, Any]:
    """Call a tool without answering its question."""
    params = types.CallToolRequestParams(name=tool, arguments={"message": message}, **more)
    result = await client.session.send_request(types.CallToolRequest(params=params), AnyResult)
    return result.model_dump(by_alias=True)


async def no_answer(_context: Any, _params: Any) -> types.ErrorData:
    return types.ErrorData(code=types.INVALID_REQUEST, message="nobody is here")


async def test_the_state_of_a_question_is_sealed_and_belongs_to_its_request(
    served: Served,
) -> None:
    key = "a secret of thirty-two characters"
    agents = MeshAgents(served.mesh.mesh.directory)
    options: dict[str, Any] = {"elicitation_callback": no_answer}
    async with (
        AgentClients(served.mesh.url, CallerCredentials()) as clients,
        AgentServer(agents, clients, state_key=key).running() as one,
        AgentServer(agents, clients, state_key=key).running() as other,
        Client(one.protocol_server, **options) as client,
        Client(other.protocol_server, **options) as elsewhere,
        served.client(**options) as foreign,
        asyncio.timeout(LIMIT_S),
    ):
        asked = await ask_raw(client, "echo", "ask Which city?")
        assert asked["resultType"] == "input_required"
        state = asked["requestState"]
        (question,) = asked["inputRequests"]
        answer = types.ElicitResult(action="accept", content={"answer": "Rome"})
        given: dict[str, Any] = {"input_responses": {question: answer}}
        # Without an answer, the question is asked again.
        again = await ask_raw(elsewhere, "echo", "ask Which city?", request_state=state)
        assert list(again["inputRequests"]) == [question]
        for where, message, wrong in (
            (client, "ask Which city?", f"{state[:-4]}AAAA"),
            (client, "ask Which city?", served.mesh.url),
            (client, "ask Another?", state),
            (foreign, "ask Which city?", state),
        ):
            with pytest.raises(MCPError, match="requestState") as refused:
                await ask_raw(where, "echo", message, request_state=wrong, **given)
            assert refused.value.error.code == types.INVALID_PARAMS
        done = await ask_raw(elsewhere, "echo", "ask Which city?", request_state=state, **given)
    assert done["content"][0]["text"] == "answer: Rome"


@dataclass(frozen=True)
class Wire:
    """Sends requests as they are on the wire, over HTTP, without a client of the SDK."""

    http: httpx2.AsyncClient

    async def send(
        self, method: str, params: dict[str, Any], capabilities: dict[str, Any], name: str = ""
    ) -> dict[str, Any]:
        """Send a request with these capabilities of the client; return the message with its end."""
        name = name or params.get("name") or params.get("taskId") or ""
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
            **({"mcp-name": name} if name else {}),
        }
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        text = (await self.http.post("/mcp", json=body, headers=headers)).text
        lines = [line.removeprefix("data:") for line in text.splitlines()]
        messages = [json.loads(line) for line in lines if line.strip().startswith("{")]
        end: dict[str, Any] = next(message for message in messages if "id" in message)
        return end


@asynccontextmanager
async def open_wire(served: Served) -> AsyncIterator[Wire]:
    async with (
        served.server.http_app("127.0.0.1") as app,
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:1"
        ) as http,
    ):
        yield Wire(http)


@dataclass(frozen=True)
class Sessions:
    """Opens and uses sessions of MCP 2025-11-25, as they are on the wire."""

    http: httpx2.AsyncClient

    async def open(self, key: str = "") -> httpx2.Response:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "wire", "version": "1"},
        }
        return await self.send("POST", "", key, "initialize", params)

    async def send(
        self, verb: str, session: str, key: str = "", method: str = "tools/list", params: Any = None
    ) -> httpx2.Response:
        headers = {"accept": "application/json, text/event-stream"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        if session:
            headers["mcp-session-id"] = session
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        return await self.http.request(
            verb, "/mcp", headers=headers, json=body if verb == "POST" else None
        )


@asynccontextmanager
async def open_sessions(served: Served, **options: Any) -> AsyncIterator[Sessions]:
    async with (
        served.server.http_app("127.0.0.1", **options) as app,
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:1"
        ) as http,
    ):
        yield Sessions(http)


@pytest.mark.parametrize("owner", ["ann", ""])
async def test_a_session_belongs_to_the_caller_who_opened_it(served: Served, owner: str) -> None:
    async with open_sessions(served) as sessions:
        session = (await sessions.open(owner)).headers["mcp-session-id"]
        others = {"ann", "bob", ""} - {owner}
        for other in others:
            for verb in ("POST", "GET", "DELETE"):
                assert (await sessions.send(verb, session, other)).status_code == 404
        assert (await sessions.send("POST", session, owner)).status_code == 200
        assert (await sessions.send("DELETE", session, owner)).status_code == 200
        assert (await sessions.send("POST", session, owner)).status_code == 404


async def test_sessions_are_limited(served: Served) -> None:
    async with open_sessions(served, max_sessions=2) as sessions:
        first, second, third = [await sessions.open(key) for key in ("ann", "", "bob")]
        assert [each.status_code for each in (first, second, third)] == [200, 200, 503]
        await sessions.send("DELETE", first.headers["mcp-session-id"], "ann")
        assert (await sessions.open("bob")).status_code == 200


async def test_an_idle_session_ends(served: Served) -> None:
    async with (
        open_sessions(served, max_sessions=1, session_idle_s=0.01) as sessions,
        asyncio.timeout(LIMIT_S),
    ):
        session = (await sessions.open()).headers["mcp-session-id"]
        while (await sessions.open()).status_code == 503:
            pass
        assert (await sessions.send("POST", session)).status_code == 404


KNOWS_TASKS: dict[str, Any] = {"extensions": {TASKS_EXTENSION: {}}}
FORMS: dict[str, Any] = {"elicitation": {}}


async def test_a_client_is_asked_only_what_it_declares(served: Served) -> None:
    call = {"name": "echo", "arguments": {"message": "ask Which city?"}}
    async with open_wire(served) as wire:
        for capabilities, kind in (
            (FORMS, "input_required"),
            ({"elicitation": {"form": {}, "url": {}}}, "input_required"),
            ({"elicitation": {"url": {}}}, "complete"),
            ({}, "complete"),
        ):
            result = (await wire.send("tools/call", call, capabilities))["result"]
            assert result["resultType"] == kind
            assert ("inputRequests" in result) == (kind == "input_required")


async def test_methods_of_the_tasks_extension_need_its_capability(served: Served) -> None:
    async with open_wire(served) as wire:
        await check_tasks_on_the_wire(served, wire)


async def check_tasks_on_the_wire(served: Served, wire: Wire) -> None:
    task = await served.mesh.at("/agents/echo").send("ask Which city?", now=True)
    task_id = f"echo:1:{task['id']}"
    methods: tuple[tuple[str, dict[str, Any]], ...] = (
        ("tasks/get", {}),
        ("tasks/update", {"inputResponses": {}}),
        ("tasks/cancel", {}),
    )
    for method, more in methods:
        refused = await wire.send(method, {"taskId": task_id, **more}, FORMS)
        assert refused["error"]["code"] == types.MISSING_REQUIRED_CLIENT_CAPABILITY
        assert refused["error"]["data"] == {"requiredCapabilities": KNOWS_TASKS}
        differs = await wire.send(method, {"taskId": task_id, **more}, KNOWS_TASKS, name="echo")
        assert differs["error"]["code"] == types.HEADER_MISMATCH == -32020
    listen = {"notifications": {"taskIds": [task_id]}}
    refused = await wire.send("subscriptions/listen", listen, FORMS)
    assert refused["error"]["code"] == types.MISSING_REQUIRED_CLIENT_CAPABILITY
    # A client that can't ask its user gets the question as the result.
    state = (await wire.send("tasks/get", {"taskId": task_id}, KNOWS_TASKS))["result"]
    assert (state["resultType"], state["status"]) == ("complete", "completed")
    assert state["result"]["structuredContent"]["text"] == "Which city?"
    # A declined question would never be asked again.
    full = FORMS | KNOWS_TASKS
    state = (await wire.send("tasks/get", {"taskId": task_id}, full))["result"]
    (key,) = state["inputRequests"]
    responses = {"inputResponses": {key: {"action": "decline"}}}
    done = await wire.send("tasks/update", {"taskId": task_id, **responses}, full)
    assert done["result"]["resultType"] == "complete"
    state = (await wire.send("tasks/get", {"taskId": task_id}, full))["result"]
    assert state["status"] == "cancelled"


async def call_for_task(client: Client, name: str, message: str) -> dict[str, Any]:
    """Call a tool that becomes a task; return the task's description."""
    params = types.CallToolRequestParams(name=name, arguments={"message": message})
    result = await client.session.send_request(types.CallToolRequest(params=params), AnyResult)
    return result.model_dump(by_alias=True)


async def read_task(client: Client, task_id: str) -> dict[str, Any]:
    request = GetTask(params=TaskParams(task_id=task_id))
    return (await client.session.send_request(request, AnyResult)).model_dump(by_alias=True)


async def wait_for_end(client: Client, task_id: str) -> dict[str, Any]:
    """Poll a task, as clients of the extension do, until it is not working."""
    while True:
        state = await read_task(client, task_id)
        if state["status"] != "working":
            return state


async def respond_by_task(served: Served, task_id: str, responses: dict[str, Any]) -> None:
    options: dict[str, Any] = {"extensions": TASKS, "elicitation_callback": no_answer}
    handle = f"letters:1:{task_id}"
    async with served.client(**options) as client, asyncio.timeout(LIMIT_S):
        asked = (await read_task(client, handle))["inputRequests"]
        full = {key: responses[name] for key in asked if (name := key.split(".")[-1]) in responses}
        params = UpdateTaskParams(task_id=handle, input_responses=full)
        await client.session.send_request(UpdateTask(params=params), AnyResult)
        # Requests that are still open keep their keys, by which clients know that they asked.
        left = (await wait_for_end(client, handle)).get("inputRequests", {})
        assert left == {key: asked[key] for key in asked if key not in full}


async def respond_by_data(served: Served, task_id: str, responses: dict[str, Any]) -> None:
    part = {"data": {"inputResponses": responses}}
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "taskId": task_id}
    await served.mesh.at("/agents/letters").call(
        "SendMessage", {"message": {**message, "parts": [part]}}
    )


async def respond_by_text(served: Served, task_id: str, responses: dict[str, Any]) -> None:
    (values,) = (response["content"] for response in responses.values())
    await served.mesh.at("/agents/letters").send(json.dumps(values), taskId=task_id)


@pytest.mark.parametrize("respond", [respond_by_task, respond_by_data, respond_by_text])
async def test_a_question_without_its_own_answer_stays_open(served: Served, respond: Any) -> None:
    served.letters.orders.clear()
    letters = served.mesh.at("/agents/letters")
    task_id = (await letters.send("order 1 letter"))["id"]
    yes, no = (
        {name: {"action": "accept", "content": {name: value}}}
        for name, value in (("news", True), ("terms", False))
    )
    await respond(served, task_id, yes)
    task = await letters.call("GetTask", {"id": task_id})
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    (asked,) = (part["data"] for part in task["status"]["message"]["parts"] if "data" in part)
    assert list(asked["inputRequests"]) == ["terms"]
    assert served.letters.orders == []
    await respond(served, task_id, no)
    assert served.letters.orders == [yes | no]


async def test_a_long_call_becomes_a_task_that_another_server_knows(
    served: Served, closed_gate: Gate
) -> None:
    async with served.client(extensions=TASKS) as client, asyncio.timeout(LIMIT_S):
        task = await call_for_task(client, "gate", "go")
        assert (task["resultType"], task["status"]) == ("task", "working")
        assert (await read_task(client, task["taskId"]))["status"] == "working"
        closed_gate.opened.set()
    # The state of the task is the mesh's: a server that was restarted has it, too.
    async with (
        AgentClients(served.mesh.url, CallerCredentials()) as clients,
        AgentServer(MeshAgents(served.mesh.mesh.directory), clients).running() as restarted,
        Client(restarted.protocol_server, extensions=TASKS) as client,
        asyncio.timeout(LIMIT_S),
    ):
        state = await wait_for_end(client, task["taskId"])
    assert state["status"] == "completed"
    assert state["result"]["content"][0]["text"] == "It went on."
    assert state["createdAt"] == task["createdAt"]


async def test_a_task_that_asks_is_updated_and_one_is_canceled(
    served: Served, closed_gate: Gate
) -> None:
    options: dict[str, Any] = {"extensions": TASKS, "elicitation_callback": no_answer}
    async with served.client(**options) as client, asyncio.timeout(LIMIT_S):
        asked = await served.mesh.at("/agents/echo").send("ask Which city?", now=True)
        task_id = f"echo:1:{asked['id']}"
        waiting = await read_task(client, task_id)
        assert waiting["status"] == "input_required"
        ((key, request),) = waiting["inputRequests"].items()
        assert request["params"]["message"] == "Which city?"
        responses = {
            "unknown": {"action": "accept", "content": {"answer": "Oslo"}},
            key: {"action": "accept", "content": {"answer": "Rome"}},
        }
        update = UpdateTask(params=UpdateTaskParams(task_id=task_id, input_responses=responses))
        await client.session.send_request(update, AnyResult)
        state = await wait_for_end(client, task_id)
        assert state["result"]["content"][0]["text"] == "answer: Rome"

        task = await call_for_task(client, "gate", "go")
        cancel = CancelTask(params=TaskParams(task_id=task["taskId"]))
        await client.session.send_request(cancel, AnyResult)
        await closed_gate.canceled.wait()
        state = await wait_for_end(client, task["taskId"])
        assert state["status"] == "cancelled"
        # A task that has ended stays as it is, and an unknown one is an error.
        await client.session.send_request(cancel, AnyResult)
        for wrong in ("echo:1:missing", "nonsense", "../../x:1:y"):
            with pytest.raises(MCPError):
                await read_task(client, wrong)


async def test_tasks_of_agents_that_are_not_offered_can_not_be_reached(served: Served) -> None:
    task = await served.mesh.at("/agents/gate").send("go", now=True)
    task_id = f"gate:1:{task['id']}"
    nobody = CallerCredentials()
    async with AgentClients(served.mesh.url, nobody) as clients:
        agents = await NamedAgents.read(["echo"], clients, nobody)
        async with (
            AgentServer(agents, clients).running() as server,
            Client(server.protocol_server, extensions=TASKS) as client,
        ):
            with pytest.raises(MCPError, match="there is no agent 'gate'; there are: echo"):
                await read_task(client, task_id)
            cancel = CancelTask(params=TaskParams(task_id=task_id))
            with pytest.raises(MCPError, match="there is no agent 'gate'"):
                await client.session.send_request(cancel, AnyResult)
    await served.mesh.at("/agents/gate").call("CancelTask", {"id": task["id"]})


async def test_clients_hear_of_agents_that_come(served: Served) -> None:
    @agent(name="late", description="Comes late.")
    async def late(_task: TaskContext) -> str:
        return "here"

    async with served.client() as client, asyncio.timeout(LIMIT_S):
        async with client.listen(tools_list_changed=True) as changes:
            await served.mesh.mesh.join(late)
            assert isinstance(await anext(aiter(changes)), ToolsListChanged)
        names = [tool.name for tool in (await client.list_tools()).tools]
    assert "late" in names


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MeshProcess]:
    folder = tmp_path_factory.mktemp("up")
    key = ApiKey(name="ci", account="acme", sha256=hash_key("secret-key"))
    save_keys(folder / "keys.toml", [key])
    async with running_mesh(
        folder, environment={"TRUNKLINE_API_KEYS_FILE": str(folder / "keys.toml")}
    ) as mesh:
        yield mesh


async def test_over_stdio_an_editor_starts_it_as_a_command(up: MeshProcess) -> None:
    command, *arguments = (*COMMAND, "serve", "mcp", "--url", up.http_url)
    parameters = StdioServerParameters(
        command=command,
        args=[*arguments, "--mesh", up.mesh_address],
        env={**os.environ, "TRUNKLINE_API_KEY": "secret-key"},
    )
    async with asyncio.timeout(LIMIT_S), Client(parameters) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("echo", {"message": "hello"})
    assert {"echo", "math", "supervisor"} <= set(names)
    assert text_of(result) == "hello"


async def test_over_http_each_caller_has_credentials_of_its_own(
    up: MeshProcess, tmp_path: Path
) -> None:
    command = (
        *COMMAND, "serve", "mcp", "--url", up.http_url, "--mesh", up.mesh_address,
        "--http", "127.0.0.1:0",
    )  # fmt: skip
    # The server's own key is not used for callers that only reach its address.
    key = {"TRUNKLINE_API_KEY": "secret-key"}
    async with (
        running_process(*command, cwd=tmp_path, environment=key) as process,
        asyncio.timeout(LIMIT_S),
    ):
        url = (await read_line(process, "ready "))["mcp"]
        async with Client(url) as stranger:
            refused = await stranger.call_tool("echo", {"message": "hello"})
        headers = {"authorization": "Bearer secret-key"}
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False) as http,
            Client(streamable_http_client(url, http_client=http)) as caller,
        ):
            result = await caller.call_tool("echo", {"message": "hello"})
        async with httpx2.AsyncClient(trust_env=False) as http:
            rebound = await http.post(url, headers={"host": "evil.example"}, json={})
    assert refused.is_error
    assert "credentials" in text_of(refused)
    assert text_of(result) == "hello"
    assert rebound.status_code == 421


async def test_a_public_address_is_refused_without_insecure(tmp_path: Path) -> None:
    result = await run_command(
        "serve", "mcp", "--url", "http://127.0.0.1:9", "--http", "0.0.0.0:0", folder=tmp_path
    )
    assert result.exit == 2
    assert "--insecure" in result.err
    # Callers are authenticated by the mesh, and not by keys of this server.
    assert "not encrypted" in result.err
    assert "api_keys_file" not in result.err


async def test_without_a_mesh_it_says_what_to_do(tmp_path: Path) -> None:
    result = await run_command(
        "serve", "mcp", "--url", "http://127.0.0.1:9", "--agent", "echo", folder=tmp_path
    )
    assert (result.exit, result.out) == (4, "")
    assert "127.0.0.1:9" in result.err
