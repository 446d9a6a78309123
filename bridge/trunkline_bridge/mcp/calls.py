"""Calls of agents by MCP clients: streams, questions, and tasks that outlive the call."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import mcp_types as types

from trunkline.a2a_client.answers import ClientAnswer, StatusChange, TextChunk
from trunkline.a2a_client.client import Client, ClientContent
from trunkline.a2a_client.client_stream import ClientStream
from trunkline.errors import InvalidArgumentError
from trunkline_bridge.mcp.agent_tools import AgentArguments, is_waiting, to_tool_result
from trunkline_bridge.mcp.client_features import ClientFeatures, RequestContext
from trunkline_bridge.mcp.questions import build_requests, is_declined, read_responses
from trunkline_bridge.mcp.tasks import TaskHandle, build_task_result

CallResult: TypeAlias = types.CallToolResult | types.InputRequiredResult | dict[str, Any]

DETACH_S: Final = 5.0
"""A call that takes longer becomes a task, if the client knows the Tasks extension."""
_PROGRESS_S: Final = 0.1
# Questions within one call of a client of earlier versions. The result is then the next question.
_MAX_QUESTIONS: Final = 20


class AgentCall:
    """A call of an agent: one `tools/call`, which may continue an earlier call."""

    def __init__(
        self, agent: str, client: Client, context: RequestContext, *, detach_s: float = DETACH_S
    ) -> None:
        self._agent = agent
        self._client = client
        self._context = context
        self._features = ClientFeatures.of(context)
        self._detach_s = detach_s
        self._progress = _Progress(context)
        self.running: ClientStream | None = None
        """The turn that ends with the call. It is None before the task exists, and once the task
        continues without the call."""

    async def run(self, params: types.CallToolRequestParams) -> CallResult:
        """Ask the agent, or answer its question; return the result of the call.

        Raises:
            TrunklineError: the agent can't be asked.
        """
        if params.request_state is None:
            return await self._start(params)
        # The state is a task's id, and the mesh answers only for tasks of the caller.
        answer = await self._client.get(params.request_state)
        if not is_waiting(answer):
            # The question was answered before, so a repeated request gets the result, too.
            return await self._continue(self._client.resume(answer.task_id))
        responses = _dump(params.input_responses or {})
        if content := read_responses(answer, responses):
            return await self._continue(self._client.stream(*content, task_id=answer.task_id))
        return to_tool_result(answer) if is_declined(answer, responses) else self._ask(answer)

    async def _start(self, params: types.CallToolRequestParams) -> CallResult:
        arguments = AgentArguments.parse(params.arguments)
        text, context_id = arguments.message, arguments.context_id
        if not text.strip():
            raise InvalidArgumentError("message", "is empty")
        message_id = str(uuid.uuid4())
        stream = self._client.stream(
            text, task_id=arguments.task_id, context_id=context_id, message_id=message_id
        )
        if arguments.task_id or self._features.has_tasks or self._progress.is_wanted:
            return await self._continue(stream)
        # The stream attaches to the same task. It is needed if the call is canceled.
        self.running = stream
        answer = await self._client.ask_at_once(text, context_id=context_id, message_id=message_id)
        self.running = None
        return await self._continue(stream, answer)

    async def _continue(
        self, stream: ClientStream, answer: ClientAnswer | None = None
    ) -> CallResult:
        """Follow a turn, and the turns that answers of the client's user open.

        `answer` is the answer of the turn, if the turn is over.
        """
        questions = 0
        while True:
            if answer is None:
                self.running = stream
                answer = await self._follow(stream)
                self.running = None
            if answer is None:
                return build_task_result(TaskHandle.create(self._agent, stream.task_id))
            if not is_waiting(answer):
                return to_tool_result(answer)
            questions += 1
            content = await self._elicit(answer) if questions <= _MAX_QUESTIONS else ()
            if not content:
                return self._ask(answer)
            stream = self._client.stream(*content, task_id=answer.task_id)
            answer = None

    def _ask(self, answer: ClientAnswer) -> CallResult:
        """Return the result that asks the question of a waiting task."""
        requests = build_requests(answer)
        if self._features.is_modern and self._features.can_ask(requests):
            return types.InputRequiredResult(
                input_requests=dict(requests), request_state=answer.task_id
            )
        return to_tool_result(answer)

    async def _follow(self, stream: ClientStream) -> ClientAnswer | None:
        """Return the answer of the turn, or None if it takes too long for the call to wait."""
        loop = asyncio.get_running_loop()
        detach_at = loop.time() + self._detach_s if self._features.has_tasks else None
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

    async def _elicit(self, answer: ClientAnswer) -> Sequence[ClientContent]:
        """Ask by requests to the client (before MCP 2026-07-28); return the message's content."""
        requests = build_requests(answer)
        if self._features.is_modern or not self._features.can_ask(requests):
            return ()
        responses: dict[str, Mapping[str, Any]] = {}
        for key, request in requests.items():
            form = request.params
            if isinstance(form, types.ElicitRequestFormParams):
                result = await self._context.session.elicit_form(
                    form.message, form.requested_schema, self._context.request_id
                )
                responses[key] = result.model_dump(exclude_none=True)
        return read_responses(answer, responses)


class _Progress:
    """Reports streamed texts, at most ten times a second, to clients that asked for progress."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        # A client in this process has no request, and is called back without a token.
        self.is_wanted = context.request is None or "progress_token" in (context.meta or {})
        """The client may have asked for progress."""
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
    return {key: response.model_dump(exclude_none=True) for key, response in responses.items()}
