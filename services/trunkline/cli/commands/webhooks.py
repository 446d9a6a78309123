"""The commands for webhooks: they show the delivery, and repeat what failed."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final

import typer
from google.protobuf import timestamp_pb2

from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import (
    AUDIT_SETTINGS,
    DataOption,
    JsonOption,
    MeshOption,
    TaskIdArgument,
    argument,
    choose,
    flag,
    load_command_settings,
    option,
)
from trunkline.cli.terminal import print_json, print_list
from trunkline.core.encryption import KEY_SETTINGS
from trunkline.errors import ConfigurationError, TaskNotFoundError
from trunkline.v1 import webhook_service_pb2

group = typer.Typer()

_PREFIX: Final = "WEBHOOK_STATE_"
STATES: Final = {
    name.removeprefix(_PREFIX).lower(): value
    for name, value in webhook_service_pb2.WebhookState.items()
    if value != webhook_service_pb2.WEBHOOK_STATE_UNSPECIFIED
}
"""The states that `--state` selects, by name."""

# The columns of the table. The page has the same words.
COLUMNS: Final[Mapping[str, Callable[[webhook_service_pb2.Webhook], str]]] = {
    "TASK": lambda webhook: webhook.config.task_id,
    "WEBHOOK": lambda webhook: webhook.config.id,
    "STATE": lambda webhook: state_name(webhook),
    "SENT": lambda webhook: webhook.cursor or "-",
    "URL": lambda webhook: webhook.config.url,
    "LAST ERROR": lambda webhook: webhook.last_error,
}


ConfigId = Annotated[str, argument("WEBHOOK", "Its id. [all of the task]")]


@command(group, "list")
async def list_webhooks(
    mesh: MeshOption = None,
    *,
    state: Annotated[
        str,
        option(
            "STATE",
            f"Only in this state: {', '.join(STATES)}.",
            autocompletion=lambda: list(STATES),
        ),
    ] = "",
    json: JsonOption = False,
) -> ExitCode:
    """List the webhooks of all hosts, newest first."""
    from trunkline.cli.directory import open_directory, report_results
    from trunkline.mesh.client.mesh_webhooks import list_mesh_webhooks

    wanted = webhook_service_pb2.WEBHOOK_STATE_UNSPECIFIED
    if state:
        wanted = choose("--state", state, STATES)
    async with open_directory(mesh) as directory:
        listed = await list_mesh_webhooks(directory, state=wanted)
        found, code = report_results(listed, directory.missing_hosts)
    found.sort(key=lambda webhook: webhook.created.ToNanoseconds(), reverse=True)
    print_list(found, COLUMNS, to_fields, as_json=json, empty="no webhooks")
    return code


@command(group, "show")
async def show_webhooks(
    task_id: TaskIdArgument,
    config_id: ConfigId = "",
    mesh: MeshOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Show the delivery of a task's webhooks. Exits 1 if there are none."""
    from trunkline.cli.directory import open_directory
    from trunkline.mesh.client.host_queries import query_task

    async with open_directory(mesh) as directory:
        found = await query_task(directory, task_id, lambda host: host.list_webhooks(task_id))
    selected = [webhook for webhook in found if config_id in ("", webhook.config.id)]
    if not selected:
        raise webhook_not_found(task_id, config_id)
    if json:
        print_json([to_fields(webhook) for webhook in selected])
    else:
        print("\n\n".join("\n".join(describe_webhook(webhook)) for webhook in selected))


@command(group, "replay")
async def replay_webhooks(
    task_id: TaskIdArgument,
    config_id: ConfigId = "",
    mesh: MeshOption = None,
    *,
    from_start: Annotated[
        bool, flag("Send all events again, also delivered ones.", "--from-start")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Send failed events again, after the last event that arrived."""
    from trunkline.cli.directory import open_directory

    async with open_directory(mesh) as directory:
        client = directory.client_for_task(task_id)
        try:
            count = await client.replay_webhook(task_id, config_id, from_start=from_start)
        except TaskNotFoundError:
            raise webhook_not_found(task_id, config_id) from None
    if json:
        print_json({"task_id": task_id, "webhooks": count})
    elif count:
        print(f"{task_id}: {count} to be sent again; see `trunkline webhooks show`")
    else:
        print(f"{task_id}: none has failed; --from-start sends all again")


@command(group, "secret")
async def print_secret(data: DataOption = None) -> None:
    """Print the secret that signs posts, for the receivers that verify them."""
    from trunkline.cli.audit import record_act
    from trunkline.observe.audit import Action
    from trunkline.processes.database import open_small_files
    from trunkline.processes.webhook_secret import load_secret

    uses = {"data_dir", "store", "webhook_secret", *KEY_SETTINGS, *AUDIT_SETTINGS}
    settings = load_command_settings({"data_dir": data}, uses=uses)
    async with open_small_files(settings) as files:
        secret = settings.webhook_secret or await load_secret(settings, files)
    if not secret:
        problem = "holds no secret; `trunkline up` makes one, or set webhook_secret"
        raise ConfigurationError(str(settings.data_dir), problem)
    record_act(settings, Action.SECRET_SHOW)
    print(secret)


def webhook_not_found(task_id: str, config_id: str) -> ConfigurationError:
    """Return the error for a task that has no such webhook; an empty id is any webhook."""
    webhook = f"webhook {config_id!r}" if config_id else "webhook"
    problem = f"has no {webhook}; see `trunkline webhooks list`"
    return ConfigurationError(f"task {task_id!r}", problem)


def describe_webhook(webhook: webhook_service_pb2.Webhook) -> Iterator[str]:
    """Yield the lines that describe a webhook and its delivery."""
    yield f"webhook   {webhook.config.id}"
    yield f"task      {webhook.config.task_id}"
    yield f"agent     {webhook.agent}"
    yield f"account   {webhook.account}"
    yield f"url       {webhook.config.url}"
    yield f"version   {webhook.version}"
    yield f"state     {state_name(webhook)}"
    yield f"sent      {f'up to event {webhook.cursor}' if webhook.cursor else 'nothing'}"
    yield f"created   {_format_time(webhook.created)}"
    if webhook.attempts:
        since = _format_time(webhook.failing_since)
        yield f"failing   since {since}, attempts: {webhook.attempts}, last: {webhook.last_error}"
    if webhook.HasField("next_attempt"):
        yield f"next try  {_format_time(webhook.next_attempt)}"


def to_fields(webhook: webhook_service_pb2.Webhook) -> dict[str, Any]:
    """Return a webhook as JSON."""
    return {
        "task_id": webhook.config.task_id,
        "webhook_id": webhook.config.id,
        "url": webhook.config.url,
        "agent": webhook.agent,
        "account": webhook.account,
        "version": webhook.version,
        "state": state_name(webhook),
        "cursor": webhook.cursor,
        "attempts": webhook.attempts,
        "last_error": webhook.last_error,
        "failing_since": _format_time(webhook.failing_since),
        "next_attempt": _format_time(webhook.next_attempt),
        "created": _format_time(webhook.created),
    }


def state_name(webhook: webhook_service_pb2.Webhook) -> str:
    """Return the name of the state of a webhook."""
    name = webhook_service_pb2.WebhookState.Name(webhook.state)
    return name.removeprefix(_PREFIX).lower()


def _format_time(stamp: timestamp_pb2.Timestamp) -> str:
    """Return a time in ISO 8601, or "" if it is not set."""
    return stamp.ToJsonString() if stamp.ToNanoseconds() else ""
