"""The projection of a task's journal to A2A wire events: pure functions, no I/O."""

from trunkline.a2a_wire.roles import ROLE_KEY, ArtifactRole, set_task_outcome
from trunkline.a2a_wire.wire_events import (
    ArtifactView,
    EventId,
    FullEvent,
    TextDelta,
    WireEvent,
)
from trunkline_bridge.a2a.projection.links import RELATIVE_LINKS, FileLinks
from trunkline_bridge.a2a.projection.plain_answer import View
from trunkline_bridge.a2a.projection.plain_view import Projection, open_projection
from trunkline_bridge.a2a.projection.snapshot import (
    count_final_events,
    project_task,
    snapshot_event,
)
from trunkline_bridge.a2a.projection.task_projection import TaskProjection

__all__ = [
    "RELATIVE_LINKS",
    "ROLE_KEY",
    "ArtifactRole",
    "ArtifactView",
    "EventId",
    "FileLinks",
    "FullEvent",
    "Projection",
    "TaskProjection",
    "TextDelta",
    "View",
    "WireEvent",
    "count_final_events",
    "open_projection",
    "project_task",
    "set_task_outcome",
    "snapshot_event",
]
