"""Typed calls to the other processes of the mesh, which raise TrunklineErrors only."""

from trunkline.client.artifacts import ArtifactClient
from trunkline.client.backoff import Backoff
from trunkline.client.breaker import Breaker, Breakers, BreakerSettings
from trunkline.client.channels import ChannelPool, MeshChannel
from trunkline.client.directory import Directory
from trunkline.client.host import HostClient
from trunkline.client.resuming_stream import ResumingStream, allocate_task_id
from trunkline.client.services import RegistryClient, ToolClient, TraceClient
from trunkline.client.task_stream import TaskStream
from trunkline.journal.events import parse_journal_id
from trunkline.runtime import run_in_background

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
    "TraceClient",
    "allocate_task_id",
    "parse_journal_id",
    "run_in_background",
]
