"""`trunkline a2a` against an agent built with the reference SDK, over its three bindings."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from harness.a2a.standard_cli import StandardCli
from harness.mesh.processes import read_line, running_process

pytestmark = pytest.mark.asyncio(loop_scope="module")

TESTS = Path(__file__).parents[1]
BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def partner() -> AsyncIterator[str]:
    command = (sys.executable, "-m", "partners.server_v1_0")
    environment = {"PYTHONPATH": str(TESTS)}
    async with running_process(*command, cwd=TESTS, environment=environment) as process:
        yield (await read_line(process, "ready "))["url"]


@pytest.fixture(params=BINDINGS)
def cli(partner: str, tmp_path: Path, request: pytest.FixtureRequest) -> StandardCli:
    """The command line for the agent over one binding."""
    return StandardCli(tmp_path).at(partner, "--transport", request.param)


async def test_a_message_becomes_a_task_or_a_reply(cli: StandardCli) -> None:
    counted = await cli.run("send", "count 5", "-o", "json")
    task = counted.json["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    texts = [part["text"] for artifact in task["artifacts"] for part in artifact["parts"]]
    assert "".join(texts) == "1 2 3 4 5 "
    reply = await cli.run("send", "message hello", "-o", "json")
    assert reply.json["message"]["parts"][0]["text"] == "hello"


async def test_its_events_are_json_lines(cli: StandardCli) -> None:
    events = (await cli.run("send", "count 3", "--stream", "-o", "json")).lines
    assert sum("artifactUpdate" in event for event in events) == 3
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_its_question_is_answered(cli: StandardCli) -> None:
    paused = await cli.run("send", "ask which one?")
    assert paused.field("State") == "TASK_STATE_INPUT_REQUIRED"
    assert "Message:\nwhich one?\n\n" in paused.out
    answered = await cli.run("send", "this one", "--task-id", paused.field("Task"))
    assert answered.field("State") == "TASK_STATE_COMPLETED"
    assert "answer: this one" in answered.out


async def test_its_task_is_listed_and_canceled(cli: StandardCli) -> None:
    started = await cli.run("send", "wait", "--async")
    task_id = started.field("Task")
    listed = await cli.run("task", "list", "--context-id", started.field("Context"))
    assert listed.fields("Task") == [task_id]
    canceled = await cli.run("task", "cancel", task_id)
    assert canceled.field("State") == "TASK_STATE_CANCELED"
    assert (await cli.run("task", "get", "--wait", task_id)).field("State") == "TASK_STATE_CANCELED"


async def test_its_exception_is_an_internal_error_over_each_binding(cli: StandardCli) -> None:
    streamed = await cli.run("send", "count nonsense", "--stream", "-o", "json")
    assert streamed.exit == 1
    assert streamed.error["code"] == "InternalError"
    # The SDK fails the task, and a wait is about the task, not about its stream.
    waited = await cli.run("send", "count nonsense")
    assert waited.exit == 0
    assert waited.field("State") == "TASK_STATE_FAILED"


async def test_its_errors_have_the_protocols_names(cli: StandardCli) -> None:
    missing = await cli.run("task", "get", "none", "-o", "json")
    assert (missing.exit, missing.error["code"]) == (1, "TaskNotFoundError")
    push = await cli.run("task", "push-config", "list", "none", "-o", "json")
    assert push.error["code"] == "PushNotificationNotSupportedError"
