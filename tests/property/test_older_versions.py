"""Any journal is a legal stream in v0.3 and v0.1, and shows the task."""

import json
from collections.abc import Sequence, Set
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from harness.examples import share
from harness.journal.strategies import Entries, batches, fold, journals
from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire import json_values
from trunkline.a2a_wire.v0_1 import json_reader as v0_1_input
from trunkline.a2a_wire.v0_1 import json_writer as v0_1_json
from trunkline.a2a_wire.v0_1.json_writer import V01EventWriter
from trunkline.a2a_wire.v0_3 import json_reader as v0_3_input
from trunkline.a2a_wire.v0_3 import json_writer as v0_3_json
from trunkline.a2a_wire.v0_3.json_writer import V03EventWriter
from trunkline.a2a_wire.wire_events import V0_1_TURN_END
from trunkline.core.json_values import parse_dict, update_struct
from trunkline.core.task_states import TURN_END
from trunkline.v1 import artifact_pb2, message_pb2, part_pb2, snapshot_pb2, task_pb2
from trunkline_bridge.a2a.operations import request_parser as params
from trunkline_bridge.a2a.projection import (
    ArtifactView,
    FullEvent,
    TaskProjection,
    TextDelta,
    WireEvent,
    project_task,
)
from trunkline_bridge.a2a.streams.event_renderer import EventRenderer, EventWriter
from trunkline_bridge.a2a.streams.task_streams import EndWatch, StreamEnd
from trunkline_bridge.a2a.versions.jsonrpc_envelope import event_frame

Json: TypeAlias = dict[str, Any]

CLIENT_ID = "chosen"
V0_1_STATES = {"submitted", "working", "input-required", "completed", "canceled", "failed"}
V0_3_STATES = {*V0_1_STATES, "rejected", "auth-required"}
Ends: TypeAlias = Set[task_pb2.TaskState.ValueType]


def project_entries(entries: Entries) -> list[WireEvent]:
    projection = TaskProjection()
    return [event for batch in batches(entries, set()) for event in projection.apply(batch)]


def streams(events: Sequence[WireEvent], ends: Ends) -> list[list[WireEvent]]:
    """Return the streams of a client that follows a task turn by turn."""
    result = []
    while events:
        turn_events = take_one_turn(events, ends)
        result.append(turn_events)
        events = events[len(turn_events) :]
    return result


def take_one_turn(events: Sequence[WireEvent], ends: Ends) -> list[WireEvent]:
    """Read events in small pieces until a stream of an older version ends."""
    watch = EndWatch(StreamEnd(ends, repeats_status=True))
    result: list[WireEvent] = []
    for begin in range(0, len(events), 7):
        result += watch.cut(events[begin : begin + 7])
        if watch.is_over:
            return result
    return [*result, watch.final_status] if watch.final_status is not None else result


def write_events(event_writer: EventWriter, events: Sequence[WireEvent]) -> list[Json]:
    return [item for event in events for item in event_writer.write_event(event)]


def snapshot_event(snapshot: snapshot_pb2.TaskSnapshot) -> FullEvent:
    response = a2a_pb2.StreamResponse(task=project_task(snapshot))
    return FullEvent(snapshot.sequence, 0, response)


def check_ends(objects: Sequence[Json], *, is_over: bool) -> None:
    """Check that one object is final, and that it is the last; none if the turn continues."""
    finals = [index for index, item in enumerate(objects) if item.get("final")]
    assert finals == ([len(objects) - 1] if is_over else [])


def is_over(events: Sequence[WireEvent], ends: Ends) -> bool:
    return events[-1].response.status_update.status.state in ends


def join_texts(parts: Sequence[Json], tag: str) -> list[Json]:
    """Join adjacent texts of parts, which makes equal content comparable."""
    result: list[Json] = []
    for part in parts:
        check_part(part, tag)
        if part[tag] == "text" and result and result[-1][tag] == "text":
            result[-1] = {**result[-1], "text": result[-1]["text"] + part["text"]}
        elif not (part[tag] == "text" and not part["text"]):
            result.append(part)
    return result


def check_part(part: Json, tag: str) -> None:
    content = {"text": "text", "file": "file", "data": "data"}[part[tag]]
    assert part.keys() - {"metadata"} == {tag, content}
    if part[tag] == "file":
        assert len(part["file"].keys() & {"bytes", "uri"}) == 1


