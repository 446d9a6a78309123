"""The A2A client of the command line. Its errors say what to do at a terminal."""

import uuid
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.a2a_client import A2AClient
from trunkline.a2a_client.answer_fold import EmitEvent
from trunkline.a2a_client.answers import ClientAnswer
from trunkline.a2a_client.client_turn import open_turn
from trunkline.a2a_client.errors import NotProcessedError, RpcError
from trunkline.a2a_client.interfaces import Interface, ProtocolBinding
from trunkline.a2a_client.refusals import CREDENTIALS_REFUSALS, to_mesh_error
from trunkline.a2a_client.settings import (
    MAX_STREAMED_BYTES,
    NO_BREAKER,
    STREAM_IDLE_S,
    RemoteSettings,
)
from trunkline.a2a_client.transport import CALL_TIMEOUT_S, CallOptions
from trunkline.a2a_wire.protocol import V1_0
from trunkline.cli.ephemeral_mesh import START_A_MESH
from trunkline.errors import (
    InvalidArgumentError,
    PeerProtocolError,
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnavailableError,
    TrunklineError,
)
from trunkline.observe import telemetry
from trunkline.v1 import message_pb2, part_pb2, task_pb2

PATIENCE_S: Final = 30.0
"""A turn that has begun is resumed for so long, in which a mesh can restart."""
# The heartbeats of the stream tell that the mesh lives, however long an agent thinks.
_IDLE_S: Final = 86_400.0


class AgentClient:
    """A client of one agent at a mesh's public address, over A2A 1.0 and JSON-RPC.

    Turns run as the turns of `trunkline.Client`. The calls raise TrunklineErrors only.
    """

    def __init__(self, url: str, *, api_key: str = "") -> None:
        self.url = url
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._peer = A2AClient(
            RemoteSettings(
                url=url,
                headers=headers,
                breaker=NO_BREAKER,
                idle_s=_IDLE_S,
                patience_s=PATIENCE_S,
                content_bytes=MAX_STREAMED_BYTES,
            ),
            interface=Interface(ProtocolBinding.JSONRPC, V1_0, url),
            supports_resume=True,
            stream_idle_s=STREAM_IDLE_S,
            max_event_bytes=MAX_STREAMED_BYTES,
        )

    async def __aenter__(self) -> Self:
        await self._peer.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self._peer.__aexit__(exc_type, exc_val, exc_tb)

    async def send(
        self, message: message_pb2.Message, emit: EmitEvent, *, timeout_s: float | None = None
    ) -> ClientAnswer:
        """Send a message, emit the events of its turn, and return the answer.

        The mesh ends the task after `timeout_s`. A broken stream is resumed. Canceling the call
        does not cancel the task.

        Raises:
            PeerTimeoutError: the turn did not end by some seconds after `timeout_s`.
            PeerUnavailableError: the mesh can't be reached, or the stream can't be resumed.
        """
        with self._explain_errors(message.task_id):
            # The state of an earlier task is read first. Traces are about the agents' work.
            with telemetry.suppress_spans():
                turn = await open_turn(
                    self._peer, emit, message, timeout_s=timeout_s, is_patient=False
                )
            return await turn.run()

    async def start(self, message: message_pb2.Message) -> task_pb2.Task:
        """Send a message without waiting for the end of its turn; return the task."""
        request = a2a_pb2.SendMessageRequest(message=message)
        request.configuration.return_immediately = True
        with self._explain_errors():
            response = await self._peer.send_message(
                request, CallOptions(), timeout_s=CALL_TIMEOUT_S
            )
        return response.task

    async def get_task(self, task_id: str) -> task_pb2.Task:
        """Return a task.

        Raises:
            TaskNotFoundError: this agent has no such task.
        """
        with self._explain_errors(task_id), telemetry.suppress_spans():
            return await self._peer.get_task(task_id)

    async def cancel_task(self, task_id: str) -> None:
        """Cancel a task.

        Raises:
            TaskNotCancelableError: the task had ended.
        """
        with self._explain_errors(task_id):
            await self._peer.cancel_task(task_id)

    def has_origin_of(self, url: str) -> bool:
        """Return whether a URL has this agent's origin, so that it may get the credentials."""
        return urlsplit(url)[:2] == urlsplit(self.url)[:2]

    async def download(self, url: str) -> AsyncGenerator[bytes]:
        """Yield a file in pieces. A broken download is resumed at the byte where it broke.

        Raises:
            PeerUnavailableError: the file can't be read, or the download can't be resumed.
        """
        with self._explain_errors():
            async with aclosing(self._peer.download(url, is_resumed=True)) as pieces:
                async for piece in pieces:
                    yield piece

    @contextmanager
    def _explain_errors(self, task_id: str = "") -> Iterator[None]:
        try:
            yield
        except (PeerRefusedError, PeerUnavailableError, PeerTimeoutError) as error:
            raise _terminal_error(self.url, error, task_id) from error
        except PeerProtocolError as error:
            problem = (
                f"{error.problem}; is a mesh's bridge there? `trunkline a2a` asks any A2A agent"
            )
            raise PeerProtocolError(self.url, problem) from error


def build_message(
    text: str,
    *,
    task_id: str = "",
    context_id: str = "",
    files: Sequence[part_pb2.Part] = (),
) -> message_pb2.Message:
    """Return a new message of the user: a text and files."""
    return message_pb2.Message(
        message_id=str(uuid.uuid4()),
        role=message_pb2.ROLE_USER,
        task_id=task_id,
        context_id=context_id,
        parts=[part_pb2.Part(text=text), *files],
    )


def _terminal_error(url: str, error: TrunklineError, task_id: str) -> TrunklineError:
    """Convert an error of the A2A client to an error that says what to do at a terminal."""
    converted = to_mesh_error(error, peer=url, task_id=task_id)
    match converted:
        case RpcError(refusal=reason) if reason in CREDENTIALS_REFUSALS:
            text = converted.error.text or converted.problem
            return InvalidArgumentError("--api-key or TRUNKLINE_API_KEY", text)
        case RpcError():
            return InvalidArgumentError("the request", converted.error.text or converted.problem)
        case PeerRefusedError():
            return InvalidArgumentError("the request", converted.problem)
        case NotProcessedError():
            return PeerUnavailableError(url, START_A_MESH)
        case PeerUnavailableError():
            return PeerUnavailableError(url, converted.problem)
    return converted
