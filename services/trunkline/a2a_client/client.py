"""`trunkline.Client`: asks any A2A agent, and better an agent of a Trunkline mesh."""

import asyncio
import uuid
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.a2a_client import A2AClient
from trunkline.a2a_client.answer_fold import EmitEvent
from trunkline.a2a_client.answers import (
    ClientAnswer,
    ClientEvent,
    read_answer,
    reply_answer,
)
from trunkline.a2a_client.client_stream import ClientStream
from trunkline.a2a_client.client_turn import open_resumed_turn, open_turn
from trunkline.a2a_client.errors import ConnectionLostError, NotProcessedError
from trunkline.a2a_client.interfaces import ProtocolBinding
from trunkline.a2a_client.lenient_reader import LenientReader
from trunkline.a2a_client.messages import MessageMethods
from trunkline.a2a_client.refusals import CREDENTIALS_REFUSALS, mesh_errors
from trunkline.a2a_client.settings import (
    MAX_STREAMED_BYTES,
    NO_BREAKER,
    STREAM_IDLE_S,
    RemoteSettings,
    check_header_value,
)
from trunkline.a2a_client.tls import ClientTls
from trunkline.a2a_client.transport import CallOptions
from trunkline.a2a_wire.errors import INVALID_PARAMS
from trunkline.a2a_wire.operations import LIST_TASKS, find_task_problem
from trunkline.a2a_wire.protocol import V0_3, V1_0
from trunkline.a2a_wire.response_reader import parse_stream_response, parse_task
from trunkline.core.json_values import build_struct, build_value
from trunkline.core.task_states import INTERRUPTED, TERMINAL, TaskState
from trunkline.errors import (
    ConfigurationError,
    InvalidArgumentError,
    PeerProtocolError,
    PeerRefusedError,
    PeerTimeoutError,
    UnsupportedOperationError,
)
from trunkline.mesh.client import Backoff
from trunkline.v1 import agent_card_pb2, message_pb2, part_pb2, task_pb2

ClientContent: TypeAlias = str | part_pb2.Part | Mapping[str, Any]
"""A text, a part, or a JSON object."""

AT_ONCE_S: Final = 10.0
"""The time for an answer without a stream. Unlike a stream, that has no sign of life."""
# The number of attempts of a read when its connection breaks.
_READ_ATTEMPTS: Final = 4
_DATA_TYPE: Final = "application/json"
_WHERE: Final = "Client"
# The settings of a remote agent without options.
_DEFAULTS: Final = RemoteSettings(url="")
_Result = TypeVar("_Result")


