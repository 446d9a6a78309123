"""Waits for a task: by its stream, and by polls if there is none or it fails."""

import asyncio
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.a2a_client import RESUME_DELAYS_S
from trunkline.a2a_client.errors import RpcError, is_shutdown
from trunkline.a2a_client.transport import RemoteEvent, RemoteEvents, read_turn
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.operations import GET_TASK
from trunkline.a2a_wire.protocol import V1_0
from trunkline.a2a_wire.v1_0.json_writer import stream_response_json
from trunkline.cli.a2a_cli.failures import CommandError, LocalCode
from trunkline.cli.a2a_cli.session import AgentSession
from trunkline.cli.a2a_cli.text_format import INTERRUPTED_STATES, PROGRAM, TERMINAL_STATES
from trunkline.errors import PeerProtocolError, PeerTimeoutError, PeerUnavailableError

# A poll waits at most this many times as long as the first one.
_MAX_BACKOFF: Final = 5.0
_BACKOFF: Final = 1.5
# The reasons of a stream that the agent can't give, although the task exists.
_NO_STREAM: Final = frozenset({"UNSUPPORTED_OPERATION", "METHOD_NOT_FOUND", "INTERNAL_ERROR"})
# The reference SDK of v0.3 refuses so to stream a task that has ended.
_NO_STREAM_V0_3: Final = _NO_STREAM | {"INVALID_PARAMS"}
_Opening: TypeAlias = AbstractAsyncContextManager[RemoteEvents]
_BROKEN: Final = (PeerUnavailableError, PeerTimeoutError, PeerProtocolError)


@dataclass(slots=True)
class TaskProgress:
    """The identifiers and the state that a command has seen so far."""

    task_id: str = ""
    context_id: str = ""
    state: str = ""
    message: Json | None = None
    """A direct reply instead of a task."""
    event_id: str = ""
    """The id of the last event, if the agent gives ids."""
    awaits_turn: bool = False
    """The stream begins with the task as it was before the message: its state is not the end."""
    announced: Callable[[str], None] = field(default=lambda _: None)
    """Called once with the task's id."""

    def apply(self, event: Json) -> None:
        """Take over the identifiers and the state of an event."""
        if isinstance(event.get("message"), dict):
            self.message = event["message"]
            return
        task = event.get("task")
        update = event.get("statusUpdate") or event.get("artifactUpdate") or {}
        task_id = str(task.get("id", "") if task else update.get("taskId", ""))
        self.context_id = str((task or update).get("contextId") or self.context_id)
        status = (task or update).get("status")
        if isinstance(status, dict):
            self.awaits_turn = self.awaits_turn and not self.state
            self.state = str(status.get("state", "TASK_STATE_UNSPECIFIED"))
        if task_id and not self.task_id:
            self.announced(task_id)
        self.task_id = task_id or self.task_id

    @property
    def is_over(self) -> bool:
        """There is nothing to wait for: the task ended, asks for input, or there is no task."""
        if self.message is not None or self.state in TERMINAL_STATES:
            return True
        # TASK_STATE_UNSPECIFIED and unknown states are no end.
        return self.state in INTERRUPTED_STATES and not self.awaits_turn


def event_json(session: AgentSession, event: RemoteEvent) -> Json:
    """Return v1.0's JSON of an event, as it came if the interface has that JSON."""
    if event.value is None or session.interface.version != V1_0:
        return stream_response_json(event.response)
    return event.value


@asynccontextmanager
async def time_limit(session: AgentSession, progress: TaskProgress) -> AsyncIterator[None]:
    """Limit a block by `--timeout`. CommandError: it has expired."""
    limit_s: float = session.context.options.timeout
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError:
        hint = None
        if progress.task_id:
            task = shlex.quote(progress.task_id)
            hint = f"{PROGRAM} task get {session.context.target} --wait {task}"
        raise CommandError(
            LocalCode.TIMEOUT, f"the task has not ended within {limit_s:g} s", hint
        ) from None


