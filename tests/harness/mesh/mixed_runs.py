"""Requests of every kind to one mesh, each with what its trace must be."""

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import httpx2
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.types import a2a_pb2_grpc

from harness.a2a.graphql_client import GraphQLClient
from harness.a2a.grpc_client import send_request, v0_3_send_request
from harness.a2a.rest_client import user_message as rest_message
from harness.a2a.sse_client import ClientFold, RefusedError, call, sse, user_message
from harness.mcp.blocked_tool import BlockedTool, blocked_tool
from harness.mcp.bundled_servers import only_servers
from harness.mcp.http_server import HttpTools, http_tools
from harness.mesh.command_line import COMMAND, run_command
from harness.mesh.processes import (
    WITH_HARNESS,
    MeshProcess,
    read_line,
    running_mesh,
    running_process,
)
from harness.remote.webhook_receiver import Answer, ReceivedPost, open_receiver, status
from harness.workflows.parrot import PARROT

PATIENCE_S: Final = 120.0
_RETRY_S: Final = 0.2
_HOLD = {
    "command": sys.executable,
    "args": [str(Path(__file__).parents[1] / "mcp" / "hold_server.py")],
    "trunkline": {
        "approval": "never",
        "agent": {"description": "Holds on.", "tags": ["hold"]},
    },
}
_TESTS: Final = Path(__file__).parents[2]


@dataclass(slots=True)
class Request:
    """A request, and what its trace must have."""

    kind: str
    trace_id: str = field(default_factory=lambda: os.urandom(16).hex())
    parent: str = field(default_factory=lambda: os.urandom(8).hex())
    root: str = "SendMessage"
    has: tuple[str, ...] = ()
    """The names of spans that it has."""
    links_to: str = ""
    """The trace to which its root has a link; "": none."""
    repeats: str = ""
    """The name of a span of which there is a second attempt."""
    is_killed: bool = False
    """Its agent was killed, so spans remain open or are lost."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers by which the trace has the id."""
        return {"traceparent": f"00-{self.trace_id}-{self.parent}-01"}


Run = Callable[[], Awaitable[Sequence[Request]]]


