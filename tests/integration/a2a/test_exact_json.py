"""JSON passes all surfaces of a mesh exactly: integers of any size, 5 and 5.0, empties, order.

The comparison is by text, which tells 5 from 5.0, 1 from true, and has the order of the members.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict
from mcp import Client as McpClient
from mcp_types import TextContent

from harness.a2a.grpc_client import GrpcMesh, open_grpc_mesh, refusal, send_request
from harness.a2a.protocol_variants import JsonRpcVariant, RestVariant, Spoken, find_variant
from harness.agents.mirror import keeper, mirror, teller
from harness.mcp import exact_server
from harness.mcp.bundled_servers import only_servers
from harness.mesh.command_line import run_in_process
from harness.mesh.processes import MeshProcess, running_mesh
from harness.remote.webhook_receiver import open_receiver
from trunkline import Client, from_a2a
from trunkline.a2a.v1 import a2a_pb2 as own_pb2
from trunkline.a2a_client.remote_agent import connect_remote_agent
from trunkline.a2a_client.settings import RemoteSettings
from trunkline.core.settings import Settings
from trunkline.v1 import message_pb2
from trunkline_bridge.mcp.agent_clients import AgentClients, CallerCredentials
from trunkline_bridge.mcp.agent_sources import MeshAgents
from trunkline_bridge.mcp.server import AgentServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

# What google.protobuf.Value holds, too.
PLAIN: Final[dict[str, Any]] = {
    "z": 5,
    "float": 0.1,
    "zero": 0,
    "false": False,
    "true": True,
    "text": "",
    "null": None,
    "object": {},
    "array": [],
    "nested": {"z": [{"b": 1, "a": [[]]}], "a": {}},
    "smallest": -(2**63),
    "a": "before z in the alphabet",
}
EXACT: Final[dict[str, Any]] = {
    **PLAIN,
    "whole": 5.0,
    "id": 9007199254740993,
    "inner": [{"id": -9007199254740993}],
    "64 bits": 2**64 + 1,
    "most": 10**308,
}


def text_of(value: object) -> str:
    return json.dumps(value)


def data_of(artifacts: list[dict[str, Any]]) -> Any:
    """Return the data of an answer in any version's JSON."""
    (part,) = artifacts[-1]["parts"]
    data = part["data"]
    # HTTP+JSON of v0.3 has a message for it.
    return data["data"] if isinstance(data, dict) and set(data) == {"data"} else data


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GrpcMesh]:
    settings = Settings(default_agent="mirror", allow_webhook=("127.0.0.1",))
    async with open_grpc_mesh(tmp_path_factory.mktemp("mesh"), settings) as opened:
        await opened.bridged.mesh.join(mirror, teller, keeper())
        yield opened


async def send_jsonrpc(mesh: GrpcMesh, value: object) -> object:
    caller = mesh.bridged.at("/agents/mirror")
    message = caller.message("")
    message["parts"] = [{"data": value, "metadata": value}]
    task = (await caller.call("SendMessage", {"message": message}))["task"]
    shown = await caller.call("GetTask", {"id": task["id"], "historyLength": 1})
    (part,) = shown["artifacts"][0]["parts"]
    assert text_of(part["metadata"]) == text_of(value)
    assert text_of(shown["history"][0]["parts"][0]["data"]) == text_of(value)
    return data_of(task["artifacts"])


async def stream_jsonrpc(mesh: GrpcMesh, value: object) -> object:
    caller = mesh.bridged.at("/agents/mirror")
    message = {**caller.message(""), "parts": [{"data": value}]}
    async with caller.stream("SendStreamingMessage", {"message": message}) as stream:
        results = [event.result for event in await stream.rest()]
    (update,) = [each["artifactUpdate"] for each in results if "artifactUpdate" in each]
    return data_of([update["artifact"]])


async def send_rest(mesh: GrpcMesh, value: object) -> object:
    message = {**mesh.bridged.at("").message(""), "parts": [{"data": value}]}
    url = f"{mesh.bridged.url}/agents/mirror/message:send"
    answer = await mesh.bridged.client.post(url, json={"message": message})
    return data_of(answer.json()["task"]["artifacts"])


async def ask_by_client(mesh: GrpcMesh, value: object) -> object:
    assert isinstance(value, dict)
    async with Client(f"{mesh.bridged.url}/agents/mirror") as client:
        (data,) = (await client.ask(value)).data
    return data


