"""Server-sent events: ids, JSON on one line, and templates that equal full rendering."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.a2a.bridged_mesh import v1_renderer
from trunkline.a2a_wire.errors import invalid_params
from trunkline.a2a_wire.v0_3.json_writer import V03EventWriter
from trunkline.v1 import artifact_pb2
from trunkline_bridge.a2a.projection import ArtifactView, FullEvent, TextDelta
from trunkline_bridge.a2a.streams.event_renderer import EventRenderer
from trunkline_bridge.a2a.versions.jsonrpc_envelope import event_frame
from trunkline_bridge.http.sse import HEARTBEAT


def view(artifact_id: str = "artifact-1", name: str = "") -> ArtifactView:
    head = artifact_pb2.Artifact(artifact_id=artifact_id, name=name)
    return ArtifactView("jrnl0001-task", 'a "context"', head)


def parse_data(rendered: str) -> Any:
    lines = rendered.split("\n")
    assert lines[-2:] == ["", ""]
    (data,) = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return json.loads(data)


@given(st.text(), st.booleans(), st.one_of(st.none(), st.integers(), st.text()), st.integers(1, 3))
def test_the_fast_path_renders_the_same_as_the_general_one(
    text: str, is_last: bool, request_id: str | int | None, epoch: int
) -> None:
    piece = TextDelta(12, 0, view(name="näme"), text, is_last, epoch)
    renderer = v1_renderer(request_id)
    fast_result = renderer.render(piece)
    assert fast_result == renderer.render(FullEvent(12, 0, piece.response, epoch))
    assert parse_data(fast_result)["result"]["artifactUpdate"]["artifact"]["parts"] == [
        {"text": text}
    ]


@given(st.text())
def test_an_event_has_two_lines_by_any_line_splitting(text: str) -> None:
    rendered = v1_renderer(1).render(TextDelta(3, 0, view(), text, is_last=False))
    assert len(rendered.splitlines()) == 3
    assert rendered.splitlines()[2] == ""


def test_an_event_has_its_id_and_the_requests_id() -> None:
    rendered = v1_renderer("r-1").render(TextDelta(7, 0, view(), "é", is_last=True))
    assert rendered.startswith("id: 7.0\ndata: ")
    assert parse_data(rendered) == {
        "jsonrpc": "2.0",
        "id": "r-1",
        "result": {
            "artifactUpdate": {
                "taskId": "jrnl0001-task",
                "contextId": 'a "context"',
                "artifact": {"artifactId": "artifact-1", "parts": [{"text": "é"}]},
                "append": True,
                "lastChunk": True,
            }
        },
    }
    assert "é" in rendered


def test_artifacts_of_one_stream_keep_their_own_templates() -> None:
    renderer = v1_renderer(1)
    first, second = view("a"), view("b")
    pieces = [
        TextDelta(n, 0, artifact_view, "x", False)
        for n, artifact_view in enumerate((first, second, first), 1)
    ]
    ids = [
        parse_data(renderer.render(piece))["result"]["artifactUpdate"]["artifact"]["artifactId"]
        for piece in pieces
    ]
    assert ids == ["a", "b", "a"]


def test_an_error_has_the_type_of_other_events_before_v1_0() -> None:
    """For an event of another type, the SDKs of v1.0 raise a generic exception in v0.3."""
    renderer = EventRenderer(V03EventWriter(), event_frame(4, error_event=""))
    rendered = renderer.render_error(invalid_params(("x", "is wrong"))).decode()
    assert rendered.startswith("data: ")
    assert parse_data(rendered)["error"]["code"] == -32602


def test_large_writes_are_split_without_loss() -> None:
    artifact = view()
    events = [TextDelta(n, 0, artifact, "x" * 1000, False) for n in range(1, 501)]
    renderer = v1_renderer(1)
    writes = list(renderer.render_chunks(events))
    assert b"".join(writes).decode() == "".join(renderer.render(event) for event in events)
    assert all(len(body) < 70_000 for body in writes)
    assert len(writes) > 5
    assert list(renderer.render_chunks([])) == []


@pytest.mark.parametrize("line", HEARTBEAT.decode().rstrip("\n").split("\n"))
def test_a_heartbeat_is_a_comment(line: str) -> None:
    assert line.startswith(":")