class MixedRuns:
    """A mesh, with an agent in a process that is killed, and runs of every kind."""

    def __init__(
        self, mesh: MeshProcess, folder: Path, rng: random.Random, stack: AsyncExitStack
    ) -> None:
        self.mesh = mesh
        self.kinds: dict[str, Run] = {
            name.removeprefix("run_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("run_")
        }
        self._folder = folder
        self._rng = rng
        self._stack = stack
        self._carrier: asyncio.subprocess.Process | None = None
        self._calm = asyncio.Lock()
        self.tool = BlockedTool()
        self.hook_url = ""
        self.http_tools: HttpTools | None = None

    async def run_unary(self) -> Sequence[Request]:
        """Through the supervisor to a model, a tool and an MCP server over stdio."""
        request = Request("unary", has=("chat rules", "tools/call calculate"))
        task = await self._ask(request, "what is 1+2")
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        return [request]

    async def run_parallel(self) -> Sequence[Request]:
        """Two agents at once, as a stream."""
        has = ("tools/call calculate", "tools/call convert")
        request = Request("parallel", root="SendStreamingMessage", has=has)
        text = "what is 15% of 240, and convert 36 USD to EUR"
        fold = await self._stream(request, "/", text)
        assert fold.state == "TASK_STATE_COMPLETED"
        return [request]

    async def run_failure(self) -> Sequence[Request]:
        """An agent that fails."""
        request = Request("failure", has=("invoke_agent echo",))
        task = await self._ask(request, "fail on purpose", agent="echo")
        assert task["status"]["state"] == "TASK_STATE_FAILED"
        return [request]

    async def run_question(self) -> Sequence[Request]:
        """A tool that fails, a question back, and its answer in a request of its own."""
        first = Request("question", has=("tools/call convert",))
        task = await self._ask(first, "100 ZZZ to EUR")
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        second = Request("answer", has=("invoke_agent supervisor",), links_to=first.trace_id)
        await self._ask(second, "USD", task_id=task["id"])
        return [first, second]

    async def run_cancel(self) -> Sequence[Request]:
        """A cancel that reaches a running MCP call."""
        first = Request("canceled", has=("execute_tool hold", "tools/call hold"))
        async with self._calm:
            task = await self._ask(first, self.tool.question, now=True)
            ended = await self.tool.wait_for_call()
        second = Request("cancel", root="CancelTask", links_to=first.trace_id)
        await self._call(second, "CancelTask", {"id": task["id"]})
        await ended.wait()
        return [first, second]

    async def run_timeout(self) -> Sequence[Request]:
        """A deadline that passes while an agent works."""
        request = Request("timeout", has=("invoke_agent echo",))
        # A deadline that passes before the task exists is an error instead of a failed task.
        headers = {"Trunkline-Timeout": "5"}
        task = await self._ask(request, "wait 600", agent="echo", headers=headers)
        assert task["status"]["state"] == "TASK_STATE_FAILED"
        return [request]

    async def run_reconnect(self) -> Sequence[Request]:
        """A stream that is cut, and continued after its last event."""
        first = Request("cut", root="SendStreamingMessage", has=("invoke_agent echo",))
        fold = await self._stream(first, "/agents/echo", "count 30 10", cut_after=5)
        return [first, *await self._reconnect(fold, "/agents/echo", first.trace_id)]

    async def run_kill(self) -> Sequence[Request]:
        """A host that is killed at any time, and started again."""
        first = Request("killed", root="SendStreamingMessage", has=("invoke_agent carried",))
        first.is_killed = True
        fold = ClientFold()
        async with self._calm:
            at = self._rng.randrange(2, 40)
            fold = await self._stream(first, "/agents/carried", "60 20", cut_after=at, is_kill=True)
            reconnects = await self._reconnect(fold, "/agents/carried", first.trace_id)
        for request in reconnects:
            # The next run may kill the host before it has exported these spans.
            request.is_killed = True
        assert fold.state == "TASK_STATE_COMPLETED"
        return [first, *reconnects]

    async def run_http_tool(self) -> Sequence[Request]:
        """A tool of an MCP server over HTTP, called by an agent's code."""
        has = ("execute_tool repeat_reading", "tools/call repeat_reading")
        request = Request("http tool", has=has)
        text = "elsewhere/repeat_reading text hello"
        task = await self._ask(request, text, agent="caller")
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
        return [request]

    async def run_workflow(self) -> Sequence[Request]:
        """A workflow, whose node is an agent."""
        has = ("invoke_workflow parrot", "run_node ask", "invoke_agent echo")
        request = Request("workflow", has=has)
        task = await self._ask(request, "hello", agent="parrot")
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        return [request]

    async def run_message(self) -> Sequence[Request]:
        """A message between agents, and its replay."""
        has = ("send teacher", "process teacher", "invoke_agent teacher")
        first = Request("message", root="messages.send", has=has)
        body = {"recipient": "teacher", "type": "quiet", "text": "hush"}
        sent = (await self._post("/messages", body, first))["envelopes"][0]
        second = Request("replay", root="messages.replay", has=has)
        query = {"filter": {"envelopeId": sent["envelope"]["envelopeId"]}}
        await self._post("/messages:replay", query, second)
        return [first, second]

    async def run_webhook(self) -> Sequence[Request]:
        """A task with a webhook, whose first delivery is refused."""
        request = Request("webhook", repeats="POST webhook")
        await self._ask(request, "echo hello", agent="echo", webhook=self.hook_url)
        return [request]

    async def run_grpc(self) -> Sequence[Request]:
        """The public gRPC binding."""
        request = Request("grpc", has=("invoke_agent echo",))
        async with grpc.aio.insecure_channel(self.mesh.a2a_grpc_address) as channel:
            stub = a2a_pb2_grpc.A2AServiceStub(channel)  # type: ignore[no-untyped-call]
            metadata = (("a2a-version", "1.0"), *request.headers.items())
            await stub.SendMessage(send_request("echo hello", tenant="echo"), metadata=metadata)
        return [request]

    async def run_rest(self) -> Sequence[Request]:
        """The HTTP+JSON binding: an answer, and a stream."""
        first = Request("rest", has=("invoke_agent echo",))
        second = Request("rest stream", root="SendStreamingMessage", has=first.has)
        for request, method in ((first, "send"), (second, "stream")):
            await self._post_rest(request, f"/agents/echo/message:{method}", version="1.0")
        return [first, second]

    async def run_v0_3(self) -> Sequence[Request]:
        """Version 0.3: JSON-RPC, a stream, HTTP+JSON and gRPC."""
        has = ("invoke_agent echo",)
        part = {"kind": "text", "text": "echo hello"}
        message = {"kind": "message", "role": "user", "messageId": "m", "parts": [part]}
        unary = Request("v0.3", root="message/send", has=has)
        headers = {"A2A-Version": "0.3"}
        task = await self._call(
            unary, "message/send", {"message": message}, path="/agents/echo", headers=headers
        )
        stream = Request("v0.3 stream", root="message/stream", has=has)
        async with (
            asyncio.timeout(PATIENCE_S),
            sse(
                self.mesh.http_url, "/agents/echo", "message/stream", {"message": message},
                {**headers, **stream.headers},
            ) as answer,
        ):  # fmt: skip
            states = [
                event.result.get("status", {}).get("state") async for event in answer.events()
            ]
        assert (task["status"]["state"], states[-1]) == ("completed", "completed")
        rest = Request("v0.3 rest", has=has)
        await self._post_rest(rest, "/agents/echo/v1/message:send", version="0.3")
        rpc = Request("v0.3 grpc", has=("invoke_agent supervisor",))
        async with grpc.aio.insecure_channel(self.mesh.a2a_grpc_address) as channel:
            stub = a2a_v0_3_pb2_grpc.A2AServiceStub(channel)  # type: ignore[no-untyped-call]
            metadata = tuple(rpc.headers.items())
            await stub.SendMessage(v0_3_send_request("repeat after me: x"), metadata=metadata)
        return [unary, stream, rest, rpc]

    async def run_original(self) -> Sequence[Request]:
        """The original protocol, in which the client chooses the id of the task.

        Every host is asked for that id, so it is refused while one that was killed is missing.
        """
        requests = []
        message = {"role": "user", "parts": [{"type": "text", "text": "echo hello"}]}
        headers = {"A2A-Version": "0.1"}
        async with self._calm, asyncio.timeout(PATIENCE_S):
            while True:
                first = Request("original", root="tasks/send")
                requests.append(first)
                sent = {"id": f"chosen-{first.trace_id}", "message": message}
                answer = await call(
                    self.mesh.http_url, "/agents/echo", "tasks/send", sent,
                    {**headers, **first.headers},
                )  # fmt: skip
                if "result" in answer:
                    break
                assert "can't be reached" in answer["error"]["message"], answer
                await asyncio.sleep(_RETRY_S)
            first.has = ("invoke_agent echo",)
            second = Request("original get", root="tasks/get", links_to=first.trace_id)
            asked = {"id": sent["id"]}
            await self._call(second, "tasks/get", asked, path="/agents/echo", headers=headers)
        return [*requests, second]

    async def run_command_line(self) -> Sequence[Request]:
        """The mesh's own command, whose answer has the trace."""
        url = self.mesh.http_url
        done = await run_command("ask", "echo hello", "--agent", "echo", "--url", url, "--json")
        assert done.exit == 0, done
        request = Request("ask", root="SendStreamingMessage", has=("invoke_agent echo",))
        request.trace_id, request.parent = done.json["trace_id"], ""
        return [request]

    async def run_standard_command_line(self) -> Sequence[Request]:
        """The command line of A2A's standard, which sends the trace of its caller."""
        request = Request("a2a", has=("invoke_agent echo",))
        (header,) = (f"{name}:{value}" for name, value in request.headers.items())
        card = f"{self.mesh.http_url}/agents/echo"
        # Waiting for the end is a request of its own.
        words = ("send", "echo hello", "-a", card, "--svc-param", header, "--async")
        done = await run_command("a2a", *words)
        assert done.exit == 0, done
        return [request]

    async def run_graphql(self) -> Sequence[Request]:
        """An operation over a WebSocket, in the trace of its handshake."""
        request = Request("graphql", root="graphql.query")
        async with httpx2.AsyncClient(trust_env=False) as client:
            graphql = GraphQLClient(client, self.mesh.http_url, request.headers)
            async with graphql.socket() as socket:
                await socket.start("{ workflows { __typename } }")
                async for frame in socket:
                    assert frame["type"] == "next", frame
        return [request]

    async def start_carrier(self) -> None:
        """Start the process of the agent that is killed, on its journal."""
        command = ("serve", "agents", "--agent", "harness.agents.carried_agent:carried")
        options = ("--mesh", self.mesh.mesh_address, "--data", str(self._folder / "carried"))
        self._carrier = await self._stack.enter_async_context(
            running_process(
                *COMMAND,
                *command,
                *options,
                cwd=self._folder,
                environment={**WITH_HARNESS, "TRUNKLINE_LEASE_S": "2"},
            )
        )
        await read_line(self._carrier, "ready ")

    async def _kill_carrier(self) -> None:
        assert self._carrier is not None
        self._carrier.kill()
        await self._carrier.wait()
        await self.start_carrier()

    async def _ask(
        self,
        request: Request,
        text: str,
        *,
        agent: str = "",
        task_id: str = "",
        now: bool = False,
        headers: dict[str, str] | None = None,
        webhook: str = "",
    ) -> dict[str, Any]:
        message = user_message(text, **({"taskId": task_id} if task_id else {}))
        configuration: dict[str, Any] = {"returnImmediately": now}
        if webhook:
            configuration["taskPushNotificationConfig"] = {"url": webhook}
        params = {"message": message, "configuration": configuration}
        path = f"/agents/{agent}" if agent else "/"
        answer = await self._call(request, "SendMessage", params, path=path, headers=headers)
        found: dict[str, Any] = answer["task"]
        return found

    async def _call(
        self,
        request: Request,
        method: str,
        params: dict[str, Any],
        *,
        path: str = "/",
        headers: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        headers = {**request.headers, **(headers or {})}
        async with asyncio.timeout(PATIENCE_S):
            answer = await call(self.mesh.http_url, path, method, params, headers)
        assert "result" in answer, (request.kind, answer)
        result: dict[str, Any] = answer["result"]
        return result

    async def _post_rest(self, request: Request, path: str, *, version: str) -> None:
        """Send a message over HTTP+JSON; the answer, or the last event, says that it is done."""
        name = "content" if version == "0.3" else "parts"
        body = {"message": rest_message("echo hello", parts=name)}
        headers = {"A2A-Version": version, **request.headers}
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
            response = await client.post(self.mesh.http_url + path, json=body, headers=headers)
        assert response.status_code == 200, response.text
        assert "TASK_STATE_COMPLETED" in response.text, response.text

    async def _post(self, path: str, body: object, request: Request) -> dict[str, Any]:
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
            response = await client.post(
                self.mesh.http_url + path, json=body, headers=request.headers
            )
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def _stream(
        self,
        request: Request,
        path: str,
        text: str,
        *,
        cut_after: int | None = None,
        is_kill: bool = False,
    ) -> ClientFold:
        """Send a message and fold its stream, to the end or for some events."""
        fold, seen = ClientFold(), 0
        params = {"message": user_message(text)}
        url = self.mesh.http_url
        async with (
            asyncio.timeout(PATIENCE_S),
            sse(url, path, "SendStreamingMessage", params, request.headers) as answer,
        ):
            async for event in answer.events():
                fold.apply(event)
                seen += 1
                if seen == cut_after:
                    if is_kill:
                        await self._kill_carrier()
                    break
        return fold

    async def _reconnect(self, fold: ClientFold, path: str, first: str) -> Sequence[Request]:
        """Subscribe until the task has ended; every subscription is a request."""
        requests = []
        async with asyncio.timeout(PATIENCE_S):
            while not fold.has_ended:
                request = Request("reconnect", root="SubscribeToTask", links_to=first)
                headers = {"Last-Event-ID": fold.last_event_id, **request.headers}
                params = {"id": fold.task_id}
                url = self.mesh.http_url
                try:
                    async with sse(url, path, "SubscribeToTask", params, headers) as answer:
                        async for event in answer.events():
                            fold.apply(event)
                except RefusedError:
                    # Its host is not back yet, so the request found no task.
                    request.links_to = ""
                requests.append(request)
        return requests


@asynccontextmanager
async def open_mixed_runs(folder: Path, rng: random.Random) -> AsyncIterator[MixedRuns]:
    """Run the mesh for the length of a block."""
    flow = folder / "parrot.yaml"
    flow.write_text(PARROT)
    refused: set[str] = set()

    async def refuse_once(received: ReceivedPost) -> Answer:
        if received.id in refused:
            return status(200)
        refused.add(received.id)
        return status(503)

    async with AsyncExitStack() as stack:
        elsewhere = await stack.enter_async_context(http_tools())
        receiver = await stack.enter_async_context(open_receiver(refuse_once))
        tool = await stack.enter_async_context(blocked_tool())
        own: dict[str, dict[str, Any]] = {"hold": _HOLD, "elsewhere": {"url": elsewhere.url}}
        file = only_servers(folder, "math", "currency", own=own)["TRUNKLINE_MCP_FILE"]
        mesh = await stack.enter_async_context(
            running_mesh(
                folder,
                *("--mcp", file, "--workflow", str(flow), "--allow-webhook", "127.0.0.1"),
                *("--agent", "harness.agents.teacher:teacher"),
                *("--agent", "harness.agents.carried_agent:caller"),
                environment={**WITH_HARNESS, "TRUNKLINE_GRAPHQL_ENABLED": "true"},
            )
        )
        runs = MixedRuns(mesh, folder, rng, stack)
        runs.tool, runs.hook_url, runs.http_tools = tool, receiver.url, elsewhere
        await runs.start_carrier()
        yield runs
