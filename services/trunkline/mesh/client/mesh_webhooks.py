"""Lists the webhooks of all hosts of the mesh, also of hosts that are gone."""

from collections.abc import Sequence

from trunkline.errors import PeerError, TaskNotFoundError
from trunkline.mesh.client.directory import Directory
from trunkline.mesh.client.host_queries import HostResults, query_hosts, query_task
from trunkline.v1 import webhook_service_pb2

_ANY_STATE = webhook_service_pb2.WEBHOOK_STATE_UNSPECIFIED


async def list_mesh_webhooks(
    directory: Directory,
    task_id: str = "",
    state: webhook_service_pb2.WebhookState.ValueType = _ANY_STATE,
    *,
    account: str = "",
) -> HostResults[Sequence[webhook_service_pb2.Webhook]]:
    """Return the webhooks that the hosts list; see `HostClient.list_webhooks`.

    Each host lists those of its journals, and knows their current state. A host of each store reads
    those of all journals in it, also of hosts that are gone or do not answer.

    Raises:
        TrunklineError: a host refused the query.
    """
    if task_id:
        return await _list_of_task(directory, task_id, state, account)
    found = await query_hosts(
        directory, lambda host: host.list_webhooks("", state, account=account)
    )
    if not any(host.store_id for host in directory.hosts):
        return found
    stored = await query_hosts(
        directory,
        lambda host: host.list_webhooks("", state, account=account, whole_store=True),
        one_per_store=True,
    )
    known = {_key(webhook) for answer in found.answers for webhook in answer}
    others = [
        webhook for answer in stored.answers for webhook in answer if _key(webhook) not in known
    ]
    return HostResults([*found.answers, others], stored.failures)


async def _list_of_task(
    directory: Directory,
    task_id: str,
    state: webhook_service_pb2.WebhookState.ValueType,
    account: str,
) -> HostResults[Sequence[webhook_service_pb2.Webhook]]:
    """Ask the host of the task, or another host of its store."""
    try:
        found = await query_task(
            directory, task_id, lambda host: host.list_webhooks(task_id, state, account=account)
        )
        return HostResults([found])
    except TaskNotFoundError:
        return HostResults()
    except PeerError as error:
        return HostResults(failures=[error])


def _key(webhook: webhook_service_pb2.Webhook) -> tuple[str, str]:
    return webhook.config.task_id, webhook.config.id
