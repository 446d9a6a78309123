"""Puts agents on a mesh: their journal, their tasks, their services, their registration."""

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from trunkline.client.directory import Directory
from trunkline.journal.journal import Journal
from trunkline.server.mesh_server import MeshServer
from trunkline.settings import Settings
from trunkline.tasks.agent import Agent
from trunkline.tasks.host import TaskHost
from trunkline.tasks.settings import TaskSettings
from trunkline.v1 import registry_service_pb2


def task_settings(settings: Settings) -> TaskSettings:
    """Return the part of the settings that tasks are run by."""
    return TaskSettings(
        lease_s=settings.lease_s,
        flush_interval_s=settings.flush_interval_ms / 1000,
        cancel_grace_s=settings.cancel_grace_s,
    )


def checkpoints_of(journal_path: Path) -> Path:
    """Return where agents keep the checkpoints of a journal's tasks: whoever takes it over knows.

    Not a name that ends like a journal's.
    """
    return Path(f"{journal_path}.checkpoints")


@asynccontextmanager
async def open_host(
    agents: Sequence[Agent],
    *,
    journal_path: Path,
    directory: Directory,
    settings: Settings,
) -> AsyncIterator[TaskHost]:
    """Open the agents' journal and run their tasks; descendants are canceled over the mesh.

    Raises:
        JournalUnavailableError: the journal can't be opened, or another process has it.
    """

    async def cancel_child(task_id: str, account: str) -> None:
        client = directory.for_task(task_id)
        await client.cancel_task(task_id, account=account, reason="its parent was canceled")

    journal = Journal.open(journal_path, synchronous=settings.synchronous)
    try:
        async with TaskHost(
            journal,
            agents,
            settings=task_settings(settings),
            cancel_child=cancel_child,
            checkpoint_path=checkpoints_of(journal_path),
        ) as host:
            yield host
    finally:
        journal.close()


def describe_host(
    host: TaskHost, *, address: str, services: Sequence[str] = ()
) -> registry_service_pb2.Host:
    """Return what the registry is told of a host."""
    return registry_service_pb2.Host(
        host_id=str(uuid.uuid4()),
        address=address,
        journal_ids=[host.journal.id],
        services=services,
        agents=[
            registry_service_pb2.AgentRegistration(
                card=agent.card, direct_replies=agent.direct_replies, routable=agent.routable
            )
            for agent in host.agents.values()
        ],
    )


def serve_host(server: MeshServer, host: TaskHost) -> None:
    """Add the services that every host has."""
    server.add_message_service(host)
    server.add_task_service(host)
