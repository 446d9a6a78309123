"""Calls to the other parts of the mesh, typed, with our own errors."""

from trunkline.client.artifacts import ArtifactClient
from trunkline.client.background import running
from trunkline.client.backoff import Backoff
from trunkline.client.breaker import Breaker, Breakers, BreakerSettings
from trunkline.client.channels import Channels, MeshChannel
from trunkline.client.directory import Directory
from trunkline.client.hosts import HostClient
from trunkline.client.registry import RegistryClient
from trunkline.client.stream import TaskStream
from trunkline.client.tools import ToolClient
from trunkline.client.traces import TraceClient

__all__ = [
    "ArtifactClient",
    "Backoff",
    "Breaker",
    "BreakerSettings",
    "Breakers",
    "Channels",
    "Directory",
    "HostClient",
    "MeshChannel",
    "RegistryClient",
    "TaskStream",
    "ToolClient",
    "TraceClient",
    "running",
]
