"""`task push-config`: webhooks of a task, and a receiver of their posts."""

from typing import Annotated

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.operations import (
    CREATE_PUSH_CONFIG,
    DELETE_PUSH_CONFIG,
    GET_PUSH_CONFIG,
    LIST_PUSH_CONFIGS,
    find_webhook_problem,
)
from trunkline.cli.a2a_cli.arguments import ConfigArgument, TaskArgument
from trunkline.cli.a2a_cli.failures import usage
from trunkline.cli.a2a_cli.output import ResultPrinter, leave_out
from trunkline.cli.a2a_cli.session import AgentSession, CommandContext, open_session
from trunkline.cli.a2a_cli.waiting import TaskProgress
from trunkline.cli.options import argument, option
from trunkline.v1 import push_notification_pb2


def _require_push(session: AgentSession) -> None:
    session.require("pushNotifications", "PushNotificationNotSupportedError", "push notifications")


async def create(
    context: CommandContext,
    *,
    task: TaskArgument,
    url: Annotated[str, argument("URL", "The webhook.")],
    config_id: Annotated[str, option("ID", "The id of the config.", "--id")] = "",
    token: Annotated[str, option("TOKEN", "Sent with each notification.")] = "",
    auth: Annotated[str, option("'SCHEME CREDENTIALS'", "For the webhook.")] = "",
) -> None:
    """Create a webhook of a task."""
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


async def get(context: CommandContext, *, task: TaskArgument, config: ConfigArgument) -> None:
    """Show a webhook of a task."""
    request = a2a_pb2.GetTaskPushNotificationConfigRequest(task_id=task, id=config)
    async with open_session(context) as session:
        _require_push(session)
        _print_config(context, await session.call(GET_PUSH_CONFIG, request))


async def list_configs(context: CommandContext, *, task: TaskArgument) -> None:
    """List the webhooks of a task."""
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


async def delete(context: CommandContext, *, task: TaskArgument, config: ConfigArgument) -> None:
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


async def listen(
    context: CommandContext,
    *,
    address: Annotated[
        str, option("HOST:PORT", "Listen here. [a free port of this machine]", "--listen")
    ] = "127.0.0.1:0",
    token: Annotated[str, option("TOKEN", "Refuse posts without it.")] = "",
    limit: Annotated[
        int | None, option("N", "Stop after N notifications.", "--count", min=0)
    ] = None,
) -> None:
    """Receive notifications and print each, until a signal.

    Each notification is a StreamResponse, printed as it came. The notification of an agent of v0.3
    is converted.

    Raises:
        CommandError: the address can't be used.
    """
    # uvicorn and Starlette take a while to load, for a command that few run.
    from trunkline.cli.a2a_cli.push_receiver import receive_notifications
    from trunkline.core.settings import HostPort

    try:
        bound = HostPort.parse(address)
    except ValueError:
        raise usage(f"--listen: {address!r} is not HOST:PORT") from None
    printer = ResultPrinter(context)

    def show(event: Json) -> None:
        printer.event(event)
        if not context.options.is_json and "artifactUpdate" in event:
            progress = TaskProgress()
            progress.apply(event)
            context.console.write_text(f"Task: {progress.task_id}\n")

    await receive_notifications(context.console, bound, show, token=token, limit=limit)
