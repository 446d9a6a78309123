"""Adjacent text deltas are joined into one notification."""

from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import artifact_pb2
from trunkline_bridge.a2a.projection import (
    ArtifactView,
    FullEvent,
    TextDelta,
    WireEvent,
)
from trunkline_bridge.a2a.webhooks.notifications import join_text

FIRST = ArtifactView("t", "c", artifact_pb2.Artifact(artifact_id="first"))
SECOND = ArtifactView("t", "c", artifact_pb2.Artifact(artifact_id="second"))


def piece(
    sequence: int, text: str, artifact: ArtifactView = FIRST, *, is_last: bool = False
) -> TextDelta:
    return TextDelta(sequence, 0, artifact, text, is_last)


def other(sequence: int) -> FullEvent:
    return FullEvent(sequence, 0, a2a_pb2.StreamResponse())


def join_and_list(*events: WireEvent) -> list[tuple[str, str]]:
    return [
        (event.id, event.text if isinstance(event, TextDelta) else "")
        for event in join_text(events)
    ]


def test_pieces_are_not_joined_across_another_event() -> None:
    assert join_and_list(piece(1, "a"), other(2), piece(3, "b"), piece(4, "c")) == [
        ("1.0", "a"),
        ("2.0", ""),
        ("4.0", "bc"),
    ]


def test_artifacts_are_not_mixed() -> None:
    assert join_and_list(
        piece(1, "a"), piece(2, "b", SECOND), piece(3, "c", SECOND), piece(4, "d")
    ) == [
        ("1.0", "a"),
        ("3.0", "bc"),
        ("4.0", "d"),
    ]


def test_a_joined_last_piece_closes_the_artifact() -> None:
    (event,) = join_text([piece(1, "a"), piece(2, "b", is_last=True)])
    assert isinstance(event, TextDelta)
    assert (event.text, event.is_last) == ("ab", True)
    assert event.response.artifact_update.last_chunk


def test_a_joined_text_is_bounded() -> None:
    events = [piece(number, "x" * 10_000) for number in range(1, 21)]
    joined = list(join_text(events))
    assert [len(event.text) for event in joined if isinstance(event, TextDelta)] == [
        70_000,
        70_000,
        60_000,
    ]
