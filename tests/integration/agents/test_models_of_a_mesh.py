"""A whole mesh with a provider's models, seen by A2A clients and the command line."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import Caller, Stream
from harness.mesh.command_line import run_command
from harness.mesh.processes import MeshProcess, running_mesh
from harness.mesh.small_mesh import PATIENCE_S
from harness.remote.model_server import ModelServer, Pause, call, model_server, refuse, say
from trunkline.observe import telemetry

pytestmark = pytest.mark.asyncio(loop_scope="module")

# No judge runs here: each scripted reply is one of the agent's.
SETTINGS = """
model = "openai:first"
planner_model = "rules"
[models.openai]
first_token_s = 20
[models."anthropic:keyless"]
api_key_env = "A_KEY_THAT_NOBODY_SET"
[agent.math]
fallbacks = ["anthropic:second"]
check = false
[agent.currency]
model = "anthropic:keyless"
[agent.research]
model = "openai:frugal"
check = false
[models."openai:frugal"]
turn_tokens = 20
"""
QUESTION = "what is 20*2+2"


@dataclass(frozen=True)
class Running:
    mesh: MeshProcess
    client: httpx2.AsyncClient

    def at(self, agent: str) -> Caller:
        return Caller(self.client, f"{self.mesh.http_url}/agents/{agent}")


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with model_server() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    server: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Running]:
    folder = tmp_path_factory.mktemp("mesh")
    (folder / "trunkline.toml").write_text(SETTINGS)
    async with (
        running_mesh(folder, servers=None, environment=server.environment) as mesh,
        httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client,
    ):
        yield Running(mesh, client)


async def text_until(stream: Stream, expected: str) -> str:
    """Read a stream's artifact updates until the joined text is the expected one."""
    text = ""
    async with asyncio.timeout(PATIENCE_S):
        async for event in stream:
            if update := event.result.get("artifactUpdate"):
                text = text + event.text if update.get("append") else event.text
            if expected in text:
                return text
    raise AssertionError(f"only {text!r} came")


def text_of(task: dict[str, Any]) -> str:
    """Return the answer without the notices of tools."""
    answers = [
        artifact
        for artifact in task.get("artifacts", ())
        if not artifact["name"].startswith("tool_")
    ]
    return "".join(part.get("text", "") for answer in answers for part in answer.get("parts", ()))


async def test_the_command_line_asks_a_model_that_calls_a_tool(
    server: ModelServer, running: Running
) -> None:
    server.script(call("math__calculate", expression="20*2+2"), say("It is 42."))
    result = await run_command(
        "ask", "--url", running.mesh.http_url, "--agent", "math", QUESTION, "--json"
    )
    assert (result.json["state"], result.json["answer"]) == ("completed", "It is 42.")
    # The model received the tool's result.
    assert server.requests[1].messages[-1] == {
        "role": "tool",
        "content": "42",
        "tool_call_id": "call_0",
    }
    words = ("--mesh", running.mesh.mesh_address, "--json", result.json["trace_id"])
    spans = (await run_command("trace", *words)).json
    chats = [span for span in spans if span["name"] == "chat first"]
    assert len(chats) == 2
    attributes = chats[0]["attributes"]
    assert attributes[telemetry.GEN_AI_USAGE_INPUT_TOKENS] == 11
    assert attributes[telemetry.GEN_AI_USAGE_OUTPUT_TOKENS] == 7
    assert attributes[telemetry.GEN_AI_RESPONSE_MODEL] == "served-model"
    # Content is recorded only if asked for.
    assert "It is 42" not in str(attributes)
    assert QUESTION not in str(attributes)


async def test_a_token_reaches_the_client_before_the_provider_sends_the_next(
    server: ModelServer, running: Running
) -> None:
    """Through the supervisor: provider, agent, supervisor, bridge, client."""
    pause = Pause()
    server.script(say("It is ", pause, "42."))
    async with running.at("supervisor").streamed(QUESTION) as stream:
        await text_until(stream, "It is ")
        await pause.reached()
        pause.end()
        await text_until(stream, "42.")
        assert (await stream.rest())[-1].state == "TASK_STATE_COMPLETED"


async def test_the_partial_answer_of_a_failed_model_call_is_replaced(
    server: ModelServer, running: Running
) -> None:
    pause = Pause()
    server.script(say("It is proba", pause, is_cut=True), say("It is 42."))
    async with running.at("math").streamed(QUESTION) as stream:
        await text_until(stream, "It is proba")
        pause.end()
        assert await text_until(stream, "It is 42.") == "It is 42."
        events = await stream.rest()
    assert events[-1].state == "TASK_STATE_COMPLETED"
    task_id = events[-1].result["statusUpdate"]["taskId"]
    task = await running.at("math").call("GetTask", {"id": task_id})
    assert text_of(task) == "It is 42."
    assert [request.path for request in server.requests] == ["/v1/chat/completions", "/v1/messages"]


async def test_text_beside_a_tool_call_is_not_part_of_the_answer(
    server: ModelServer, running: Running
) -> None:
    thinking = say("Let me see. ", calls=call("math__calculate", expression="20*2+2").calls)
    server.script(thinking, say("It is 42."))
    assert text_of(await running.at("math").send(QUESTION)) == "It is 42."


async def test_cancel_closes_the_request_to_the_provider(
    server: ModelServer, running: Running
) -> None:
    server.script(say("It is ", Pause(), "late"))
    async with running.at("math").streamed(QUESTION) as stream:
        await text_until(stream, "It is ")
        task_id = (await running.at("math").call("ListTasks", {}))["tasks"][0]["id"]
        await running.at("math").call("CancelTask", {"id": task_id})
        assert (await stream.rest())[-1].state == "TASK_STATE_CANCELED"
    await server.until_ended(server.requests[0])
    assert server.requests[0].is_hung_up


async def test_a_model_error_is_in_the_task_with_advice(
    server: ModelServer, running: Running
) -> None:
    task = await running.at("currency").send("100 USD in EUR")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    error = task["status"]["message"]["parts"][0]["text"]
    assert "'anthropic:keyless': there is no key: set A_KEY_THAT_NOBODY_SET" in error
    server.script(refuse(401), refuse(404))
    task = await running.at("math").send(QUESTION)
    error = task["status"]["message"]["parts"][0]["text"]
    assert "check OPENAI_API_KEY; 'anthropic:second': anthropic has no such model" in error
    assert server.url not in error


async def test_a_turn_ends_at_its_token_limit(server: ModelServer, running: Running) -> None:
    server.script(*[call("research__search_documents", query="x")] * 5)
    task = await running.at("research").send("search the documents for x")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    error = task["status"]["message"]["parts"][0]["text"]
    assert "found no answer within 20 tokens" in error
    # One reply takes 18 tokens.
    assert len(server.requests) == 2


async def test_an_answer_cut_at_its_length_limit_has_a_note(
    server: ModelServer, running: Running
) -> None:
    server.script(say("It is for", finish="length"))
    answer = text_of(await running.at("math").send(QUESTION))
    assert answer == "It is for\n\n(The answer was cut off at its length limit.)"
