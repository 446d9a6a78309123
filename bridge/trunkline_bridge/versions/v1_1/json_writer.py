"""Writes v1.1's data as JSON: that of v1.0 with generations, which are strings as in ProtoJSON."""

from collections.abc import Sequence

from trunkline.a2a.v1_1 import a2a_pb2 as v1_1_pb2
from trunkline.v1 import message_pb2, task_pb2
from trunkline_bridge.projection import WireEvent
from trunkline_bridge.versions.json_values import Json
from trunkline_bridge.versions.v1_0 import json_writer as v1_json
from trunkline_bridge.versions.v1_1.messages import task_of_event


def send_response_json(result: v1_1_pb2.Task | message_pb2.Message) -> Json:
    """Convert a result of SendMessage."""
    if isinstance(result, message_pb2.Message):
        return {"message": v1_json.message_json(result)}
    return {"task": task_json(result)}


def task_json(task: v1_1_pb2.Task, *, with_artifacts: bool = False) -> Json:
    """Convert a task; `with_artifacts` writes that member even if it is empty."""
    core = task_pb2.Task.FromString(task.SerializeToString())
    result = v1_json.task_json(core, with_artifacts=with_artifacts)
    for artifact, members in zip(task.artifacts, result.get("artifacts", ()), strict=True):
        if artifact.start_generation:
            members["startGeneration"] = str(artifact.start_generation)
        if artifact.end_generation:
            members["endGeneration"] = str(artifact.end_generation)
    result["generation"] = str(task.generation)
    if task.timeline:
        result["timeline"] = [_entry(entry) for entry in task.timeline]
    return result


def event_json(event: WireEvent) -> Json:
    """Convert an event of a stream."""
    response = event.response
    if response.HasField("task"):
        return {"task": task_json(task_of_event(event))}
    result = v1_json.stream_response_json(response)
    if not response.HasField("message"):
        (update,) = result.values()
        update["generation"] = str(event.generation)
    return result


class V11EventWriter(v1_json.V1EventWriter):
    """Writes the events of a stream in the JSON of v1.1."""

    text_end = '}]},"append":true,"generation":"'
    last_text_end = '}]},"append":true,"lastChunk":true,"generation":"'
    generation_end = '"}}'

    def write_event(self, event: WireEvent) -> Sequence[Json]:
        """Return the JSON of an event that is no text delta."""
        return (event_json(event),)


def _entry(entry: v1_1_pb2.TimelineEntry) -> Json:
    generation = str(entry.generation)
    if entry.HasField("status"):
        return {"status": v1_json.status_json(entry.status), "generation": generation}
    return {"message": v1_json.message_json(entry.message), "generation": generation}