async def ask_remote_agent(mesh: GrpcMesh, value: object) -> object:
    """Ask the mesh as a remote agent of itself, over JSON-RPC."""
    await mesh.bridged.mesh.join(from_a2a(f"{mesh.bridged.url}/agents/mirror", name="far"))
    caller = mesh.bridged.at("/agents/far")
    message = {**caller.message(""), "parts": [{"data": value}]}
    return data_of((await caller.call("SendMessage", {"message": message}))["task"]["artifacts"])


async def call_as_mcp_tool(mesh: GrpcMesh, value: object) -> object:
    """Call the agent that asks the other one as a tool of the mesh's MCP server."""
    async with (
        AgentClients(mesh.bridged.url, CallerCredentials()) as clients,
        AgentServer(MeshAgents(mesh.bridged.mesh.directory), clients).running() as server,
        McpClient(server.protocol_server) as client,
    ):
        result = await client.call_tool("teller", {"message": text_of(value)})
    _, data = result.content
    assert isinstance(data, TextContent)
    return json.loads(data.text)


async def receive_webhook(mesh: GrpcMesh, value: object) -> object:
    caller = mesh.bridged.at("/agents/mirror")
    message = {**caller.message(""), "parts": [{"data": value}]}
    async with open_receiver() as receiver:
        hook = {"taskPushNotificationConfig": {"url": receiver.url}}
        await caller.call("SendMessage", {"message": message, "configuration": hook})
        await receiver.until(lambda seen: seen.accepted and b"COMPLETED" in seen.accepted[-1].body)
        updates = [
            post.json["artifactUpdate"] for post in receiver.accepted if b"artifactU" in post.body
        ]
    return data_of([updates[0]["artifact"]])


SURFACES: Final[list[Callable[[GrpcMesh, object], Awaitable[object]]]] = [
    send_jsonrpc,
    stream_jsonrpc,
    send_rest,
    ask_by_client,
    ask_remote_agent,
    call_as_mcp_tool,
    receive_webhook,
]


# The part with data in each version before 1.0.
OLDER: Final[list[tuple[Spoken, Callable[[object], dict[str, Any]]]]] = [
    (("0.3", JsonRpcVariant), lambda value: {"kind": "data", "data": value}),
    (("0.3", RestVariant), lambda value: {"data": {"data": value}}),
    (("0.1", JsonRpcVariant), lambda value: {"type": "data", "data": value}),
]


@pytest.mark.parametrize(("spoken", "make_part"), OLDER, ids=["0.3", "0.3 HTTP+JSON", "0.1"])
async def test_json_of_older_versions_comes_back_as_it_was_sent(
    mesh: GrpcMesh, spoken: Spoken, make_part: Callable[[object], dict[str, Any]]
) -> None:
    answer = await find_variant(mesh, spoken, {}).ask("send", text="", part=make_part(EXACT))
    task = answer.get("task", answer)
    assert text_of(data_of(task["artifacts"])) == text_of(EXACT)


@pytest.mark.parametrize("send", SURFACES, ids=lambda send: send.__name__)
async def test_json_comes_back_as_it_was_sent(
    mesh: GrpcMesh, send: Callable[[GrpcMesh, object], Awaitable[object]]
) -> None:
    assert text_of(await send(mesh, EXACT)) == text_of(EXACT)


async def test_the_state_of_a_graph_keeps_integers_of_64_bits_between_turns(mesh: GrpcMesh) -> None:
    value = {key: item for key, item in EXACT.items() if key not in {"64 bits", "most"}}
    caller = mesh.bridged.at("/agents/keeper")
    asked = (await caller.call("SendMessage", {"message": caller.message(text_of(value))}))["task"]
    answer = caller.message("yes") | {"taskId": asked["id"], "contextId": asked["contextId"]}
    task = (await caller.call("SendMessage", {"message": answer}))["task"]
    assert text_of(data_of(task["artifacts"][:1])) == text_of(value)


