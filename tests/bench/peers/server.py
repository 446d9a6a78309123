"""The a2a-sdk peer: `python -m bench.peers.server agent | middle AGENT | front AGENT MIDDLE`.

Each process is a server as in the SDK's own examples: Starlette on uvicorn, the default request
handler, tasks in memory. The front and the middle call the next server with the SDK's client over
JSON-RPC. Tracing is the SDK's default: spans go to OpenTelemetry's API without a provider, unless
BENCH_TRACER is set: then the OpenTelemetry SDK makes and drops them.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Mapping

import httpx
import uvicorn
from a2a.client import Client, ClientConfig, create_client
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2
from starlette.applications import Starlette

from bench.workload import PLAN, Ask, tokens

_CHILD = "child "


class _Executor(AgentExecutor):
    """The common part of agent, middle and front."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        task = new_task_from_user_message(context.message)
        task.id, task.context_id = context.task_id or "", context.context_id or ""
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await self.work(context.get_user_input(), updater)

    async def work(self, text: str, updater: TaskUpdater) -> None:
        raise NotImplementedError

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        await updater.cancel()


class Agent(_Executor):
    """Answers; a direct call also gets the plan, the notice and the whole text of a middle."""

    async def work(self, text: str, updater: TaskUpdater) -> None:
        await updater.start_work()
        if text.startswith("wait"):
            await asyncio.sleep(3600)
        if text.startswith("echo "):
            await _artifact(updater, "echo", "echo", text.removeprefix("echo "), last=True)
        elif text.startswith(_CHILD):
            await _answer(updater, Ask.parse(text))
        else:
            await _plan(updater)
            pieces = await _answer(updater, Ask.parse(text))
            await _artifact(updater, "done", "tool_notification_complete", "done", last=True)
            await _artifact(updater, "whole", "partial_result", pieces, last=True)
        await updater.complete()


class Middle(_Executor):
    """Writes a plan, calls the next server, forwards its tokens, and combines them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def work(self, text: str, updater: TaskUpdater) -> None:
        await updater.start_work()
        await _plan(updater)
        pieces: list[str] = []
        async for event in self._client.send_message(_request(_CHILD + text)):
            if event.HasField("artifact_update"):
                pieces += [part.text for part in event.artifact_update.artifact.parts]
                await _forward(event, updater)
        await _artifact(updater, "done", "tool_notification_complete", "done", last=True)
        await _artifact(updater, "whole", "partial_result", "".join(pieces), last=True)
        await updater.complete()


class Front(_Executor):
    """Forwards every event of the next server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def work(self, text: str, updater: TaskUpdater) -> None:
        async for event in self._client.send_message(_request(text)):
            if event.HasField("artifact_update"):
                await _forward(event, updater)
            elif event.HasField("status_update"):
                await updater.update_status(event.status_update.status.state)
            elif event.task.artifacts:
                # The complete answer of a call without streaming.
                for artifact in event.task.artifacts:
                    await updater.add_artifact(list(artifact.parts), name=artifact.name)
                await updater.complete()


async def _forward(event: a2a_pb2.StreamResponse, updater: TaskUpdater) -> None:
    update = event.artifact_update
    update.task_id, update.context_id = updater.task_id, updater.context_id
    await updater.event_queue.enqueue_event(update)


async def _plan(updater: TaskUpdater) -> None:
    for number, token in enumerate(PLAN):
        await _artifact(updater, "plan", "execution_plan_streaming", token, append=number > 0)
    await _artifact(updater, "plan", "execution_plan_update", "1. stream", last=True)
    await _artifact(updater, "start", "tool_notification_start", "workload", last=True)


async def _answer(updater: TaskUpdater, ask: Ask) -> str:
    pieces: list[str] = []
    async for token in tokens(ask):
        await _artifact(
            updater, "answer", "streaming_result", token,
            append=bool(pieces), last=len(pieces) == ask.tokens - 1,
        )  # fmt: skip
        pieces.append(token)
    return "".join(pieces)


async def _artifact(
    updater: TaskUpdater,
    id_: str,
    name: str,
    text: str,
    *,
    append: bool = False,
    last: bool = False,
) -> None:
    await updater.add_artifact(
        [a2a_pb2.Part(text=text)], artifact_id=id_, name=name, append=append, last_chunk=last
    )


def _request(text: str) -> a2a_pb2.SendMessageRequest:
    request = a2a_pb2.SendMessageRequest()
    request.message.message_id = "m-1"
    request.message.role = a2a_pb2.ROLE_USER
    request.message.parts.add(text=text)
    return request


async def _client(url: str, *, streaming: bool = True) -> Client:
    # Without httpx's default limits: 5 seconds, 100 connections.
    http = httpx.AsyncClient(
        timeout=None,  # noqa: S113  the duration of a task is not limited
        limits=httpx.Limits(max_connections=None),
        trust_env=False,
    )
    return await create_client(_card(url), ClientConfig(streaming=streaming, httpx_client=http))


def _card(url: str) -> a2a_pb2.AgentCard:
    modes = ["text/plain"]
    skill = a2a_pb2.AgentSkill(id="s", name="s", description="Streams.", tags=["stream"])
    interface = a2a_pb2.AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")
    return a2a_pb2.AgentCard(
        name="workload",
        description="Streams as many tokens as it is asked for.",
        version="1.0.0",
        capabilities=a2a_pb2.AgentCapabilities(streaming=True),
        supported_interfaces=[interface],
        default_input_modes=modes,
        default_output_modes=modes,
        skills=[skill],
    )


async def _executors(role: str, peers: list[str]) -> Mapping[str, AgentExecutor]:
    """Return the executors of this process by path."""
    if role == "agent":
        return {"/": Agent()}
    if role == "middle":
        return {"/": Middle(await _client(peers[0]))}
    return {
        "/": Front(await _client(peers[1])),
        "/agents/workload": Front(await _client(peers[0])),
        "/agents/echo": Front(await _client(peers[0], streaming=False)),
    }


async def _serve(role: str, *peers: str) -> None:
    if os.environ.get("BENCH_TRACER"):
        _trace()
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    routes = []
    for path, executor in (await _executors(role, list(peers))).items():
        handler = DefaultRequestHandler(executor, InMemoryTaskStore(), _card(url + path))
        routes += create_jsonrpc_routes(handler, path)
    config = uvicorn.Config(
        Starlette(routes=routes), log_level="warning", timeout_graceful_shutdown=1
    )
    print(f"ready url={url}", flush=True)
    await uvicorn.Server(config).serve(sockets=[listener])


def _trace() -> None:
    """Create real spans, in batches as for a collector, and drop them."""
    from collections.abc import Sequence

    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        SpanExporter,
        SpanExportResult,
    )

    class NullExporter(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(NullExporter()))
    trace.set_tracer_provider(provider)


if __name__ == "__main__":
    uvicorn_loop = uvicorn.Config("").get_loop_factory()
    with asyncio.Runner(loop_factory=uvicorn_loop) as runner:
        runner.run(_serve(*sys.argv[1:]))
