"""`trunkline webhooks`: lists webhooks, shows their delivery, and delivers failed events again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from google.protobuf import timestamp_pb2

from trunkline.audit import Action
from trunkline.cli.audit import USED_SETTINGS, record_act
from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import open_mesh_view, query_hosts
from trunkline.cli.options import load_command_settings
from trunkline.cli.terminal import print_json, print_table
from trunkline.encryption import KEY_SETTINGS
from trunkline.errors import ConfigurationError, TaskNotFoundError
from trunkline.v1 import webhook_service_pb2

_PREFIX: Final = "WEBHOOK_STATE_"
# The states that `--state` selects, by name.
STATES: Final = {
    name.removeprefix(_PREFIX).lower(): value
    for name, value in webhook_service_pb2.WebhookState.items()
    if value != webhook_service_pb2.WEBHOOK_STATE_UNSPECIFIED
}

# The page has the same words.
TITLES: Final = ("TASK", "WEBHOOK", "STATE", "SENT", "URL", "LAST ERROR")


async def list_webhooks(mesh: str | None, *, state: str, as_json: bool) -> ExitCode:
    """Print the webhooks of all hosts in a state, newest first; all states if it is "".

    An error of a host is printed to stderr and sets the exit code.
    """
    webhook_state = STATES[state] if state else webhook_service_pb2.WEBHOOK_STATE_UNSPECIFIED
    async with open_mesh_view(mesh) as view:
        webhooks, code = await query_hosts(
            view, lambda host: host.list_webhooks(state=webhook_state)
        )
    webhooks.sort(key=lambda webhook: webhook.created.ToNanoseconds(), reverse=True)
    if as_json:
        print_json([_as_json(webhook) for webhook in webhooks])
    else:
        rows = [
            (
                webhook.config.task_id,
                webhook.config.id,
                _state_name(webhook),
                webhook.cursor or "-",
                webhook.config.url,
                webhook.last_error,
            )
            for webhook in webhooks
        ]
        print_table(TITLES, rows, empty="no webhooks")
    return code


async def show_webhooks(
    task_id: str, config_id: str, mesh: str | None, *, as_json: bool
) -> ExitCode:
    """Print the webhooks of a task, or only the one with an id.

    Raises:
        TaskNotFoundError: no running host has the task's journal.
        ConfigurationError: there is no such webhook.
    """
    async with open_mesh_view(mesh) as view:
        webhooks = await view.task_host_client(task_id).list_webhooks(task_id)
    selected = [webhook for webhook in webhooks if config_id in ("", webhook.config.id)]
    if not selected:
        raise _webhook_not_found(task_id, config_id)
    if as_json:
        print_json([_as_json(webhook) for webhook in selected])
    else:
        print("\n\n".join("\n".join(_describe(webhook)) for webhook in selected))
    return ExitCode.OK


async def replay_webhooks(
    task_id: str, config_id: str, mesh: str | None, *, from_start: bool, as_json: bool
) -> ExitCode:
    """Resume the failed webhooks of a task, or all if `from_start`; print their number.

    Raises:
        TaskNotFoundError: no running host has the task's journal.
        ConfigurationError: there is no such webhook.
    """
    async with open_mesh_view(mesh) as view:
        client = view.task_host_client(task_id)
        try:
            count = await client.replay_webhook(task_id, config_id, from_start=from_start)
        except TaskNotFoundError:
            raise _webhook_not_found(task_id, config_id) from None
    if as_json:
        print_json({"task_id": task_id, "webhooks": count})
    elif count:
        print(f"{task_id}: {count} to be sent again; see `trunkline webhooks show`")
    else:
        print(f"{task_id}: none has failed; --from-start sends all again")
    return ExitCode.OK


def print_secret(data: Path | None) -> ExitCode:
    """Print the secret that signs webhooks: from the settings, else from the data directory.

    Raises:
        ConfigurationError: there is no secret yet.
    """
    from trunkline.mesh.webhook_secret import load_secret

    uses = {"data_dir", "webhook_secret", *KEY_SETTINGS, *USED_SETTINGS}
    settings = load_command_settings({"data_dir": data}, uses=uses)
    secret = settings.webhook_secret or load_secret(settings)
    if not secret:
        problem = "holds no secret; `trunkline up` makes one, or set webhook_secret"
        raise ConfigurationError(str(settings.data_dir), problem)
    record_act(settings, Action.SECRET_SHOW)
    print(secret)
    return ExitCode.OK


def _webhook_not_found(task_id: str, config_id: str) -> ConfigurationError:
    webhook = f"webhook {config_id!r}" if config_id else "webhook"
    problem = f"has no {webhook}; see `trunkline webhooks list`"
    return ConfigurationError(f"task {task_id!r}", problem)


def _describe(webhook: webhook_service_pb2.Webhook) -> Iterator[str]:
    yield f"webhook   {webhook.config.id}"
    yield f"task      {webhook.config.task_id}"
    yield f"agent     {webhook.agent}"
    yield f"account   {webhook.account}"
    yield f"url       {webhook.config.url}"
    yield f"version   {webhook.version}"
    yield f"state     {_state_name(webhook)}"
    yield f"sent      {f'up to event {webhook.cursor}' if webhook.cursor else 'nothing'}"
    yield f"created   {_format_time(webhook.created)}"
    if webhook.attempts:
        since = _format_time(webhook.failing_since)
        yield f"failing   since {since}, attempts: {webhook.attempts}, last: {webhook.last_error}"
    if webhook.HasField("next_attempt"):
        yield f"next try  {_format_time(webhook.next_attempt)}"


def _as_json(webhook: webhook_service_pb2.Webhook) -> dict[str, Any]:
    return {
        "task_id": webhook.config.task_id,
        "webhook_id": webhook.config.id,
        "url": webhook.config.url,
        "agent": webhook.agent,
        "account": webhook.account,
        "version": webhook.version,
        "state": _state_name(webhook),
        "cursor": webhook.cursor,
        "attempts": webhook.attempts,
        "last_error": webhook.last_error,
        "failing_since": _format_time(webhook.failing_since),
        "next_attempt": _format_time(webhook.next_attempt),
        "created": _format_time(webhook.created),
    }


def _state_name(webhook: webhook_service_pb2.Webhook) -> str:
    name = webhook_service_pb2.WebhookState.Name(webhook.state)
    return name.removeprefix(_PREFIX).lower()


def _format_time(stamp: timestamp_pb2.Timestamp) -> str:
    """Return a time in ISO 8601, or "" if it is not set."""
    return stamp.ToJsonString() if stamp.ToNanoseconds() else ""