class V03Client:
    """A client that applies events as v0.3 specifies."""

    def __init__(self) -> None:
        self.status: Json = {}
        self.artifacts: dict[str, Json] = {}

    def apply(self, item: Json) -> None:
        if item["kind"] == "task":
            self.status = item["status"]
            self.artifacts = {
                artifact["artifactId"]: artifact for artifact in item.get("artifacts", [])
            }
        elif item["kind"] == "status-update":
            self.status = item["status"]
            assert type(item["final"]) is bool
        else:
            assert item["kind"] == "artifact-update"
            artifact = item["artifact"]
            artifact_id = artifact["artifactId"]
            if item["append"]:
                artifact_ = self.artifacts[artifact_id]
                artifact = {**artifact_, "parts": artifact_["parts"] + artifact["parts"]}
            assert artifact["parts"]
            self.artifacts[artifact_id] = artifact
        assert self.status["state"] in V0_3_STATES

    def comparable_artifacts(self) -> dict[str, Json]:
        return {
            name: {**artifact, "parts": join_texts(artifact["parts"], "kind")}
            for name, artifact in self.artifacts.items()
        }


class V01Client:
    """A client that applies events as v0.1 specifies: it distinguishes them by their content."""

    def __init__(self) -> None:
        self.status: Json = {}
        self.artifacts: dict[int, Json] = {}

    def apply(self, item: Json) -> None:
        assert item["id"] == CLIENT_ID
        assert ("status" in item) != ("artifact" in item)
        if "status" in item:
            self.status = item["status"]
            assert self.status["state"] in V0_1_STATES
            return
        artifact = dict(item["artifact"])
        index = artifact["index"]
        if artifact.pop("append", False):
            artifact_ = self.artifacts[index]
            artifact = {**artifact_, "parts": artifact_["parts"] + artifact["parts"]}
        artifact.pop("lastChunk", None)
        self.artifacts[index] = artifact

    def comparable_artifacts(self) -> dict[int, Json]:
        return {
            index: {**artifact, "parts": join_texts(artifact["parts"], "type")}
            for index, artifact in self.artifacts.items()
        }


@given(journals())
def test_v0_3_streams_contain_each_turn_and_its_end(entries: Entries) -> None:
    client = V03Client()
    for events in streams(project_entries(entries), TURN_END):
        objects = write_events(V03EventWriter(), events)
        check_ends(objects, is_over=is_over(events, TURN_END))
        for item in objects:
            client.apply(item)
    task = v0_3_json.task_json(project_task(fold(entries, upto=len(entries))))
    expected = V03Client()
    expected.apply(task)
    assert client.comparable_artifacts() == expected.comparable_artifacts()
    assert client.status["state"] == task["status"]["state"]


@given(journals())
def test_v0_1_streams_contain_each_turn_and_its_end(entries: Entries) -> None:
    client = V01Client()
    event_writer = V01EventWriter(CLIENT_ID)
    for events in streams(project_entries(entries), V0_1_TURN_END):
        objects = write_events(event_writer, events)
        check_ends(objects, is_over=is_over(events, V0_1_TURN_END))
        for item in objects:
            client.apply(item)
    snapshot = fold(entries, upto=len(entries))
    task = v0_1_json.task_json(project_task(snapshot), client_id=CLIENT_ID)
    expected = V01Client()
    for artifact in task.get("artifacts", ()):
        expected.apply({"id": CLIENT_ID, "artifact": artifact})
    assert client.comparable_artifacts() == expected.comparable_artifacts()
    assert client.status["state"] == task["status"]["state"]


@given(journals(), st.data())
def test_a_resumed_v0_1_stream_numbers_artifacts_like_the_original(
    entries: Entries, data: st.DataObject
) -> None:
    all_events = project_entries(entries)
    event_writer = V01EventWriter(CLIENT_ID)
    uninterrupted = [write_events(event_writer, [event]) for event in all_events]
    turn_events = data.draw(st.integers(0, len(all_events)))
    # The task at that time, or when the client resumes the stream.
    resumed_at = data.draw(
        st.integers(all_events[turn_events - 1].sequence if turn_events else 1, len(entries))
    )
    resumed = V01EventWriter(CLIENT_ID)
    resumed.assign_indexes(project_task(fold(entries, upto=resumed_at)))
    assert [write_events(resumed, [event]) for event in all_events[turn_events:]] == uninterrupted[
        turn_events:
    ]