async def test_grpc_carries_what_its_type_holds_and_refuses_the_rest_by_name(
    mesh: GrpcMesh,
) -> None:
    fields: dict[str, Any] = {"parts": [{"data": PLAIN}]}
    (artifact,) = (await mesh.v1.SendMessage(send_request("", **fields))).task.artifacts
    assert MessageToDict(artifact.parts[0].data) == PLAIN
    caller = mesh.bridged.at("/agents/mirror")
    message = {**caller.message(""), "parts": [{"data": {"a": [EXACT]}}]}
    task_id = (await caller.call("SendMessage", {"message": message}))["task"]["id"]
    parts = {"1.0": "artifacts[0].parts[0].data", "0.3": "artifacts[0].parts[0].data.data"}
    for version, call in (
        ("1.0", mesh.v1.GetTask(a2a_pb2.GetTaskRequest(id=task_id))),
        ("0.3", mesh.v0_3.GetTask(a2a_v0_3_pb2.GetTaskRequest(name=f"tasks/{task_id}"))),
    ):
        refused = await refusal(call)
        assert (refused.code, refused.text.partition(" over ")[0].rpartition(": ")[2]) == (
            "FAILED_PRECONDITION",
            f"{parts[version]}.a[0].id",
        )
        assert "use JSON-RPC or HTTP+JSON" in refused.text


async def test_a_remote_agent_over_grpc_is_not_sent_what_its_type_rounds(mesh: GrpcMesh) -> None:
    remote = RemoteSettings(
        url=f"{mesh.bridged.url}/agents/mirror",
        name="by-grpc",
        bindings=("GRPC",),
        hosts=("127.0.0.1",),
    )
    async with connect_remote_agent(remote) as far:
        await mesh.bridged.mesh.join(far.agent)
        caller = mesh.bridged.at("/agents/by-grpc")
        states = []
        for value in (PLAIN, EXACT):
            message = {**caller.message(""), "parts": [{"data": value}]}
            task = (await caller.call("SendMessage", {"message": message}))["task"]
            states.append(task["status"]["state"])
    assert states == ["TASK_STATE_COMPLETED", "TASK_STATE_FAILED"]
    text = task["status"]["message"]["parts"][0]["text"]
    assert "message.parts[0].data.id over gRPC is not supported" in text


async def test_what_a_grpc_caller_puts_into_our_own_fields_is_checked(mesh: GrpcMesh) -> None:
    message = message_pb2.Message(message_id="own", role=message_pb2.ROLE_USER)
    message.parts.add().data.exact_number = "1" * 400
    request = own_pb2.SendMessageRequest(message=message).SerializeToString()
    refused = await refusal(mesh.raw("/lf.a2a.v1.A2AService/SendMessage", request))
    assert refused.code == "INVALID_ARGUMENT"
    assert "no integer in the range of a double" in refused.violations["request"]


@dataclass(frozen=True)
class CommandLine:
    """A mesh in its own processes, with a tool server whose JSON is exact, and the commands."""

    mesh: MeshProcess

    async def run(self, *words: str) -> Any:
        ended = await asyncio.to_thread(run_in_process, *words)
        assert ended.exit == 0, ended.err
        return json.loads(ended.out)

    async def inside(self, *words: str) -> Any:
        return await self.run(*words, "--mesh", self.mesh.mesh_address, "--json")


@asynccontextmanager
async def open_command_line(folder: Path) -> AsyncIterator[CommandLine]:
    server = {
        "command": sys.executable,
        "args": [str(exact_server.__file__)],
        "env": {"EXACT_JSON": text_of(EXACT)},
    }
    environment = only_servers(folder, own={"exact": server})
    flags = ("--agent", "harness.agents.mirror:mirror")
    async with running_mesh(folder, *flags, servers=None, environment=environment) as mesh:
        yield CommandLine(mesh)


async def test_tools_the_command_line_and_a_restarted_journal_are_exact(tmp_path: Path) -> None:
    async with open_command_line(tmp_path) as cli:
        declared = await cli.inside("tools", "show", "exact/get")
        assert text_of(declared["input_schema"]["properties"]["value"]["default"]) == text_of(EXACT)
        called = await cli.inside("tools", "call", "exact/get", "{}", "--yes")
        assert text_of(called["structured_content"]) == text_of(EXACT)
        assert json.loads(called["content"][0]["text"]) == EXACT

        file = tmp_path / "data.json"
        file.write_text(text_of(EXACT))
        agent = ("-a", f"{cli.mesh.http_url}/agents/mirror", "-o", "json")
        sent = await cli.run("a2a", "send", "--data", str(file), *agent)
        assert text_of(data_of(sent["task"]["artifacts"])) == text_of(EXACT)
        asked = await cli.run("a2a", "send", "exact/get", *agent)
        assert text_of(data_of(asked["task"]["artifacts"])) == text_of(EXACT)
    async with open_command_line(tmp_path) as cli:
        for task in (sent["task"], asked["task"]):
            shown = await cli.inside("task", task["id"])
            assert text_of(data_of(shown["task"]["artifacts"])) == text_of(EXACT)
