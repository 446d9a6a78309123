"""The commands for webhooks: they show the delivery, and repeat what failed."""

from enum import StrEnum
from typing import Annotated

import typer

from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import (
    DataOption,
    JsonOption,
    MeshOption,
    TaskIdArgument,
    argument,
    flag,
    load_command_settings,
    option,
)
from trunkline.cli.terminal import print_json, print_list
from trunkline.errors import ConfigurationError, TaskNotFoundError

webhooks = typer.Typer(help="Show the delivery of webhooks, and repeat what failed.")


class WebhookState(StrEnum):
    """States of webhooks. Not read from the contract, because protobuf is slow to import."""

    IDLE = "idle"
    PENDING = "pending"
    WAITING = "waiting"
    DEAD = "dead"
    DONE = "done"


ConfigId = Annotated[str, argument("WEBHOOK", "Its id. [all of the task]")]


@command(webhooks, "list")
async def list_webhooks(
    mesh: MeshOption = None,
    *,
    state: Annotated[
        WebhookState | None,
        option("STATE", "Only in this state: idle, pending, waiting, dead or done."),
    ] = None,
    json: JsonOption = False,
) -> ExitCode:
    """List the webhooks of all hosts, newest first."""
    from trunkline.cli.mesh_view import open_mesh_view, query_hosts
    from trunkline.cli.webhooks import COLUMNS, STATES, to_fields
    from trunkline.v1 import webhook_service_pb2

    wanted = STATES[state] if state else webhook_service_pb2.WEBHOOK_STATE_UNSPECIFIED
    async with open_mesh_view(mesh) as view:
        found, code = await query_hosts(view, lambda host: host.list_webhooks(state=wanted))
    found.sort(key=lambda webhook: webhook.created.ToNanoseconds(), reverse=True)
    print_list(found, COLUMNS, to_fields, as_json=json, empty="no webhooks")
    return code


@command(webhooks, "show")
async def show_webhooks(
    task_id: TaskIdArgument,
    config_id: ConfigId = "",
    mesh: MeshOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Show the delivery of a task's webhooks. Exits 1 if there are none."""
    from trunkline.cli.mesh_view import open_mesh_view
    from trunkline.cli.webhooks import describe_webhook, to_fields, webhook_not_found

    async with open_mesh_view(mesh) as view:
        found = await view.task_host_client(task_id).list_webhooks(task_id)
    selected = [webhook for webhook in found if config_id in ("", webhook.config.id)]
    if not selected:
        raise webhook_not_found(task_id, config_id)
    if json:
        print_json([to_fields(webhook) for webhook in selected])
    else:
        print("\n\n".join("\n".join(describe_webhook(webhook)) for webhook in selected))


@command(webhooks, "replay")
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
    from trunkline.cli.mesh_view import open_mesh_view
    from trunkline.cli.webhooks import webhook_not_found

    async with open_mesh_view(mesh) as view:
        client = view.task_host_client(task_id)
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


@command(webhooks, "secret")
def print_secret(data: DataOption = None) -> None:
    """Print the secret that signs posts, for the receivers that verify them."""
    from trunkline.cli.audit import USED_SETTINGS, record_act
    from trunkline.core.encryption import KEY_SETTINGS
    from trunkline.observe.audit import Action
    from trunkline.processes.webhook_secret import load_secret

    uses = {"data_dir", "webhook_secret", *KEY_SETTINGS, *USED_SETTINGS}
    settings = load_command_settings({"data_dir": data}, uses=uses)
    secret = settings.webhook_secret or load_secret(settings)
    if not secret:
        problem = "holds no secret; `trunkline up` makes one, or set webhook_secret"
        raise ConfigurationError(str(settings.data_dir), problem)
    record_act(settings, Action.SECRET_SHOW)
    print(secret)