@given(journals(), st.data())
def test_a_task_whose_turn_ended_is_followed_by_its_status(
    entries: Entries, data: st.DataObject
) -> None:
    snapshot = fold(entries, upto=data.draw(st.integers(1, len(entries))))
    shapes: list[tuple[EventWriter, Ends]] = [
        (V03EventWriter(), TURN_END),
        (V01EventWriter(CLIENT_ID), V0_1_TURN_END),
    ]
    for event_writer, ends in shapes:
        events = take_one_turn([snapshot_event(snapshot)], ends)
        has_ended = snapshot.task.status.state in ends
        assert len(events) == (2 if has_ended else 1)
        check_ends(write_events(event_writer, events), is_over=has_ended)
        if has_ended:
            last = write_events(V03EventWriter(), events)[-1]
            assert last["status"] == v0_3_json.task_json(snapshot.task)["status"]


@given(st.text(), st.booleans(), st.text(max_size=3))
def test_a_template_renders_the_same_as_the_general_path(
    text: str, is_last: bool, name: str
) -> None:
    check_template(V03EventWriter(), text, is_last=is_last, name=name)
    check_template(V01EventWriter(CLIENT_ID), text, is_last=is_last, name=name)


def check_template(event_writer: EventWriter, text: str, *, is_last: bool, name: str) -> None:
    view = ArtifactView("jrnl0001-task", 'a "context"', artifact_pb2.Artifact(name=name))
    piece = TextDelta(12, 0, view, text, is_last)
    renderer = EventRenderer(event_writer, event_frame("r-1"))
    assert renderer.render(piece) == renderer.render(FullEvent(12, 0, piece.response))


plain = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=5))
anything: st.SearchStrategy[Any] = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
structs = st.one_of(st.none(), st.dictionaries(st.text(max_size=3), anything, min_size=1))
names = st.text(alphabet="ab/é", max_size=4)


@st.composite
def parts(draw: st.DrawFn) -> part_pb2.Part:
    """Generate parts that v0.3 can represent."""
    kind = draw(st.sampled_from(["text", "raw", "url", "data"]))
    part = part_pb2.Part()
    if kind == "text":
        part.text = draw(st.text(max_size=5))
    elif kind == "data":
        parse_dict(draw(anything), part.data)
    else:
        part.filename, part.media_type = draw(names), draw(names)
        if kind == "raw":
            part.raw = draw(st.binary(max_size=5))
        else:
            part.url = draw(st.text(min_size=1, max_size=5))
    metadata = draw(structs)
    if metadata is not None:
        update_struct(part.metadata, metadata)
    return part


@st.composite
def messages(draw: st.DrawFn) -> message_pb2.Message:
    message = message_pb2.Message(
        message_id=draw(st.text(min_size=1, max_size=4)),
        context_id=draw(st.text(max_size=4)),
        task_id=draw(st.text(max_size=4)),
        role=message_pb2.ROLE_USER,
        parts=draw(st.lists(parts(), min_size=1, max_size=4)),
        extensions=draw(st.lists(names, max_size=2)),
        reference_task_ids=draw(st.lists(names, max_size=2)),
    )
    metadata = draw(structs)
    if metadata is not None:
        update_struct(message.metadata, metadata)
    return message


@share(0.5)
@given(messages())
def test_a_message_round_trips_through_v0_3(message: message_pb2.Message) -> None:
    written = json.loads(json_values.dumps(v0_3_json.message_json(message)))
    assert (
        params.parse_send(v0_3_input.convert_send_params({"message": written})).message == message
    )


@share(0.5)
@given(messages())
def test_v0_1_holds_everything_of_a_message_but_ids(message: message_pb2.Message) -> None:
    task = v0_1_json.reply_task_json(message, client_id=CLIENT_ID)
    written = json.loads(json_values.dumps(task))["status"]["message"]
    send_params = {"id": CLIENT_ID, "message": {**written, "role": "user"}}
    parsed = params.parse_send(v0_1_input.convert_send_params(send_params).params).message
    assert list(parsed.parts) == list(message.parts)
    assert parsed.metadata == message.metadata
    assert parsed.message_id
