"""Calls that stay open while their tool waits for a person's answer.

Servers of versions before 2026-07-28 ask by `elicitation/create` while a call is open. The question
ends the turn of the caller, and the answer comes in a later turn. So the call stays open here, and
the later turn finds it by its handle, as it finds a task of a server. This module imports mcp: load
it lazily.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final

import mcp_types
from mcp.shared.dispatcher import ProgressFnT

from trunkline.errors import ToolServerUnavailableError
from trunkline.tools.connection import OPEN_CALL_PREFIX
from trunkline.tools.questions import parse_responses, to_question
from trunkline.tools.results import failed_result
from trunkline.tools.tool_call import ToolCall
from trunkline.v1 import tool_service_pb2

# The number of questions of one server that may wait for their answers.
_QUESTION_LIMIT: Final = 64
# After this, a question counts as dismissed.
_ANSWER_LIMIT_S: Final = 86400.0
# A question that names no call waits this long until only one call can have asked it.
_ATTRIBUTION_LIMIT_S: Final = 30.0
# A caller that lost its connection has this long to follow its call again.
_UNFOLLOWED_LIMIT_S: Final = 600.0

MakeCall = Callable[[ToolCall], Coroutine[Any, Any, tool_service_pb2.ToolResult]]


class OpenCall:
    """A call of a tool, in its own task. Once it has asked, it outlives its caller."""

    def __init__(self, on_progress: ProgressFnT) -> None:
        self.handle = OPEN_CALL_PREFIX + secrets.token_hex(16)
        self.on_progress = on_progress
        """The progress callback of the latest caller."""
        self.end: asyncio.Future[tool_service_pb2.ToolResult] = (
            asyncio.get_running_loop().create_future()
        )
        self.questions: dict[str, mcp_types.ElicitRequest] = {}
        """The questions without answers, by key."""
        self.answers: dict[str, asyncio.Future[mcp_types.ElicitResult]] = {}
        """The answers to all questions so far, by key."""
        self.followers = 0
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def has_asked(self) -> bool:
        """The call asked at least once, so that a later caller may know its handle."""
        return bool(self.answers)

    def cancel(self) -> None:
        """Cancel the call, which tells its server."""
        self.dismiss()
        if self.task is not None:
            self.task.cancel()

    def dismiss(self) -> None:
        """Dismiss the open questions, because a server may wait for their answers."""
        self.questions.clear()
        for answer in self.answers.values():
            if not answer.done():
                answer.set_result(mcp_types.ElicitResult(action="cancel"))


_current_call: ContextVar[OpenCall | None] = ContextVar("current_call", default=None)
"""The call of the current context. Streamable HTTP delivers messages in the call's context."""


