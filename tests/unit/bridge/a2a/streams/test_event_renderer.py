"""Server-sent events: ids, JSON on one line, and templates that equal full rendering."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.a2a.bridged_mesh import v1_renderer
from trunkline.v1 import artifact_pb2
from trunkline_bridge.a2a.projection import ArtifactView, FullEvent, TextDelta


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


def test_large_writes_are_split_without_loss() -> None:
    artifact = view()
    events = [TextDelta(n, 0, artifact, "x" * 1000, False) for n in range(1, 501)]
    renderer = v1_renderer(1)
    writes = list(renderer.render_chunks(events))
    assert b"".join(writes).decode() == "".join(renderer.render(event) for event in events)
    assert all(len(body) < 70_000 for body in writes)
    assert len(writes) > 5
    assert list(renderer.render_chunks([])) == []
