"""The `task` argument of an agent's function: the input of a turn, and methods to write output."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, cast

from typing_extensions import TypeVar

from trunkline.errors import UnsupportedOperationError
from trunkline.task_states import PARTS_MISSING_KEY, TaskState
from trunkline.tasks.approvals import ApprovalAnswer
from trunkline.tasks.calls import (
    AgentAnswer,
    AgentStream,
    ResultT,
    TaskCalls,
    ToolResult,
    TurnInput,
)
from trunkline.tasks.content import Content, message_text
from trunkline.tasks.files import READ_LIMIT_BYTES, FileSource
from trunkline.tasks.lifecycle import State
from trunkline.tasks.messages import MeshMessage, OutgoingMessage, Payload, Priority
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.tasks.writers import ArtifactWriter, PlanWriter, ToolCall
from trunkline.v1 import event_pb2, message_pb2, part_pb2, snapshot_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SettingsT = TypeVar("SettingsT", default=None)
"""The type of an agent's settings; None: it has none."""


class TaskContext(Generic[SettingsT]):
    """One turn of one task, for the author of its agent.

    The agent's function is called once for each message of a task, with a new context each time.
    Only the task itself persists between turns. Events are journaled in the order of the calls.
    After the turn has ended, every write raises InvalidAgentResponseError. When the task is
    canceled, the function gets `asyncio.CancelledError`.

    A facade of `TurnRuntime` with the API for authors.
    """

    __slots__ = ("_calls", "_input", "_turn", "incoming", "settings")

    def __init__(
        self,
        turn: TurnRuntime,
        settings: object = None,
        calls: TaskCalls | None = None,
        incoming: MeshMessage | None = None,
    ) -> None:
        """`turn` is the host's object for the same turn; `calls` are None outside a mesh.

        `incoming` is the message between agents that the turn handles.
        """
        self._turn = turn
        self.incoming: MeshMessage | None = incoming
        """The message between agents that the turn handles; None for a request."""
        self._calls = calls
        self._input = (
            TurnInput(turn.turn, turn.message, turn.history) if calls is None else calls.input
        )
        self.settings: SettingsT = cast("SettingsT", settings)
        """The agent's settings, of the type that `@agent(settings=…)` declares."""

    # The input of the turn.

    @property
    def id(self) -> str:
        """The task's id."""
        return self._turn.id

    @property
    def context_id(self) -> str:
        """The conversation's id: tasks of one conversation share it."""
        return self._turn.context_id

    @property
    def agent(self) -> str:
        """The name of the agent that runs."""
        return self._turn.agent

    @property
    def account(self) -> str:
        """The account that the task belongs to; `anonymous` without authentication."""
        return self._turn.account

    @property
    def caller(self) -> str:
        """The caller within the account; empty if it is unknown."""
        return self._turn.caller

    @property
    def turn(self) -> int:
        """The number of this message within the task, from 1."""
        return self._input.turn

    @property
    def attempt(self) -> int:
        """The number of this run of the turn, from 1; higher after the host has died."""
        return self._turn.attempt

    @property
    def message(self) -> message_pb2.Message:
        """The message of this turn, exactly as it was sent."""
        return self._input.message

    @property
    def text(self) -> str:
        """The text parts of this turn's message, joined by a space."""
        return message_text(self._input.message)

    @property
    def history(self) -> Sequence[message_pb2.Message]:
        """The messages of the task, oldest first; the last one is this turn's."""
        return self._input.history

    @property
    def deadline(self) -> datetime | None:
        """The time at which the task fails if it has not ended, in UTC; None: no limit."""
        return self._turn.deadline

    @property
    def accepted_output_modes(self) -> Sequence[str]:
        """The media types that the caller accepts; empty: all."""
        return self._turn.accepted_output_modes

    @property
    def state(self) -> TaskState:
        """The state that the task is in now."""
        return TaskState.from_proto(self._turn.state)

    @property
    def is_over(self) -> bool:
        """True if the turn has ended or is being canceled: nothing more can be written."""
        return self._turn.is_over

    @property
    def approvals(self) -> Sequence[snapshot_pb2.ApprovalInfo]:
        """The approvals that the task and its children requested, in order."""
        return self._turn.pending_approvals.all

    # Progress, and the end of the turn.

    async def working(self, text: str | None = None) -> None:
        """Enter the state `working`, optionally with a status text.

        Returns when the event is in the journal. The first artifact, plan or tool call does the
        same without a text, so call this only to say something before slow work. For frequent
        reports within the work use `progress`, which does not wait.
        """
        await self._turn.working(text)

    async def progress(self, text: str) -> None:
        """Report progress as a status text, without waiting for the journal.

        The event is written together with the next ones. The task is `working` afterwards.
        """
        await self._turn.progress(text)

    async def mark_partial(self) -> None:
        """Say that a part of the answer is missing: if the task completes, it is `partial`."""
        self._turn.is_partial = True
        await self._turn.enter(State.TASK_STATE_WORKING, metadata={PARTS_MISSING_KEY: True})

    async def complete(self, message: Content | None = None) -> None:
        """End the task with success. Returning from the function does the same."""
        await self._turn.complete(message)

    async def fail(self, message: Content | None = None) -> None:
        """End the task with an error; the message says why. Raising does the same."""
        await self._turn.fail(message)

    async def reject(self, message: Content | None = None) -> None:
        """End the task because the agent declines it; the message says why."""
        await self._turn.reject(message)

    async def require_input(self, message: Content | None = None) -> None:
        """End the turn with a question. The answer calls the function again, as the next turn."""
        await self._turn.require_input(message)

    async def require_auth(self, message: Content | None = None) -> None:
        """End the turn because credentials are missing; the message says which."""
        await self._turn.require_auth(message)

    async def reply(self, message: Content) -> None:
        """Answer with a message instead of a task.

        Raises:
            InvalidAgentResponseError: something was written before, or the agent is not declared
                with `direct_replies`.
        """
        await self._turn.reply(message)

    async def request_approval(
        self, tool: str, arguments: Mapping[str, Any] | None = None
    ) -> ApprovalAnswer | None:
        """Ask a person to approve a call; return the answer, or None while there is none.

        On None, return from the function: the turn ends with one question for all approvals that
        it requested. The answer opens the next turn, where the same call of this method returns
        it. A task asks once for the same tool with the same arguments.
        """
        answer = await self._turn.request_approval(tool, arguments)
        return None if answer is None else ApprovalAnswer.from_proto(answer)

    # Artifacts, plans and tool calls.

    def artifact(
        self,
        name: str = "",
        *,
        id: str = "",  # noqa: A002  the name that authors expect
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
        extensions: Sequence[str] = (),
        is_answer: bool = True,
    ) -> ArtifactWriter:
        """Return an artifact to write to. It exists from its first append on.

        The `id` of an artifact that an earlier turn wrote continues that one. In a turn that runs
        again, the same calls return the same artifacts. With `is_answer=False` it is shown while
        the agent works, and is no part of its answer.
        """
        return self._turn.artifact(
            name,
            id=id,
            description=description,
            metadata=metadata,
            extensions=extensions,
            kind=(
                event_pb2.ARTIFACT_KIND_UNSPECIFIED
                if is_answer
                else event_pb2.ARTIFACT_KIND_PROGRESS
            ),
        )

    def plan(self) -> PlanWriter:
        """Return a new plan to write to."""
        return self._turn.plan()

    def tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        id: str = "",  # noqa: A002  the name that authors expect
    ) -> AbstractAsyncContextManager[ToolCall]:
        """Record the start of a tool call when a block begins, and its end when the block ends.

        Set `summary` and `is_error` of the call that the block yields; an exception makes it an
        error. An `id` must be unique in the task.
        """
        return self._turn.tool(name, arguments, id=id)

    async def rewind(self, lengths: Mapping[str, int] | None = None) -> None:
        """Truncate the artifacts of an earlier attempt at this turn to where the agent continues.

        Only for agents declared `resumable`, before they write anything. `lengths` has, by
        artifact id, the number of characters of the joined text that remain; the default is 0.
        Without an earlier attempt this does nothing.
        """
        await self._turn.rewind(lengths)

    # Usage of models.

    def report_usage(self, model: str, *, input_tokens: int, output_tokens: int) -> None:
        """Count the tokens of a model that the agent called by another client than the mesh's.

        They count for the limits of the request and for budgets, with the prices in
        `[models."PROVIDER:NAME"]`. `model` is the name there. Report each reply once. The models of
        a graph are counted without it.

        Raises:
            InvalidArgumentError: a number is negative, or not whole.
        """
        self._turn.meter.report(model, input_tokens=input_tokens, output_tokens=output_tokens)

    # Calls to other agents and to tools.

    def ask(
        self, agent: str, content: Content, *, task_id: str = "", key: str = "", check: bool = True
    ) -> Coroutine[Any, Any, AgentAnswer]:
        """Ask another agent and wait for its answer.

        The agent gets a child task: with this task's caller, deadline and trace, within
        the limits of the request, and canceled with this task. Cancel the call to cancel it alone.
        Approvals that it needs are asked of this task's caller; the function then stops here, and
        runs again from its start with the same message once they are answered.

        A call is identified by its number among the calls of the same agent in this turn, or by
        `key`. If the turn runs again, the same call gets the answer of the task that was started
        before. Give calls a key whose order can differ when the function runs again.

        `task_id` answers the question of an agent that was asked before (see `questions`).

        Raises:
            AgentCallError: the agent did not complete; it has the state and the text. With
                `check=False` the answer is returned instead.
            InvalidArgumentError: there is no such agent, or no such child with `task_id`.
            TreeLimitError: a limit of the request is reached, or the agents call in a circle.
            UnsupportedOperationError: the task does not run on a mesh, or the function that calls
                is synchronous.
        """
        return self._peers().ask(agent, content, task_id=task_id, key=key, check=check)

    def stream(
        self, agent: str, content: Content, *, task_id: str = "", key: str = "", check: bool = True
    ) -> AgentStream:
        """Ask another agent as `ask` does, and iterate over the text while it is written.

        `answer` of the stream is the whole answer, once the iteration has ended. An agent that
        revises its text does so in the answer only. A stream that is left early is canceled at the
        end of the turn.
        """
        return self._peers().stream(agent, content, task_id=task_id, key=key, check=check)

    def call_tool(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, key: str = ""
    ) -> Coroutine[Any, Any, ToolResult]:
        """Call a tool of an MCP server, by `SERVER/TOOL`.

        A failure of the tool is an answer with `is_error`. If the tool needs approval, or asks
        something, this task's caller is asked. The function stops here and runs again from its
        start with the same message once that is answered; a rejected call is an answer with
        `is_error`, too. Calls are identified as those of `ask`. A tool that changes something and
        is not idempotent is called once, and a turn that runs again gets the stored result. A call
        that the server makes a long-running task is followed, and canceled with this task.

        Raises:
            InvalidArgumentError: there is no such tool for this agent.
            PeerError: the tool server or its adapter failed.
            UnsupportedOperationError: the task does not run on a mesh.
        """
        return self._peers().call_tool(tool, arguments, key=key)

    def ask_model(
        self, prompt: str, result: type[ResultT], *, instructions: str = "", purpose: str = "ask"
    ) -> Coroutine[Any, Any, ResultT | None]:
        """Ask the agent's model for an object of a pydantic model.

        The model is that of the mesh's settings, with its fallbacks, limits and budgets. Return
        None if it is the built-in `rules`, or if that is its fallback and the others fail: `rules`
        does not reason, so the function does without. An object that does not fit is asked for once
        more, with the fault. If the turn runs again, the model is asked again. `purpose` is a word
        for the call in traces and figures.

        Raises:
            ModelUnavailableError: no model answered, or the answers did not fit.
            LimitExceededError: a budget is used up.
            TreeLimitError: the limits of the request leave no tokens.
            UnsupportedOperationError: the task does not run on a mesh.
        """
        return self._peers().ask_model(prompt, result, instructions=instructions, purpose=purpose)

    # Messages to other agents.

    def send(  # noqa: PLR0913  the fields of a message, each by name
        self,
        recipient: str,
        payload: Payload,
        *,
        type: str = "",  # noqa: A002  the name of the field
        room: str = "",
        priority: Priority | None = None,
        metadata: Mapping[str, Any] | None = None,
        expires_in_s: float | None = None,
        key: str = "",
    ) -> Coroutine[Any, Any, MeshMessage]:
        """Send a message to an agent, to `all`, to `room:NAME`, or to `user:NAME`.

        The payload is an object of a declared type, text, or the fields of the `type`. The message
        is stored when the call returns, and is delivered at least once. In a handler, it belongs to
        the conversation of the message that is handled. If the turn runs again, the same call sends
        nothing new; calls are identified as those of `ask`.

        Raises:
            InvalidArgumentError: the payload does not fit its type, or there is no such recipient.
            QueueFullError: too many messages wait.
            UnsupportedOperationError: the task does not run on a mesh.
        """
        message = OutgoingMessage(
            recipient=recipient,
            payload=payload,
            type=type,
            room=room,
            priority=priority,
            metadata=metadata or {},
            expires_in_s=expires_in_s,
            key=key,
        )
        return self._send(message)

    async def _send(self, message: OutgoingMessage) -> MeshMessage:
        (sent,) = await self._peers().send([message])
        return sent

    def publish(
        self,
        room: str,
        payload: Payload,
        *,
        type: str = "",  # noqa: A002  the name of the field
        key: str = "",
    ) -> Coroutine[Any, Any, MeshMessage]:
        """Send a message to the members of a room, and to its listeners; as `send` does."""
        return self.send(f"room:{room}", payload, type=type, key=key)

    def request(
        self,
        recipient: str,
        payload: Payload,
        *,
        type: str = "",  # noqa: A002  the name of the field
        timeout_s: float = 60.0,
        priority: Priority | None = None,
        key: str = "",
    ) -> Coroutine[Any, Any, MeshMessage]:
        """Send a message to an agent, and return its first reply.

        Raises:
            PeerTimeoutError: there is no reply in time. The message stays, and may be answered.
            AgentCallError: nobody will answer: it was handled without a reply, failed for good,
                expired, or was canceled. A request to a room waits longer: users may answer it.
            As `send`.
        """
        message = OutgoingMessage(
            recipient=recipient, payload=payload, type=type, priority=priority, key=key
        )
        return self._peers().request(message, timeout_s=timeout_s)

    @property
    def questions(self) -> Sequence[AgentAnswer]:
        """The questions of asked agents that wait for an answer, oldest first."""
        return () if self._calls is None else self._calls.questions

    def _peers(self) -> TaskCalls:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            # A node of a graph, for example. Nobody would await the call.
            problem = "the function is synchronous; make it `async def` and await the call"
            raise UnsupportedOperationError("a call", problem) from None
        if self._calls is None:
            raise UnsupportedOperationError("a call", "this task does not run on a mesh")
        return self._calls

    # Files.

    def open(self, part: part_pb2.Part) -> "AbstractAsyncContextManager[AsyncIterator[bytes]]":
        """Open the content of a part, of this turn's message for example, in pieces.

        The content may be in the part, stored by the mesh (`trunkline:` URLs), or behind an https
        URL of a public host or of a host that the operator allows.

        Raises:
            InvalidArgumentError: nothing may be fetched from that URL.
            TaskNotFoundError, ArtifactNotFoundError: there is no such content for this account.
            PeerUnavailableError, PeerTimeoutError, PeerRefusedError: fetching it failed.
        """
        return self._turn.open(part)

    async def read(self, part: part_pb2.Part, *, limit_bytes: int = READ_LIMIT_BYTES) -> bytes:
        """Return the content of a part; see `open`.

        Raises:
            InvalidArgumentError: it is larger than `limit_bytes`.
            TrunklineError: as `open` raises.
        """
        return await self._turn.read(part, limit_bytes=limit_bytes)

    async def store(
        self, source: FileSource, *, media_type: str = "", filename: str = "", key: str = ""
    ) -> part_pb2.Part:
        """Store content of any size with the task; return the part that refers to it.

        For parts of messages; `ArtifactWriter.attach` does the same for an artifact. Content that
        was stored before under the same `key` is used, and `source` is not read.

        Raises:
            As `ArtifactWriter.attach`.
        """
        return await self._turn.store(source, media_type=media_type, filename=filename, key=key)


def get_turn_runtime(task: TaskContext[Any]) -> TurnRuntime:
    """Return the host's object for a turn, for adapters of frameworks and protocols."""
    return task._turn  # noqa: SLF001  the facade hides it from authors


def get_task_calls(task: TaskContext[Any]) -> TaskCalls | None:
    """Return the calls of a turn, for adapters of frameworks; None outside a mesh."""
    return task._calls  # noqa: SLF001  the facade hides it from authors
