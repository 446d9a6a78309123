"""Calls to the other parts of the mesh, typed, with our own errors."""

from trunkline.client.artifacts import ArtifactClient
from trunkline.client.backoff import Backoff
from trunkline.client.breaker import Breaker, Breakers, BreakerSettings
from trunkline.client.channels import ChannelPool, MeshChannel
from trunkline.client.directory import Directory
from trunkline.client.host import HostClient
from trunkline.client.services import RegistryClient, ToolClient, TraceClient
from trunkline.client.task_stream import TaskStream
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
    "TaskStream",
    "ToolClient",
    "TraceClient",
    "run_in_background",
]
