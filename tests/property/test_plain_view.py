"""The plain view of any journal: equal for any batches, resumed at any event, and when stored."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from harness.journal.strategies import Entries, batches, fold, journals
from trunkline_bridge.a2a.projection import View, WireEvent, open_projection, project_task

Wire = list[tuple[str, bytes]]


def project(entries: Entries, cuts: set[int], *, after: int = 0) -> list[WireEvent]:
    snapshot = fold(entries, upto=after) if after else None
    projection = open_projection(snapshot, view=View.PLAIN)
    return [
        event for batch in batches(entries, cuts, after=after) for event in projection.apply(batch)
    ]


def wire(events: Sequence[WireEvent]) -> Wire:
    return [(event.id, event.response.SerializeToString(deterministic=True)) for event in events]


def folded_texts(events: Sequence[WireEvent]) -> dict[str, str]:
    """Return the text of each artifact, folded from events by the rules of A2A."""
    texts: dict[str, str] = {}
    for event in events:
        if event.response.HasField("artifact_update"):
            update = event.response.artifact_update
            name = update.artifact.artifact_id
            before = texts[name] if update.append else ""
            texts[name] = before + "".join(part.text for part in update.artifact.parts)
    return texts


@given(journals(), st.data())
def test_the_plain_view_depends_only_on_the_events(entries: Entries, data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(1, len(entries))))
    upto = data.draw(st.integers(1, len(entries)))
    whole = project(entries, set(range(len(entries))))

    assert wire(project(entries, cuts)) == wire(whole)
    rest = [event for event in whole if event.sequence > upto]
    assert wire(project(entries, cuts, after=upto)) == wire(rest)

    stored = project_task(fold(entries, upto=upto), view=View.PLAIN)
    texts = {
        artifact.artifact_id: "".join(part.text for part in artifact.parts)
        for artifact in stored.artifacts
    }
    seen = folded_texts([event for event in whole if event.sequence <= upto])
    assert {name: text for name, text in seen.items() if text} == {
        name: text for name, text in texts.items() if text
    }
