"""The main use case as a user sees it: questions and answers through every hop of a mesh."""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from harness.a2a.curl import curl
from harness.mcp.bundled_servers import only_servers
from harness.mesh.command_line import run_command
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import BUNDLED, Services, running_services
from trunkline.mesh.client import ChannelPool, HostClient, RegistryClient
from trunkline.v1 import event_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Enough for ten processes on a busy machine.
LIMIT_S = 300.0

# As in the README: a third-party server, and the pattern by which the rules model calls it.
TOOLS = {
    "time": {
        "command": str(Path(sys.executable).with_name("mcp-server-time")),
        "trunkline": {
            "agent": {"description": "Tells the time in a city.", "tags": ["time"]},
            "tools": {
                "get_current_time": {
                    "match": [
                        {
                            "pattern": "what time is it in (?P<city>[a-z ]+)",
                            "arguments": {
                                "timezone": {"from": "{city}", "map": {"tokyo": "Asia/Tokyo"}}
                            },
                            "answer": "It is {datetime} in {timezone}.",
                        }
                    ]
                }
            },
        },
    }
}


@dataclass(frozen=True)
class Answered:
    """The result of `trunkline ask --json`."""

    exit: int | None
    output: dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Services]:
    """A mesh of one service for each process; `test_commands` asks a mesh in one process."""
    folder = tmp_path_factory.mktemp("mesh")
    file = only_servers(folder, "math", "currency", own=TOOLS)["TRUNKLINE_MCP_FILE"]
    async with running_services(folder, "--mcp", file, agents=(*BUNDLED, "time")) as services:
        yield services


async def ask(mesh: Services, question: str) -> Answered:
    done = await run_command("ask", "--json", "--url", mesh.http_url, question)
    return Answered(done.exit, done.json)


@pytest.mark.parametrize(
    ("question", "agent", "answer"),
    [
        ("1+2", "math", "3"),
        ("what is (2+3)*4", "math", "20"),
        ("15% of 240", "math", "36"),
        ("sqrt(2) to 10 digits", "math", "1.414213562"),
        ("solve x^2-5x+6=0", "math", "x = 2 or x = 3"),
        ("derivative of x^3", "math", "3*x^2"),
        ("integrate x*sin(x)", "math", "-x*cos(x) + sin(x) + C"),
        (
            "100 USD to EUR on 2020-03-02",
            "currency",
            "100 USD = 89.91 EUR (ECB rate of 2020-03-02)",
        ),
    ],
)
async def test_a_question_is_answered_by_the_agent_whose_tools_declare_it(
    mesh: Services, question: str, agent: str, answer: str
) -> None:
    answered = await ask(mesh, question)
    assert answered.exit == 0
    assert answered.output["state"] == "completed"
    assert answered.output["answer"] == answer
    assert answered.output["agent"] == agent
    assert 0 < answered.output["confidence"] <= 1
    assert answered.output["reasons"]
    assert answered.output["task_id"]
    assert answered.output["context_id"]
    assert len(answered.output["trace_id"]) == 32


async def test_the_documented_curl_command_is_answered(mesh: Services) -> None:
    results = [response["result"] for response in await curl(f"{mesh.http_url}/")]
    artifacts = [result["artifact"] for result in results if result["kind"] == "artifact-update"]
    answers = [artifact for artifact in artifacts if artifact["name"] == "streaming_result"]
    assert "".join(answer["parts"][0]["text"] for answer in answers) == "3"
    assert results[-1]["status"]["state"] == "completed"
    assert [result.get("final", False) for result in results[-2:]] == [False, True]


async def test_without_a_date_the_latest_rate_is_used(mesh: Services) -> None:
    answered = await ask(mesh, "100 USD in EUR")
    assert answered.exit == 0
    start, _, day = answered.output["answer"].partition("(ECB rate of ")
    assert start.startswith("100 USD = ")
    assert day > "2020-03-02"


async def test_a_tool_added_by_configuration_alone_is_called(mesh: Services) -> None:
    answered = await ask(mesh, "what time is it in Tokyo")
    assert answered.exit == 0
    assert answered.output["agent"] == "time"
    assert answered.output["answer"].startswith("It is 20")
    assert answered.output["answer"].endswith("+09:00 in Asia/Tokyo.")


async def test_an_unanswerable_question_gets_an_error_with_examples(mesh: Services) -> None:
    answered = await ask(mesh, "who will win the next election")
    assert answered.exit != 0
    assert answered.output["state"] == "input-required"
    assert answered.output["status_text"].startswith("I am the built-in rules model, and no agent")
    assert 'math: "what is 1+2"' in answered.output["status_text"]


async def test_two_agents_work_in_parallel_and_their_answers_keep_the_order_of_questions(
    mesh: Services,
) -> None:
    answered = await ask(mesh, "what is 15% of 240, and convert 36 USD to EUR")
    assert answered.exit == 0
    first, second = answered.output["answer"].splitlines()
    assert first == "36"
    assert second.startswith("36 USD = ")
    events = await events_of(mesh, answered.output["task_id"])
    kinds = [event.WhichOneof("event") for event in events]
    # Both started before either ended.
    assert kinds.count("child_started") == kinds.count("child_finished") == 2
    started = [at for at, kind in enumerate(kinds) if kind == "child_started"]
    assert max(started) < kinds.index("child_finished")


async def events_of(mesh: Services, task_id: str) -> list[event_pb2.Event]:
    """Return the events in the task's journal."""
    async with ChannelPool(mesh_credentials()) as channels, asyncio.timeout(LIMIT_S):
        hosts = await RegistryClient(channels.get(mesh.mesh_address)).list_agents()
        journal_id = task_id.partition("-")[0]
        (address,) = [host.address for host in hosts if journal_id in host.journal_ids]
        client = HostClient(channels.get(address))
        watch = client.watch_task(task_id, account="anonymous", after=0, with_snapshot=False)
        async with watch as stream:
            return [
                event
                async for batches in stream
                for sealed in batches
                for event in event_pb2.EventBatch.FromString(sealed).events
            ]
