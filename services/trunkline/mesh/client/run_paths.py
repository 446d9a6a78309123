"""The path of a workflow's run: what its snapshot and the events of its journal say."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from google.protobuf import timestamp_pb2

from trunkline.v1 import event_pb2, snapshot_pb2

_WAITING: Final = "waiting"


@dataclass(slots=True)
class VisitedNode:
    """A node that a run executed or executes now. It has no `end_time` while it runs."""

    node: str
    start_time: timestamp_pb2.Timestamp
    end_time: timestamp_pb2.Timestamp | None = None
    label: str = ""
    """The edge that the node chose, or `waiting` if the node waits for an answer."""
    is_error: bool = False
    summary: str = ""


def find_version(snapshot: snapshot_pb2.TaskSnapshot) -> int | None:
    """Return the version of a run's file, or None if the run has not begun or has no file."""
    for plan in snapshot.plans:
        name, _, number = plan.plan_id.rpartition("@")
        if name == snapshot.agent and number.isdecimal():
            return int(number)
    return None


def find_path(
    events: Iterable[tuple[event_pb2.BatchHeader, event_pb2.Event]],
) -> list[VisitedNode]:
    """Return the nodes that a run executed, in the order in which they began."""
    visits: list[VisitedNode] = []
    # Visits that have not ended, by node. A node that waited, or whose host died, begins again.
    current: dict[str, VisitedNode] = {}
    for header, event in events:
        if header.HasField("origin"):
            # An event of another agent, which this agent forwards.
            continue
        if event.HasField("step_started"):
            node = event.step_started.step_id
            if node not in current:
                current[node] = VisitedNode(node, header.time)
                visits.append(current[node])
        elif event.HasField("step_finished"):
            _finish(current, event.step_finished, header.time)
    return visits


def list_visited(path: Iterable[VisitedNode]) -> list[str]:
    """Return the nodes that have ended, in the order in which they began."""
    return [visit.node for visit in path if visit.end_time is not None]


def find_failed(path: Iterable[VisitedNode]) -> str:
    """Return the last node that failed, or an empty text if none failed."""
    return next((visit.node for visit in reversed([*path]) if visit.is_error), "")


def _finish(
    current: dict[str, VisitedNode],
    finished: event_pb2.StepFinished,
    time: timestamp_pb2.Timestamp,
) -> None:
    visit = current.get(finished.step_id)
    if visit is None:
        return
    visit.label, visit.summary = finished.label, finished.summary
    visit.is_error = finished.is_error
    if finished.label != _WAITING:
        visit.end_time = time
        del current[finished.step_id]
