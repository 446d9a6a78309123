"""Watches the webhooks of the tasks on all hosts of the mesh."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TypeAlias

from trunkline.client.directory import Directory
from trunkline.client.host import HostClient
from trunkline.client.mesh_watch import HostChanges, MeshWatch, open_mesh_watch
from trunkline.v1 import webhook_service_pb2

Webhook: TypeAlias = webhook_service_pb2.Webhook


def watch_mesh_webhooks(
    directory: Directory, account: str = ""
) -> AbstractAsyncContextManager[MeshWatch[Webhook]]:
    """Watch the webhooks of an account's tasks, or of all, on all hosts in a block.

    What is listed inside the block is outdated only by what the watch returns. A webhook that was
    deleted has no state.
    """

    async def watch_host(client: HostClient) -> AsyncGenerator[HostChanges[Webhook], None]:
        async with aclosing(client.watch_webhooks(account=account)) as responses:
            async for response in responses:
                items = [
                    ((each.config.task_id, each.config.id), each) for each in response.webhooks
                ]
                yield HostChanges(items, response.is_incomplete)

    return open_mesh_watch(directory, watch_host)
