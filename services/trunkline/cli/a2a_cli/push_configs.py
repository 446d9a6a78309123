"""`task push-config`: webhooks of a task, and a receiver of their posts."""

import asyncio
import hmac
import json
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.operations import (
    CREATE_PUSH_CONFIG,
    DELETE_PUSH_CONFIG,
    GET_PUSH_CONFIG,
    LIST_PUSH_CONFIGS,
    find_webhook_problem,
)
from trunkline.a2a_wire.protocol import NOTIFICATION_TOKEN_HEADER
from trunkline.a2a_wire.response_reader import parse_stream_response
from trunkline.a2a_wire.v1_0.json_writer import stream_response_json
from trunkline.cli.a2a_cli.declaration import CONFIG, TASK, argument, command, count
from trunkline.cli.a2a_cli.failures import usage
from trunkline.cli.a2a_cli.output import ResultPrinter, leave_out
from trunkline.cli.a2a_cli.session import AgentSession, CommandContext, open_session
from trunkline.cli.a2a_cli.waiting import TaskProgress
from trunkline.v1 import push_notification_pb2

_MAX_HEAD_BYTES: Final = 64 * 1024
_MAX_BODY_BYTES: Final = 16 * 1024 * 1024
_READ_TIMEOUT_S: Final = 30.0


def _require_push(session: AgentSession) -> None:
    session.require("pushNotifications", "PushNotificationNotSupportedError", "push notifications")


@command(
    "task push-config create",
    "Create a webhook of a task.",
    TASK,
    argument("url", metavar="URL", help="the webhook"),
    argument("--id", dest="config_id", default="", metavar="ID", help="the id of the config"),
    argument("--token", default="", metavar="TOKEN", help="sent with each notification"),
    argument("--auth", default="", metavar="'SCHEME CREDENTIALS'", help="for the webhook"),
)
async def create(
    context: CommandContext, *, task: str, url: str, config_id: str, token: str, auth: str
) -> None:
    """Create a webhook of a task. `auth` is `SCHEME CREDENTIALS`."""
    context.console.add_secrets((token, auth.partition(" ")[2]))
    request = push_notification_pb2.TaskPushNotificationConfig(
        task_id=task, id=config_id, url=url, token=token
    )
    if auth:
        scheme, _, credentials = auth.partition(" ")
        request.authentication.scheme, request.authentication.credentials = scheme, credentials
    async with open_session(context) as session:
        _require_push(session)
        _print_config(context, await session.call(CREATE_PUSH_CONFIG, request))


@command("task push-config get", "Show a webhook of a task.", TASK, CONFIG)
async def get(context: CommandContext, *, task: str, config: str) -> None:
    """Print a webhook of a task."""
    request = a2a_pb2.GetTaskPushNotificationConfigRequest(task_id=task, id=config)
    async with open_session(context) as session:
        _require_push(session)
        _print_config(context, await session.call(GET_PUSH_CONFIG, request))


@command("task push-config list", "List the webhooks of a task.", TASK)
async def list_configs(context: CommandContext, *, task: str) -> None:
    """Print the webhooks of a task."""
    request = a2a_pb2.ListTaskPushNotificationConfigsRequest(task_id=task)
    async with open_session(context) as session:
        _require_push(session)
        response = await session.call(LIST_PUSH_CONFIGS, request)
    configs = leave_out(context.console, response, "configs", find_webhook_problem)
    response = {**response, "configs": configs}
    fields: list[tuple[str, object]] = [("Task", task)]
    for entry in configs:
        fields += [("Config", entry.get("id", "")), ("URL", entry.get("url", ""))]
    ResultPrinter(context).fields(response, fields)


@command("task push-config delete", "Delete a webhook of a task.", TASK, CONFIG)
async def delete(context: CommandContext, *, task: str, config: str) -> None:
    """Delete a webhook of a task."""
    request = a2a_pb2.DeleteTaskPushNotificationConfigRequest(task_id=task, id=config)
    async with open_session(context) as session:
        _require_push(session)
        response = await session.call(DELETE_PUSH_CONFIG, request)
    ResultPrinter(context).fields(response, [("Task", task), ("Deleted", config)])


def _print_config(context: CommandContext, config: Json) -> None:
    fields: list[tuple[str, object]] = [
        ("Task", config.get("taskId", "")),
        ("Config", config.get("id", "")),
        ("URL", config.get("url", "")),
    ]
    ResultPrinter(context).fields(config, fields)


@command(
    "task push-config listen",
    "Receive notifications.",
    argument(
        "--listen",
        dest="address",
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="(default: a free port here)",
    ),
    argument("--token", default="", metavar="TOKEN", help="refuse posts without it"),
    argument("--count", dest="limit", metavar="N", type=count, help="stop after N notifications"),
)
async def listen(context: CommandContext, *, address: str, token: str, limit: int | None) -> None:
    """Receive notifications and print each; stop after `limit`, or by a signal.

    A post without the token is refused. Each notification is a StreamResponse, printed as it came;
    that of an agent of v0.3 is converted.

    Raises:
        CommandError: the address can't be used.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise usage(f"--listen: {address!r} is not HOST:PORT")
    receiver = _Receiver(context, token, limit)
    try:
        server = await asyncio.start_server(receiver.serve, host, int(port), limit=_MAX_HEAD_BYTES)
    except OSError as error:
        raise usage(f"--listen: {address} can't be used: {error.strerror}") from None
    bound = server.sockets[0].getsockname()
    context.console.warn(f"listening at http://{host}:{bound[1]}/")
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(signal.SIGTERM, receiver.is_done.set)
    try:
        await receiver.is_done.wait()
    finally:
        server.close()


class _Receiver:
    """Answers posts over HTTP/1.1, one for each connection."""

    def __init__(self, context: CommandContext, token: str, count: int | None) -> None:
        self._context = context
        self._token = token
        self._count = count
        self.is_done = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                status = await self._answer(reader.readuntil, reader.readexactly)
                writer.write(
                    f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
                )
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _answer(
        self,
        read_until: Callable[[bytes], Awaitable[bytes]],
        read: Callable[[int], Awaitable[bytes]],
    ) -> str:
        lines = (await read_until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:])
        }
        if not lines[0].startswith("POST "):
            return "405 Method Not Allowed"
        size = headers.get("content-length", "")
        if not size.isdecimal() or int(size) > _MAX_BODY_BYTES:
            return "413 Content Too Large"
        body = await read(int(size))
        token = headers.get(NOTIFICATION_TOKEN_HEADER, "")
        if self._token and not hmac.compare_digest(token.encode(), self._token.encode()):
            self._context.console.warn("warning: refused a notification without the token")
            return "401 Unauthorized"
        try:
            event = json.loads(body)
            if isinstance(event, dict) and "kind" in event:
                # Of an agent of v0.3, which posts the task itself.
                event = stream_response_json(parse_stream_response(event))
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            return "400 Bad Request"
        self._print(event)
        return "204 No Content"

    def _print(self, event: Json) -> None:
        printer = ResultPrinter(self._context)
        printer.event(event)
        if not self._context.configuration.is_json and "artifactUpdate" in event:
            progress = TaskProgress()
            progress.apply(event)
            self._context.console.write_text(f"Task: {progress.task_id}\n")
        if self._count is not None:
            self._count -= 1
            if self._count <= 0:
                self.is_done.set()
