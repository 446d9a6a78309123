"""A mesh with GraphQL, and its callers: agents, a workflow in two versions, and API keys."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.a2a.bridged_mesh import BridgedMesh, Stream, open_bridged_mesh
from harness.a2a.caller_keys import key_headers, write_keys
from harness.a2a.graphql_client import GraphQLClient, Json
from harness.agents.teacher import teacher
from harness.mesh.messages import join_messages
from harness.workflows.building import agent_node, build
from trunkline import TaskContext, agent, from_workflow
from trunkline.core.settings import GraphQLSettings, LimitSettings, Settings
from trunkline.core.settings.limits import AccountLimitSettings
from trunkline.core.small_files import FolderFiles
from trunkline.processes.workflow_catalog import StoredWorkflows
from trunkline.workflows.definition import Workflow

KEYS: dict[str, Json] = {
    "ann": {},
    "bob": {"account": "other"},
    "reader": {"methods": ("read",)},
    "narrow": {"agents": ("teacher",)},
    "slow": {"account": "slow"},
    "single": {"account": "single"},
    "leaving": {},
}
MESSAGE = "id correlationId causationId sender recipient room type text data isReply"
SEND = f"mutation($m: MessageInput!) {{ sendMessage(message: $m) {{ {MESSAGE} }} }}"
START = 'mutation($d: JSON) { startWorkflow(name: "flow", data: $d) { id } }'
RUN = """query($id: ID!) { run(id: $id) {
  id workflow version state statusText isPaused contextId createTime statusTime
  answer { text data } path { node label isError startTime endTime } currentNodes drawing } }"""
EVENTS = """subscription($id: ID!, $after: String) { runEvents(id: $id, after: $after) {
  __typename cursor time
  ... on RunStateChanged { state } ... on NodeStarted { node } ... on NodeFinished { node label }
  ... on ContentAdded { text } ... on AgentCalled { agent } } }"""
WATCH = f"""subscription($room: String!, $after: String) {{
  messages(filter: {{room: $room}}, after: $after) {{ cursor message {{ {MESSAGE} }} }} }}"""


class Gate:
    """The point at which runs of the workflow wait."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()

    async def pass_through(self, task: TaskContext) -> str:
        if "wait" in task.text:
            await self.is_open.wait()
        return f"passed {task.text}"


@dataclass(frozen=True, slots=True)
class GraphQLMesh:
    mesh: BridgedMesh
    gate: Gate
    keys: Path

    def at(self, key: str = "ann") -> GraphQLClient:
        return GraphQLClient(self.mesh.client, self.mesh.url, key_headers(key))

    async def send(self, recipient: str, text: str, key: str = "ann", **fields: Any) -> Json:
        message = {"recipient": recipient, "type": "quiet", "text": text, **fields}
        sent: Json = (await self.at(key).data(SEND, m=message))["sendMessage"]
        return sent

    async def start(self, text: str) -> str:
        run = await self.at().data(START, d={"text": text})
        return str(run["startWorkflow"]["id"])

    async def until_over(self, run_id: str, after: str | None = None) -> list[Json]:
        """Return the events of a run to its end."""
        async with self.at().events(EVENTS, id=run_id, after=after) as stream:
            return [event["data"]["runEvents"] for event in await read_to_end(stream)]

    async def dead_letter(self) -> str:
        """Return the id of a message that can't be handled, when it is given up."""
        query = """subscription($id: String!) { messages(
          filter: {id: $id}, after: "0", withDeliveries: true) {
            message { deliveries { state recipient attemptCount attempts { problem } } } } }"""
        body = {
            "recipient": "teacher",
            "type": "evaluation_request",
            "data": {"proposal": "p", "context": "fail"},
        }
        sent = (await self.at().data(SEND, m=body))["sendMessage"]
        async with self.at().events(query, id=sent["id"]) as stream:
            async for event in stream:
                message = event.response["data"]["messages"]["message"]
                if message and message["deliveries"][0]["state"] == "DEAD":
                    (delivery,) = message["deliveries"]
                    assert delivery["recipient"] == "teacher"
                    assert delivery["attemptCount"] == 2
                    assert len(delivery["attempts"]) == 2
                    return str(sent["id"])
        raise AssertionError("the stream ended")


async def read_to_end(stream: Stream) -> list[Json]:
    """Return the results of a stream until it is complete."""
    results: list[Json] = []
    async for event in stream:
        if event.kind == "complete":
            return results
        assert event.kind == "next"
        results.append(event.response)
    raise AssertionError("the stream was cut")


def flow(version: int) -> Workflow:
    return build(
        "flow",
        agent_node("first", "gate", "${input.text}"),
        {"id": "end", "output": {"text": "${last.text}", "version": version}},
        edges="start > first > end",
        version=version,
        description=f"Version {version}.",
        inputs={"type": "object", "required": ["text"], "properties": {"text": {}}},
    )


@asynccontextmanager
async def open_graphql_mesh(folder: Path) -> AsyncIterator[GraphQLMesh]:
    """Open a mesh with agents, a workflow in two versions, and callers with API keys."""
    keys = folder / "keys"
    write_keys(keys, KEYS)
    accounts = {
        "slow": AccountLimitSettings(rate=0.001, burst=3),
        "single": AccountLimitSettings(streams=1),
    }
    settings = Settings(
        default_agent="teacher",
        api_keys_file=keys,
        body_limit_bytes=100_000,
        limits=LimitSettings(account=accounts),
        graphql=GraphQLSettings(enabled=True, rollback=True, subscriptions=3, page_size=50),
    )
    gate = Gate()
    gate_agent = agent(name="gate", description="Waits.")(gate.pass_through)
    async with open_bridged_mesh(
        folder, settings, catalog=StoredWorkflows(FolderFiles(folder))
    ) as mesh:
        await mesh.mesh.join(teacher, gate_agent, from_workflow(flow(1), flow(2)))
        await join_messages(mesh.mesh, attempts=2)
        yield GraphQLMesh(mesh, gate, keys)
