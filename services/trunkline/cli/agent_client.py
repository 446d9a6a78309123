"""The A2A client of the command line: results are A2A's JSON, errors say what to do next."""

import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.a2a_client import A2AClient
from trunkline.a2a_client.errors import NotProcessedError, RpcError
from trunkline.a2a_client.interfaces import Interface, ProtocolBinding
from trunkline.a2a_client.refusals import CREDENTIALS_REFUSALS, to_mesh_error
from trunkline.a2a_client.settings import (
    MAX_STREAMED_BYTES,
    NO_BREAKER,
    STREAM_IDLE_S,
    RemoteSettings,
)
from trunkline.a2a_client.transport import CallOptions
from trunkline.a2a_wire.protocol import V1_0
from trunkline.a2a_wire.v1_0 import json_writer
from trunkline.cli.ephemeral_mesh import START_A_MESH
from trunkline.core.json_values import parse_dict
from trunkline.errors import (
    InvalidArgumentError,
    PeerProtocolError,
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnavailableError,
    TrunklineError,
)
from trunkline.v1 import message_pb2, part_pb2


class AgentClient:
    """A client of one agent at a mesh's public address, over A2A 1.0 and JSON-RPC.

    Results are A2A's JSON as dicts. The calls raise TrunklineErrors only.
    """

    def __init__(self, url: str, *, api_key: str = "") -> None:
        self.url = url
        self.trace_id = ""
        """The trace id of the last message, or "" if the server did not send it."""
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = A2AClient(
            RemoteSettings(url=url, headers=headers, breaker=NO_BREAKER),
            interface=Interface(ProtocolBinding.JSONRPC, V1_0, url),
            stream_idle_s=STREAM_IDLE_S,
            max_event_bytes=MAX_STREAMED_BYTES,
        )

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self._client.__aexit__(exc_type, exc_val, exc_tb)

    async def stream(
        self,
        text: str,
        *,
        task_id: str = "",
        context_id: str = "",
        timeout_s: float | None = None,
        files: Sequence[Mapping[str, Any]] = (),
    ) -> AsyncGenerator[dict[str, Any]]:
        """Send a message and yield A2A's stream responses until the turn ends.

        `files` are file parts to send with the text. The mesh ends the task after `timeout_s`. A
        broken stream is resumed. Closing the generator does not cancel the task.

        Raises:
            PeerUnavailableError: the mesh can't be reached, or the stream can't be resumed.
        """
        request = a2a_pb2.SendMessageRequest()
        message = request.message
        message.message_id = str(uuid.uuid4())
        message.role = message_pb2.ROLE_USER
        message.task_id, message.context_id = task_id, context_id
        message.parts.add(text=text)
        message.parts.extend(parse_dict(file, part_pb2.Part()) for file in files)
        self.trace_id = ""
        options = CallOptions(timeout_s=timeout_s)
        with self._translate_errors(task_id):
            async with aclosing(self._client.stream_turn(request, options)) as events:
                async for event in events:
                    self.trace_id = self.trace_id or event.trace_id
                    yield json_writer.stream_response_json(event.response)

    async def get_task(self, task_id: str) -> dict[str, Any]:
        """Return a task.

        Raises:
            TaskNotFoundError: this agent has no such task.
        """
        with self._translate_errors(task_id):
            return json_writer.task_json(await self._client.get_task(task_id))

    async def cancel_task(self, task_id: str) -> dict[str, Any]:
        """Cancel a task and return it.

        Raises:
            TaskNotCancelableError: the task had ended.
        """
        with self._translate_errors(task_id):
            return json_writer.task_json(await self._client.cancel_task(task_id))

    def has_origin_of(self, url: str) -> bool:
        """Return whether a URL has this agent's origin, so that it may get the credentials."""
        return urlsplit(url)[:2] == urlsplit(self.url)[:2]

    async def download(self, url: str) -> AsyncGenerator[bytes]:
        """Yield a file in pieces. A broken download is resumed at the byte where it broke.

        Raises:
            PeerUnavailableError: the file can't be read, or the download can't be resumed.
        """
        with self._translate_errors():
            async with aclosing(self._client.download(url, is_resumed=True)) as pieces:
                async for piece in pieces:
                    yield piece

    @contextmanager
    def _translate_errors(self, task_id: str = "") -> Iterator[None]:
        try:
            yield
        except (PeerRefusedError, PeerUnavailableError, PeerTimeoutError) as error:
            raise _terminal_error(self.url, error, task_id) from error
        except PeerProtocolError as error:
            problem = (
                f"{error.problem}; is a mesh's bridge there? `trunkline a2a` asks any A2A agent"
            )
            raise PeerProtocolError(self.url, problem) from error


def _terminal_error(url: str, error: TrunklineError, task_id: str) -> TrunklineError:
    """Convert an error of the A2A client to one that says what to do at a terminal."""
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
        case PeerTimeoutError():
            return PeerUnavailableError(url, "silent for too long")
        case PeerUnavailableError():
            return PeerUnavailableError(url, converted.problem)
    return converted
