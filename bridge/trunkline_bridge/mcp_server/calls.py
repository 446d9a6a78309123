"""Calls of agents by MCP clients: streams, questions and what outlives the call."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from trunkline.errors import InvalidArgumentError
from trunkline_bridge.client.answers import ClientAnswer, StatusChange, TextChunk
from trunkline_bridge.client.client import Client
from trunkline_bridge.client.client_stream import ClientStream
from trunkline_bridge.mcp_server.agent_tools import AgentArguments, is_waiting, to_tool_result
from trunkline_bridge.mcp_server.questions import build_forms, build_requests, read_responses
from trunkline_bridge.mcp_server.tasks import TASKS_EXTENSION, TaskHandle, build_task_result

RequestContext: TypeAlias = ServerRequestContext[Any, Any]
CallResult: TypeAlias = types.CallToolResult | types.InputRequiredResult | dict[str, Any]

DETACH_S: Final = 5.0
"""A call that takes longer becomes a task, if the client knows the Tasks extension."""
_PROGRESS_S: Final = 0.1


class AgentCall:
    """A call of an agent: one `tools/call`, which may continue an earlier one."""

    def __init__(
        self, agent: str, client: Client, context: RequestContext, *, detach_s: float = DETACH_S
    ) -> None:
        self._agent = agent
        self._client = client
        self._context = context
        self._detach_s = detach_s
        self._progress = _Progress(context)
        self.running: ClientStream | None = None
        """The turn that ends with the call; None if there is none, or if it goes on without it."""

    async def run(self, params: types.CallToolRequestParams) -> CallResult:
        """Ask the agent, or answer its question; return the result of the call.

        Raises:
            TrunklineError: the agent can't be asked.
        """
        stream = await self._open_stream(params)
        while True:
            self.running = stream
            answer = await self._follow(stream)
            self.running = None
            if answer is None:
                return build_task_result(TaskHandle.create(self._agent, stream.task_id))
            if not is_waiting(answer):
                return to_tool_result(answer)
            if self._asks_within_request():
                return types.InputRequiredResult(
                    input_requests=build_requests(answer), request_state=answer.task_id
                )
            content = await self._elicit(answer)
            if not content:
                return to_tool_result(answer)
            stream = self._client.stream(*content, task_id=answer.task_id)

    async def _open_stream(self, params: types.CallToolRequestParams) -> ClientStream:
        """Send the message; or after a question, its answer."""
        task_id = params.request_state
        if task_id is None:
            arguments = AgentArguments.parse(params.arguments)
            if not arguments.message.strip():
                raise InvalidArgumentError("message", "is empty")
            return self._client.stream(
                arguments.message, task_id=arguments.task_id, context_id=arguments.context_id
            )
        # The state is a task's id, and the mesh answers for those of the caller only.
        answer = await self._client.get(task_id)
        content = read_responses(answer, _dump(params.input_responses or {}))
        if not is_waiting(answer):
            # It was answered before: a request that is repeated gets the result, too.
            return self._client.resume(task_id)
        if not content:
            raise InvalidArgumentError("inputResponses", "has no answer; the task still waits")
        return self._client.stream(*content, task_id=task_id)

    async def _follow(self, stream: ClientStream) -> ClientAnswer | None:
        """Return the answer of the turn; None if it takes long and the call must not wait."""
        loop = asyncio.get_running_loop()
        detach_at = loop.time() + self._detach_s if self._knows_tasks() else None
        while True:
            try:
                async with asyncio.timeout_at(detach_at):
                    event = await anext(stream)
            except TimeoutError:
                if stream.task_id:
                    await stream.aclose()
                    return None
                detach_at = loop.time() + self._detach_s
                continue
            match event:
                case ClientAnswer():
                    return event
                case TextChunk(text=text):
                    await self._progress.add(text)
                case StatusChange(text=text) if text:
                    await self._progress.add(f"[{text}] ")

    def _knows_tasks(self) -> bool:
        capabilities = self._context.session.client_capabilities
        extensions = None if capabilities is None else capabilities.extensions
        return self._is_modern and TASKS_EXTENSION in (extensions or {})

    def _can_elicit(self) -> bool:
        capabilities = self._context.session.client_capabilities
        return capabilities is not None and capabilities.elicitation is not None

    def _asks_within_request(self) -> bool:
        """Return True if the client repeats the request with the answer (MCP 2026-07-28)."""
        return self._is_modern and self._can_elicit()

    @property
    def _is_modern(self) -> bool:
        return self._context.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def _elicit(self, answer: ClientAnswer) -> list[Any]:
        """Ask by requests to the client (before MCP 2026-07-28); return the message's content."""
        session = self._context.session
        if self._is_modern or not self._can_elicit() or not session.can_send_request:
            return []
        responses: dict[str, Mapping[str, Any]] = {}
        for key, form in build_forms(answer).items():
            result = await session.elicit_form(
                form.message, form.requested_schema, self._context.request_id
            )
            responses[key] = result.model_dump()
        return list(read_responses(answer, responses))


class _Progress:
    """Reports what streams, at most ten times a second, to clients that asked for progress."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._pending = ""
        self._count = 0
        self._next_s = 0.0

    async def add(self, text: str) -> None:
        self._pending += text
        now = asyncio.get_running_loop().time()
        if now < self._next_s or not self._pending:
            return
        self._count += 1
        pending, self._pending = self._pending, ""
        self._next_s = now + _PROGRESS_S
        await self._context.session.report_progress(self._count, message=pending)


def _dump(responses: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {key: response.model_dump() for key, response in responses.items()}
