"""The one projection from a task's journal to A2A's wire: pure, event in, wire events out."""

from trunkline_bridge.projection.events import ArtifactView, TextPiece, WholeEvent, WireEvent
from trunkline_bridge.projection.ids import EventId
from trunkline_bridge.projection.links import HERE, Links
from trunkline_bridge.projection.snapshot import count_last_events, project_task, task_event
from trunkline_bridge.projection.stream import Projection

__all__ = [
    "HERE",
    "ArtifactView",
    "EventId",
    "Links",
    "Projection",
    "TextPiece",
    "WholeEvent",
    "WireEvent",
    "count_last_events",
    "project_task",
    "task_event",
]