class OpenCalls:
    """The open calls of one session."""

    def __init__(self, server: str, group: asyncio.TaskGroup) -> None:
        """Calls run in `group`, until `close`."""
        self._server = server
        self._group = group
        self._calls: dict[str, OpenCall] = {}
        self._changed = asyncio.Event()
        self._is_closed = False

    def __bool__(self) -> bool:
        """Return whether a call is open."""
        return bool(self._calls)

    async def start(self, requested: ToolCall, make_call: MakeCall) -> tool_service_pb2.ToolResult:
        """Make a call; return its result, or its question with a handle to continue.

        The call's `on_task` gets the handle before the question is returned. If the caller ends, a
        call that has not asked is canceled. The time limit of the call cancels every call.
        `requested` is changed: it gets another `on_progress` and, with a question, the handle.
        """
        call = OpenCall(requested.on_progress)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            await call.on_progress(progress, total, message)

        self._calls[call.handle] = call
        # The progress goes to the latest caller, which may be another one than ours.
        requested.on_progress = report
        call.task = self._group.create_task(self._run(call, requested, make_call))
        call.task.add_done_callback(lambda _: self._forget(call))
        result = await self._follow(call, requested)
        if result.HasField("question"):
            try:
                await requested.follow(call.handle)
            except BaseException:
                # No other caller knows the handle.
                call.cancel()
                raise
        return result

    async def resume(self, requested: ToolCall) -> tool_service_pb2.ToolResult:
        """Answer the open call that a call continues; return its result or its next question.

        Raises:
            InvalidArgumentError: the answers are not answers of MCP.
        """
        responses = parse_responses(requested.continuation.responses) or {}
        call = self._calls.get(requested.continuation.task_handle)
        if call is None:
            return failed_result(
                f"The call of {self._label(requested)} ended while its question was open, for "
                "example because its server or the tool adapter was restarted. It is unknown "
                "whether it took effect. It was not called again; check before you request it "
                "again."
            )
        call.on_progress = requested.on_progress
        for key, response in responses.items():
            if key in call.questions and isinstance(response, mcp_types.ElicitResult):
                del call.questions[key]
                call.answers[key].set_result(response)
        return await self._follow(call, requested)

    def cancel(self, handle: str) -> None:
        """Cancel a call. A call with an unknown handle has ended."""
        if call := self._calls.pop(handle, None):
            call.cancel()

    def close(self) -> None:
        """Cancel the calls without followers. Other calls end with their session."""
        self._is_closed = True
        for call in list(self._calls.values()):
            if not call.followers:
                call.cancel()

    async def ask(
        self, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult | mcp_types.ErrorData:
        """Pass a question of the server on, and return its answer."""
        call = _current_call.get() or await self._find_asking()
        if call is None or call.end.done():
            return _refuse("It is not known which call asks: call one tool at a time")
        if sum(len(each.questions) for each in self._calls.values()) >= _QUESTION_LIMIT:
            return _refuse(f"{_QUESTION_LIMIT} questions of this server wait for their answers")
        key = f"question-{len(call.answers) + 1}"
        answer = call.answers[key] = asyncio.get_running_loop().create_future()
        call.questions[key] = mcp_types.ElicitRequest(params=params)
        call.changed.set()
        self._changed.set()
        try:
            async with asyncio.timeout(_ANSWER_LIMIT_S):
                response: mcp_types.ElicitResult = await answer
                return response
        except TimeoutError:
            return mcp_types.ElicitResult(action="cancel")
        finally:
            call.questions.pop(key, None)

    async def _find_asking(self) -> OpenCall | None:
        """Return the only call that can have asked. A call that waits for an answer has not."""
        try:
            async with asyncio.timeout(_ATTRIBUTION_LIMIT_S):
                while True:
                    self._changed.clear()
                    running = [call for call in self._calls.values() if not call.end.done()]
                    if len(running) > 1:
                        running = [call for call in running if not call.questions]
                    if len(running) <= 1:
                        return running[0] if running else None
                    await self._changed.wait()
        except TimeoutError:
            return None

    async def _run(self, call: OpenCall, requested: ToolCall, make_call: MakeCall) -> None:
        _current_call.set(call)
        try:
            call.end.set_result(await make_call(requested))
        except Exception as error:  # noqa: BLE001  the caller raises it
            call.end.set_exception(error)
        self._note_end(call)
        if call.has_asked and not (call.followers or self._is_closed):
            # The caller may be between two attempts to follow the call.
            call.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_UNFOLLOWED_LIMIT_S):
                    await call.changed.wait()

    def _forget(self, call: OpenCall) -> None:
        """Note the end of the task of a call, which may have been canceled."""
        if not call.end.done():
            problem = "the call was canceled, or its session was closed"
            call.end.set_exception(ToolServerUnavailableError(self._server, problem))
            self._note_end(call)
        if not call.followers:
            self._calls.pop(call.handle, None)

    def _note_end(self, call: OpenCall) -> None:
        # There may be no caller that reads an error.
        call.end.exception()
        call.dismiss()
        call.changed.set()
        self._changed.set()

    async def _follow(self, call: OpenCall, requested: ToolCall) -> tool_service_pb2.ToolResult:
        """Return the result of an open call, or its question, to the caller that requests it."""
        call.followers += 1
        call.changed.set()
        try:
            while not (call.end.done() or call.questions):
                call.changed.clear()
                await call.changed.wait()
            if not call.end.done():
                asked = to_question(
                    self._label(requested), dict(call.questions), task_handle=call.handle
                )
                if not asked.HasField("question"):
                    call.cancel()
                return asked
            self._calls.pop(call.handle, None)
            return call.end.result()
        except asyncio.CancelledError:
            if requested.limit.expired() or not call.has_asked:
                call.cancel()
            raise
        finally:
            call.followers -= 1
            if self._is_closed:
                call.cancel()

    def _label(self, requested: ToolCall) -> str:
        return f"{self._server}/{requested.tool}"


def _refuse(problem: str) -> mcp_types.ErrorData:
    return mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message=problem)
