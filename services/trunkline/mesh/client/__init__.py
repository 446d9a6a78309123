"""Typed calls to the other processes of the mesh, which raise TrunklineErrors only."""

from trunkline.core.backoff import Backoff
from trunkline.core.runtime import run_in_background
from trunkline.journal.events import parse_journal_id
from trunkline.mesh.client.artifacts import ArtifactClient
from trunkline.mesh.client.breaker import Breaker, Breakers, BreakerSettings
from trunkline.mesh.client.channels import ChannelPool, MeshChannel
from trunkline.mesh.client.directory import Directory
from trunkline.mesh.client.host import HostClient
from trunkline.mesh.client.resuming_stream import (
    ResumingStream,
    allocate_task_id,
    placement_key,
)
from trunkline.mesh.client.services import RegistryClient, ToolClient
from trunkline.mesh.client.task_stream import TaskStream

__all__ = [
    "ArtifactClient",
    "Backoff",
    "Breaker",
    "BreakerSettings",
    "Breakers",
    "ChannelPool",
    "Directory",
    "HostClient",
    "MeshChannel",
    "RegistryClient",
    "ResumingStream",
    "TaskStream",
    "ToolClient",
    "allocate_task_id",
    "parse_journal_id",
    "placement_key",
    "run_in_background",
]
