"""A task's metadata as its events make it, for the fold and for the rows of lists alike."""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import struct_pb2
from google.protobuf.json_format import MessageToDict

from trunkline.v1 import event_pb2

ROUTE_KEY: Final = "trunkline/route"


def merge(metadata: struct_pb2.Struct, event: event_pb2.Event) -> None:
    """Bring what an event says into a task's metadata.

    A status's metadata replaces keys of the same name. The first decision of the router stands
    under ROUTE_KEY; from the second on, all of them stand there under `steps` as well.
    """
    if event.HasField("status"):
        for key, value in event.status.metadata.fields.items():
            metadata.fields[key].CopyFrom(value)
    elif event.HasField("route_decided"):
        _add_route(metadata, event.route_decided)


def _add_route(metadata: struct_pb2.Struct, route: event_pb2.RouteDecided) -> None:
    decision = _as_json(route)
    if ROUTE_KEY not in metadata.fields:
        metadata.update({ROUTE_KEY: decision})
        return
    first = MessageToDict(metadata.fields[ROUTE_KEY])
    steps = first.pop("steps", None) or [dict(first)]
    metadata.update({ROUTE_KEY: {**first, "steps": [*steps, decision]}})


def _as_json(route: event_pb2.RouteDecided) -> Mapping[str, Any]:
    return {
        "agent": route.agent,
        "confidence": route.confidence,
        "reasons": list(route.reasons),
        "scores": [
            {
                "agent": score.agent,
                "score": score.score,
                "confidence": score.confidence,
                "reasons": list(score.reasons),
            }
            for score in route.scores
        ],
    }