async def get_task(session: AgentSession, task_id: str, history: int | None = None) -> Json:
    """Return a task."""
    request = a2a_pb2.GetTaskRequest(id=task_id)
    if history is not None:
        request.history_length = history
    return await session.call(GET_TASK, request)


async def poll_task(
    session: AgentSession, task_id: str, progress: TaskProgress, history: int | None = None
) -> Json:
    """Return the task once it ended or asks for input. A lost connection is tried again.

    The pauses grow from `--poll-interval` to five times as long.
    """
    first_s: float = session.context.options.poll_interval
    pause_s, problem = first_s, None
    while True:
        try:
            task = await get_task(session, task_id, history)
        except (PeerUnavailableError, PeerTimeoutError) as error:
            if problem is None:
                session.context.console.warn(f"warning: {error}; polling continues")
            problem = error
        else:
            problem = None
            progress.apply({"task": task})
            session.context.note(f"polled {task_id}: {progress.state}")
            if progress.is_over:
                return task
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * _BACKOFF, first_s * _MAX_BACKOFF)


async def stream_turn(
    session: AgentSession, request: a2a_pb2.SendMessageRequest, progress: TaskProgress
) -> AsyncGenerator[Json]:
    """Send a message and yield the events of its turn, as `follow_task` does.

    A message is sent once. If its stream breaks before the task is known, that is the error.
    """
    progress.awaits_turn = bool(request.message.task_id)
    opening = session.client.stream_message(request, session.options)
    async with aclosing(_follow(session, progress, opening)) as values:
        async for value in values:
            yield value


async def follow_task(session: AgentSession, progress: TaskProgress) -> AsyncGenerator[Json]:
    """Yield the events of a task until it ended or asks for input.

    A broken stream is opened again, after its last event if that has an id. The first event of
    other streams is the whole task. If that fails too often, or the agent can't stream the task, it
    is polled, and yielded at its end.
    """
    opening = session.client.subscribe_to_task(progress.task_id, session.options)
    async with aclosing(_follow(session, progress, opening, is_subscribed=True)) as values:
        async for value in values:
            yield value


async def _follow(
    session: AgentSession, progress: TaskProgress, opening: _Opening, *, is_subscribed: bool = False
) -> AsyncGenerator[Json]:
    delays = iter(RESUME_DELAYS_S)
    delay_s: float | None = 0.0
    while delay_s is not None:
        problem = "it ended before the turn did"
        try:
            async with opening as events, aclosing(_read(session, events, progress)) as values:
                async for value in values:
                    delays = iter(RESUME_DELAYS_S)
                    yield value
            progress.awaits_turn = False
            if progress.is_over:
                return
        except _BROKEN as error:
            problem = str(error)
        except RpcError as error:
            if is_subscribed and _cannot_stream(session, error):
                # The task ended between two streams, or the agent can't stream it.
                break
            if not (progress.task_id and is_shutdown(error)):
                raise
            problem = str(error)
        if not progress.task_id:
            raise PeerUnavailableError(session.client.name, problem)
        if not is_subscribed:
            session.context.console.warn(f"warning: the stream broke ({problem}); it is resumed")
        delay_s = next(delays, None)
        await asyncio.sleep(delay_s or 0)
        is_subscribed = True
        options = session.options._replace(last_event_id=progress.event_id)
        opening = session.client.subscribe_to_task(progress.task_id, options)
    yield {"task": await poll_task(session, progress.task_id, progress)}


def _cannot_stream(session: AgentSession, error: RpcError) -> bool:
    is_v1 = session.interface.version == V1_0
    return error.refusal in (_NO_STREAM if is_v1 else _NO_STREAM_V0_3)


async def _read(
    session: AgentSession, events: RemoteEvents, progress: TaskProgress
) -> AsyncGenerator[Json]:
    reading = read_turn(
        events,
        peer=session.client.name,
        is_over=lambda: progress.is_over,
        has_ended=lambda: progress.state in TERMINAL_STATES,
    )
    async with aclosing(reading) as turn_events:
        async for event in turn_events:
            value = event_json(session, event)
            if not progress.is_over:
                progress.apply(value)
                progress.event_id = event.id or progress.event_id
            yield value
