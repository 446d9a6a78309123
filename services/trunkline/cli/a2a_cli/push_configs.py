"""`task push-config`: webhooks of a task, and a receiver of their posts."""

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.operations import (
    CREATE_PUSH_CONFIG,
    DELETE_PUSH_CONFIG,
    GET_PUSH_CONFIG,
    LIST_PUSH_CONFIGS,
    find_webhook_problem,
)
from trunkline.cli.a2a_cli.declaration import CONFIG, TASK, argument, command, count
from trunkline.cli.a2a_cli.failures import usage
from trunkline.cli.a2a_cli.output import ResultPrinter, leave_out
from trunkline.cli.a2a_cli.session import AgentSession, CommandContext, open_session
from trunkline.cli.a2a_cli.waiting import TaskProgress
from trunkline.v1 import push_notification_pb2


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
    the notification of an agent of v0.3 is converted.

    Raises:
        CommandError: the address can't be used.
    """
    # uvicorn and Starlette take a while to load, for a command that few run.
    from trunkline.cli.a2a_cli.push_receiver import receive_notifications
    from trunkline.settings import HostPort

    try:
        bound = HostPort.parse(address)
    except ValueError:
        raise usage(f"--listen: {address!r} is not HOST:PORT") from None
    printer = ResultPrinter(context)

    def show(event: Json) -> None:
        printer.event(event)
        if not context.configuration.is_json and "artifactUpdate" in event:
            progress = TaskProgress()
            progress.apply(event)
            context.console.write_text(f"Task: {progress.task_id}\n")

    await receive_notifications(context.console, bound, show, token=token, limit=limit)