class Client(MessageMethods):
    """Asks one agent over A2A, v1.0 or v0.3, in the binding that its card offers first.

        async with Client("http://127.0.0.1:8000", agent="math") as client:
            answer = await client.ask("what is 2+2")

    A broken connection is resumed without losing or doubling text: after the last event where the
    agent has Trunkline's resume extension, by reading the task elsewhere. Leaving a call early, or
    the block, does not cancel the task.

    Calls raise TrunklineErrors only: InvalidArgumentError and the others of RequestError if the
    caller must change the request, PeerUnavailableError if the agent can't be reached (turns try
    again for `patience_s`), PeerTimeoutError if it took too long, PeerRefusedError if it refused,
    and PeerProtocolError if it does not keep to A2A. PeerUnavailableError also says that a message
    may have arrived: the connection broke before the answer began, and the agent has no resume
    extension.

    At a Trunkline mesh it also sends messages between agents, and listens to them: see
    `MessageMethods`.
    """

    def __init__(  # noqa: PLR0913  options of a client, each by name
        self,
        url: str,
        *,
        agent: str = "",
        token: str = "",
        key: str = "",
        key_header: str = "X-API-Key",
        headers: Mapping[str, str] | None = None,
        authority: Path | str | None = None,
        certificate: Path | str | None = None,
        certificate_key: Path | str | None = None,
        hosts: Sequence[str] = (),
        bindings: Sequence[str] = (),
        versions: Sequence[str] = (),
        idle_s: float = _DEFAULTS.idle_s,
        patience_s: float = _DEFAULTS.patience_s,
        content_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            url: The URL of the agent, of its card, or of a Trunkline mesh.
            agent: The name of an agent of the mesh. By default, the mesh's default agent is used.
            token: A bearer token.
            key: An API key, sent in `key_header`.
            key_header: The header of the API key.
            headers: More headers of each request.
            authority: A file of root certificates in PEM. By default, the system's certificates
                are used.
            certificate: A file with the client's certificate in PEM.
            certificate_key: A file with the certificate's key in PEM. By default, the key is in
                the file of the certificate.
            hosts: Further addresses that the card may name, each as HOST or HOST:PORT. They get
                the credentials.
            bindings: The only bindings to use: JSONRPC, HTTP+JSON, GRPC. By default, any binding
                is used.
            versions: The only versions to use: 1.0, 0.3. By default, any version is used.
            idle_s: Seconds without an event after which a turn is given up.
            patience_s: Seconds for which an agent that can't be reached is tried again.
            content_bytes: Limit of the content of one turn.

        Raises:
            ConfigurationError: The URL, a credential, a file or another argument can't be used.
        """
        _check_names("bindings", bindings, [*ProtocolBinding])
        _check_names("versions", versions, [V1_0, V0_3])
        tls = None
        if authority or certificate:
            tls = ClientTls(
                authority=_to_path(authority),
                certificate=_to_path(certificate),
                key=_to_path(certificate_key),
            )
        settings = RemoteSettings(
            url=_build_url(url, agent),
            headers=_build_headers(token, key, key_header, headers or {}),
            hosts=tuple(hosts),
            bindings=tuple(bindings),
            versions=tuple(versions),
            idle_s=idle_s,
            patience_s=patience_s,
            content_bytes=content_bytes,
            breaker=NO_BREAKER,
        )
        ssl_context = None if tls is None else tls.ssl_context()
        super().__init__(url, settings.headers, ssl_context=ssl_context, patience_s=patience_s)
        self._peer = A2AClient(
            settings,
            ssl_context=ssl_context,
            channel_security=None if tls is None else tls.channel_security(""),
            stream_idle_s=STREAM_IDLE_S,
            max_event_bytes=MAX_STREAMED_BYTES,
        )
        self._is_open = False
        self._has_card = False
        self._card_lock = asyncio.Lock()
        self._streams = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._streams.__aenter__()
        self._is_open = True
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._is_open = False
        for stream in self._running:
            stream.cancel()
        try:
            # Without the error of the block, which the group would wrap.
            await self._streams.__aexit__(None, None, None)
        finally:
            await self._messages_http.close()
            await self._peer.__aexit__(exc_type, exc_val, exc_tb)

    async def ask(
        self,
        *content: ClientContent,
        task_id: str = "",
        context_id: str = "",
        message_id: str = "",
        metadata: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> ClientAnswer:
        """Send a message and return the answer when its turn is over.

        A turn is also over when the agent asks something: see the answer's `state`.

        Args:
            content: Texts, parts and JSON objects.
            task_id: Answers a task that asked for input.
            context_id: Starts a new task in an earlier conversation.
            message_id: The same id never starts two tasks of a Trunkline mesh. By default, the
                message gets a new id.
            metadata: The message's metadata, JSON values.
            timeout_s: Limit of the turn. A Trunkline mesh ends the task then.

        Raises:
            TrunklineError: See the class.
            TaskNotFoundError, TaskEndedError: The task takes no message.
        """
        message = _build_message(content, task_id, context_id, message_id, metadata)
        return await self._run(_discard, message, timeout_s)

    async def ask_at_once(
        self, text: str, *, context_id: str = "", message_id: str = ""
    ) -> ClientAnswer:
        """Send a text and return the answer, as `ask` does, for half of the cost of a short turn.

        The answer is awaited without a stream for up to ten seconds, and it has no `trace_id`.

        Raises:
            TrunklineError: As `ask`.
        """
        message = _build_message([text], "", context_id, message_id, None)
        with self._errors():
            await self._connect()
            answer = await self._wait_at_once(message)
        # The stream of the same message attaches to its task, if there is one.
        return answer or await self._run(_discard, message, None)

    def stream(
        self,
        *content: ClientContent,
        task_id: str = "",
        context_id: str = "",
        message_id: str = "",
        metadata: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> ClientStream:
        """Send a message and iterate over the events of its turn; the last is the answer.

        Arguments and errors are the same as for `ask`. The message is sent when the iteration
        begins.
        """
        message = _build_message(content, task_id, context_id, message_id, metadata)

        async def run(emit: EmitEvent) -> ClientAnswer:
            return await self._run(emit, message, timeout_s)

        return ClientStream(run, self._start)

    def resume(
        self, task_id: str, *, after: str = "", timeout_s: float | None = None
    ) -> ClientStream:
        """Iterate over the events of a task's current turn after an event; the last is the answer.

        Args:
            task_id: The task.
            after: The cursor of an event. If it is empty or expired, the first chunk of text
                `replaces` all text and has everything so far.
            timeout_s: Limit of the wait; the task is not ended then.

        Raises:
            TrunklineError: See the class.
            TaskNotFoundError: The agent has no such task.
        """

        async def run(emit: EmitEvent) -> ClientAnswer:
            with self._errors(task_id):
                await self._connect()
                turn = await open_resumed_turn(
                    self._peer, emit, task_id, cursor=after, timeout_s=timeout_s
                )
                return await turn.run()

        return ClientStream(run, self._start, cursor=after)

    async def approve(
        self,
        task_id: str,
        approval_id: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> ClientAnswer:
        """Approve a call that a task waits for; return the answer of the turn that follows.

        Args:
            task_id: The task that asked: `answer.task_id`.
            approval_id: The approval, from `answer.approvals`.
            arguments: Replace the arguments of the call.
            timeout_s: As in `ask`.

        Raises:
            TrunklineError: As `ask`.
        """
        decision: dict[str, Any] = {"approvalId": approval_id, "decision": "approve"}
        if arguments is not None:
            decision |= {"decision": "edit", "arguments": dict(arguments)}
        return await self.ask(decision, task_id=task_id, timeout_s=timeout_s)

    async def reject(
        self,
        task_id: str,
        approval_id: str,
        *,
        reason: str = "",
        timeout_s: float | None = None,
    ) -> ClientAnswer:
        """Reject a call that a task waits for; return the answer of the turn that follows.

        Raises:
            TrunklineError: As `ask`.
        """
        decision = {"approvalId": approval_id, "decision": "reject", "reason": reason}
        return await self.ask(decision, task_id=task_id, timeout_s=timeout_s)

    async def get(self, task_id: str) -> ClientAnswer:
        """Return the current state of a task, with the artifacts of all its turns.

        Raises:
            TrunklineError: See the class.
            TaskNotFoundError: The agent has no such task.
        """
        with self._errors(task_id):
            await self._connect()
            task = await _retry_read(lambda: self._peer.get_task(task_id))
            return read_answer(task, peer=self._peer.name)

    async def cancel(self, task_id: str) -> ClientAnswer:
        """Cancel a task with everything that it started; return its state.

        Raises:
            TrunklineError: See the class.
            TaskNotFoundError: The agent has no such task.
            TaskNotCancelableError: The task has ended.
        """
        with self._errors(task_id):
            await self._connect()
            return read_answer(await self._peer.cancel_task(task_id), peer=self._peer.name)

    async def list(
        self,
        *,
        context_id: str = "",
        state: TaskState | None = None,
        page_size: int = 50,
    ) -> AsyncGenerator[ClientAnswer]:
        """Yield the caller's tasks at the agent, the last changed first, without artifacts.

        Args:
            context_id: Only tasks of this conversation.
            state: Only tasks in this state.
            page_size: Tasks per request, 1 to 100.

        Raises:
            TrunklineError: See the class.
            UnsupportedOperationError: The agent has A2A 0.3, which can't list tasks.
        """
        request = a2a_pb2.ListTasksRequest(context_id=context_id, page_size=page_size)
        if state is not None:
            request.status = task_pb2.TaskState.Value(
                f"TASK_STATE_{state.upper().replace('-', '_')}"
            )
        while True:
            with self._errors():
                await self._connect()
                if self._peer.card.interface.version != V1_0:
                    raise UnsupportedOperationError("to list tasks", "the agent has A2A 0.3")
                page = await _retry_read(
                    lambda: self._peer.call(LIST_TASKS, request, CallOptions())
                )
            for task in self._read_page(page):
                yield read_answer(task, peer=self._peer.name)
            request.page_token = str(page.get("nextPageToken") or "")
            if not request.page_token:
                return

    async def card(self) -> agent_card_pb2.AgentCard:
        """Return the agent's card, which is read once.

        Raises:
            TrunklineError: See the class.
        """
        with self._errors():
            await self._connect()
            return self._peer.card.card

    async def _run(
        self, emit: EmitEvent, message: message_pb2.Message, timeout_s: float | None
    ) -> ClientAnswer:
        with self._errors(message.task_id):
            await self._connect()
            turn = await open_turn(self._peer, emit, message, timeout_s=timeout_s)
            return await turn.run()

    async def _wait_at_once(self, message: message_pb2.Message) -> ClientAnswer | None:
        """Return the answer to a message without a stream, or None to send it by a stream.

        Only an agent with the resume extension recognises a repeated message.
        """
        if not self._peer.card.supports_resume:
            return None
        try:
            response = await self._peer.send_message(
                a2a_pb2.SendMessageRequest(message=message),
                CallOptions(resumes=True),
                timeout_s=AT_ONCE_S,
            )
        except NotProcessedError as away:
            if away.retry_after_s <= self._peer.settings.patience_s:
                await asyncio.sleep(away.retry_after_s)
            return None
        except (ConnectionLostError, PeerTimeoutError, PeerProtocolError):
            return None  # It takes long or is large, or the stream names the problem.
        if response.HasField("message"):
            return reply_answer(response.message, "")
        if response.task.status.state not in TERMINAL | INTERRUPTED:
            return None
        return read_answer(response.task, peer=self._peer.name)

    async def _connect(self) -> None:
        """Read the card, once."""
        self._check_open()
        if self._has_card:
            return
        async with self._card_lock:
            if not self._has_card:
                await _retry_read(self._peer.read_card)
                self._has_card = True

    def _read_page(self, page: Mapping[str, Any]) -> Iterator[task_pb2.Task]:
        """Yield the tasks of a page, except unreadable tasks."""
        log = self._peer.left_out
        reader = LenientReader(parse_stream_response, log)
        for index, entry in enumerate(page.get("tasks") or ()):
            if problem := find_task_problem(entry):
                log.report(f"tasks[{index}]", f"it {problem}")
                continue
            try:
                task = reader.read(parse_task, entry)
            except ValueError as error:
                log.report(f"tasks[{index}]", str(error))
            else:
                yield task

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run a coroutine until it ends or the client is closed."""
        if not self._is_open:
            work.close()
        self._check_open()
        task = self._streams.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def _check_open(self) -> None:
        if not self._is_open:
            problem = "use the client inside its block: `async with Client(…) as client:`"
            raise UnsupportedOperationError("a call", problem)

    @contextmanager
    def _errors(self, task_id: str = "") -> Iterator[None]:
        """Raise an agent's refusals as the errors that the class promises."""
        try:
            with mesh_errors(self._peer.name, task_id=task_id):
                yield
        except PeerRefusedError as error:
            if error.refusal in CREDENTIALS_REFUSALS:
                problem = f"{error.problem}; pass `token`, `key` or `certificate` to the client"
                raise PeerRefusedError(error.peer, problem, error.refusal) from error
            if error.refusal == INVALID_PARAMS.reason:
                raise InvalidArgumentError("the request", error.problem) from error
            raise


async def _discard(_event: ClientEvent) -> None:
    """Ignore an event: the caller waits for the answer only."""


async def _retry_read(read: Callable[[], Awaitable[_Result]]) -> _Result:
    """Return the result of a call that changes nothing, again if its connection breaks."""
    backoff = Backoff()
    for _ in range(_READ_ATTEMPTS - 1):
        try:
            return await read()
        except ConnectionLostError:
            await backoff.pause()
    return await read()


def _build_message(
    content: Sequence[ClientContent],
    task_id: str,
    context_id: str,
    message_id: str,
    metadata: Mapping[str, Any] | None,
) -> message_pb2.Message:
    """Return a user's message. InvalidArgumentError: its content is empty, or no JSON."""
    if not content:
        raise InvalidArgumentError("content", "is empty; pass a text, a part or a JSON object")
    message = message_pb2.Message(
        message_id=message_id or str(uuid.uuid4()),
        role=message_pb2.ROLE_USER,
        task_id=task_id,
        context_id=context_id,
    )
    try:
        for item in content:
            match item:
                case str():
                    message.parts.add(text=item)
                case part_pb2.Part():
                    message.parts.append(item)
                case _:
                    part = message.parts.add(media_type=_DATA_TYPE)
                    part.data.CopyFrom(build_value(item))
        if metadata is not None:
            message.metadata.CopyFrom(build_struct(metadata))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError("content or metadata", f"is no JSON object: {error}") from None
    return message


def _check_names(argument: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Raise ConfigurationError for an unknown name."""
    for name in names:
        if name not in known:
            problem = f"{argument} has {name!r}, which is none of {', '.join(known)}"
            raise ConfigurationError(_WHERE, problem)


def _build_url(url: str, agent: str) -> str:
    """Return the URL of an agent. ConfigurationError: it is not an HTTP URL."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        problem = f"{url!r} is not a URL that starts with http:// or https://"
        raise ConfigurationError(_WHERE, problem)
    return f"{url.rstrip('/')}/agents/{quote(agent, safe='')}" if agent else url


def _build_headers(
    token: str, key: str, key_header: str, others: Mapping[str, str]
) -> dict[str, str]:
    """Return the headers of each request. ConfigurationError: one can't be sent."""
    headers = {name.lower(): value for name, value in others.items()}
    if token:
        headers["authorization"] = f"Bearer {token}"
    if key:
        headers[key_header.lower()] = key
    for name, value in headers.items():
        check_header_value(value, _WHERE, f"the value of {name}")
    return headers


def _to_path(file: Path | str | None) -> Path | None:
    return Path(file) if file else None
