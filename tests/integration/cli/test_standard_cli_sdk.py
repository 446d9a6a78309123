"""`trunkline a2a` against agents of the reference SDK, of A2A v1.0 and v0.3, over each binding."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from harness.a2a.sdk_processes import PYTHON_V0_3, make_environment
from harness.a2a.standard_cli import StandardCli
from harness.mesh.processes import read_line, running_process

pytestmark = pytest.mark.asyncio(loop_scope="module")

# The names of an agent's "I don't have that", by what its server answers.
_NOT_SERVED = ("MethodNotFoundError", "InternalError", "UnsupportedOperationError")
TESTS = Path(__file__).parents[2]
SERVERS = {
    "1.0": (sys.executable, "partners.server_v1_0"),
    "0.3": (PYTHON_V0_3, "partners.server_v0_3"),
}
BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")


class Partner(NamedTuple):
    """An agent, and the version of A2A that it speaks."""

    version: str
    url: str


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=SERVERS)
async def partner(request: pytest.FixtureRequest) -> AsyncIterator[Partner]:
    make_environment()
    python, module = SERVERS[request.param]
    environment = {"PYTHONPATH": str(TESTS)}
    async with running_process(python, "-m", module, cwd=TESTS, environment=environment) as process:
        yield Partner(request.param, (await read_line(process, "ready "))["url"])


@pytest.fixture(params=BINDINGS)
def binding(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def cli(partner: Partner, tmp_path: Path, binding: str) -> StandardCli:
    """The command line for the agent over one binding. v0.3 must be asked for."""
    flags = () if partner.version == "1.0" else ("--a2a-version", partner.version)
    return StandardCli(tmp_path).at(partner.url, "--transport", binding, *flags)


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


async def test_its_question_is_answered(cli: StandardCli, partner: Partner) -> None:
    paused = await cli.run("send", "ask which one?")
    assert paused.field("State") == "TASK_STATE_INPUT_REQUIRED"
    assert "Message:\nwhich one?\n\n" in paused.out
    # The command that continues works as it is printed.
    assert ("--a2a-version 0.3" in paused.field("Resume")) == (partner.version == "0.3")
    answered = await cli.run("send", "this one", "--task-id", paused.field("Task"))
    assert answered.field("State") == "TASK_STATE_COMPLETED"
    assert "answer: this one" in answered.out


async def test_its_task_is_listed_and_canceled(cli: StandardCli, partner: Partner) -> None:
    started = await cli.run("send", "wait", "--async")
    task_id = started.field("Task")
    listed = await cli.run("task", "list", "--context-id", started.field("Context"), "-o", "json")
    if partner.version == "1.0":
        assert [task["id"] for task in listed.json["tasks"]] == [task_id]
    else:
        assert (listed.exit, listed.error["code"]) == (1, "UnsupportedOperationError")
        assert "A2A 0.3 does not have it" in listed.error["message"]
    canceled = await cli.run("task", "cancel", task_id)
    assert (canceled.exit, canceled.err) == (0, "")
    assert canceled.field("State") == "TASK_STATE_CANCELED"
    waited = await cli.run("task", "get", "--wait", task_id, "-o", "json")
    assert waited.json["status"]["state"] == "TASK_STATE_CANCELED"
    assert "did not complete" in waited.err


async def test_a_task_is_followed_again(cli: StandardCli, partner: Partner, binding: str) -> None:
    started = await cli.run("send", "wait", "--async")
    task_id = started.field("Task")
    async with asyncio.TaskGroup() as group:
        words = ["task", "subscribe", task_id, "--stream", "-o", "json"]
        if (partner.version, binding) == ("0.3", "HTTP+JSON"):
            # The SDK breaks off the stream of an ended task, and our client tries it again.
            words += ["--timeout", "1s"]
        following = group.create_task(cli.run(*words))
        # The cancel ends the stream, whether it is open by then or not.
        await cli.run("task", "cancel", task_id)
    followed = following.result()
    if followed.exit != 0:
        # The SDK of v0.3 has no stream of a task that ended before.
        assert partner.version == "0.3", followed
        assert followed.error["code"] in ("TaskNotFoundError", "A2ACLI_ERR_TIMEOUT")
        followed = await cli.run("task", "get", task_id, "-o", "json")
    assert "TASK_STATE_CANCELED" in followed.out


async def test_its_exception_is_an_internal_error_over_each_binding(
    cli: StandardCli, partner: Partner
) -> None:
    if partner.version == "0.3":
        # The SDK of v0.3 leaves the stream open and the task working, so the wait has its limit.
        stuck = await cli.run("send", "count nonsense", "--timeout", "2s", "-o", "json")
        assert (stuck.exit, stuck.error["code"]) == (5, "A2ACLI_ERR_TIMEOUT")
        return
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
    ended = (await cli.run("send", "count 1")).field("Task")
    late = await cli.run("task", "cancel", ended, "-o", "json")
    assert (late.exit, late.error["code"]) == (1, "TaskNotCancelableError")


async def test_its_push_notifications_are_configured(
    cli: StandardCli, partner: Partner, binding: str
) -> None:
    command = ("task", "push-config")
    if partner.version == "1.0":
        refused = await cli.run(*command, "list", "none", "-o", "json")
        assert refused.error["code"] == "PushNotificationNotSupportedError"
        return
    task_id = (await cli.run("send", "ask which one?")).field("Task")
    url = "http://127.0.0.1:9/hook"
    flags = (url, "--id", "hook", "--token", "secret", "--auth", "Bearer abc")
    created = await cli.run(*command, "create", task_id, *flags, "-o", "json")
    assert created.exit == 0, created
    shown = await cli.run(*command, "get", task_id, "hook", "-o", "json")
    for config in (created.json, shown.json):
        assert (config["taskId"], config["id"], config["url"]) == (task_id, "hook", url)
        assert config["authentication"] == {"scheme": "Bearer", "credentials": "abc"}
    listed = await cli.run(*command, "list", task_id, "-o", "json")
    deleted = await cli.run(*command, "delete", task_id, "hook", "-o", "json")
    if binding == "JSONRPC":
        assert [config["id"] for config in listed.json["configs"]] == ["hook"]
        assert deleted.exit == 0
        assert (await cli.run(*command, "get", task_id, "hook")).exit == 1
    else:
        # The SDK of v0.3 does not serve these over its other bindings.
        assert listed.error["code"] in _NOT_SERVED
        assert deleted.error["code"] in _NOT_SERVED


async def test_its_card_of_v0_3_is_shown(cli: StandardCli, partner: Partner, binding: str) -> None:
    shown = await cli.run("card", "get")
    assert shown.field("Selected").startswith(f"{binding} {partner.version} ")
    if partner.version == "0.3":
        assert [line.split()[0] for line in shown.fields("Interface")] == list(BINDINGS)
        refused = await StandardCli(cli.home).at(partner.url).run("send", "hi", "-o", "json")
        assert refused.error["code"] == "VersionNotSupportedError"
        assert "--a2a-version 0.3" in refused.error["hint"]
