"""The plain view: statuses and one answer, equal in streams, resumed streams and stored tasks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trunkline.core.json_values import parse_dict, read_text
from trunkline.journal.events import event_count
from trunkline.journal.fold import Fold
from trunkline.v1 import event_pb2, task_pb2
from trunkline_bridge.a2a.projection.plain_answer import plain_artifacts
from trunkline_bridge.a2a.projection.plain_view import PlainProjection

VECTORS = sorted((Path(__file__).parents[4] / "vectors" / "projection").glob("*.json"))


def split(batch: event_pb2.EventBatch) -> list[event_pb2.EventBatch]:
    """Return a batch for each sequence: a run of texts is several."""
    batches = []
    sequence = batch.header.first_sequence
    for event in batch.events:
        texts = list(event.delta.texts or event.plan.texts)
        for number in range(max(1, len(texts))):
            single = event_pb2.EventBatch(header=batch.header, events=[event])
            single.header.first_sequence, single.header.count = sequence, 1
            content = single.events[0].delta if texts and event.HasField("delta") else None
            if content is not None:
                content.texts[:] = [texts[number]]
                content.last = event.delta.last and number == len(texts) - 1
                if number:
                    content.ClearField("start")
            elif texts:
                single.events[0].plan.texts[:] = [texts[number]]
            if single.header.HasField("origin"):
                single.header.origin.first_sequence += sequence - batch.header.first_sequence
            batches.append(single)
            sequence += 1
    return batches


def load(path: Path) -> list[event_pb2.EventBatch]:
    vector = json.loads(path.read_text(encoding="utf-8"))
    return [parse_dict(batch, event_pb2.EventBatch()) for batch in vector["batches"]]


class Client:
    """Folds wire events by the rules of A2A."""

    def __init__(self) -> None:
        self.artifacts: dict[str, list[Any]] = {}
        self.closed: set[str] = set()

    def apply(self, event: Any) -> None:
        if not event.response.HasField("artifact_update"):
            return
        update = event.response.artifact_update
        artifact_id = update.artifact.artifact_id
        assert artifact_id not in self.closed
        if not update.append:
            assert read_text(update.artifact.metadata, "trunkline/role") == "answer"
            self.artifacts[artifact_id] = []
        self.artifacts[artifact_id] += update.artifact.parts
        if update.last_chunk:
            self.closed.add(artifact_id)

    def content(self) -> dict[str, list[Any]]:
        return {name: joined(parts) for name, parts in self.artifacts.items()}


def joined(parts: Any) -> list[Any]:
    items: list[Any] = []
    for part in parts:
        if part.HasField("text") and items and isinstance(items[-1], str):
            items[-1] += part.text
        elif part.HasField("text"):
            items += [part.text] if part.text else []
        else:
            items.append(part)
    return items


def wire(events: Any) -> list[tuple[str, bytes]]:
    return [(event.id, event.response.SerializeToString(deterministic=True)) for event in events]


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_streams_resumed_streams_and_stored_tasks_agree_at_each_event(path: Path) -> None:
    batches = load(path)
    whole = PlainProjection()
    expected = [item for batch in batches for item in wire(whole.apply(batch))]
    fold, projection, client = Fold(batches[0].header.task_id), PlainProjection(), Client()
    seen = []
    for batch in (single for run in batches for single in split(run)):
        resumed = PlainProjection(fold.snapshot()) if fold.sequence else PlainProjection()
        fold.apply(batch)
        events = projection.apply(batch)
        assert wire(resumed.apply(batch)) == wire(events)
        seen += wire(events)
        for event in events:
            client.apply(event)
        stored = {item.artifact_id: joined(item.parts) for item in plain_artifacts(fold.snapshot())}
        assert client.content() == stored
    assert seen == expected


def supervisor_of_parallel_steps(
    end: task_pb2.TaskState.ValueType,
) -> Iterator[event_pb2.EventBatch]:
    """Yield the journal of a supervisor whose agents write, and then end without an answer."""
    steps = [event_pb2.PlanStep(step_id=f"step-{n}", text="write", agent="a") for n in (1, 2)]
    events = [
        event_pb2.Event(created=event_pb2.TaskCreated(context_id="c", agent="supervisor")),
        event_pb2.Event(plan=event_pb2.PlanChanged(plan_id="plan-1", revision=1, steps=steps)),
    ]
    events += [
        event_pb2.Event(child_started=event_pb2.ChildStarted(task_id=f"c{n}", step_id=f"step-{n}"))
        for n in (1, 2)
    ]
    # The second agent is the first one to write.
    for n in (2, 1):
        delta = event_pb2.ArtifactDelta(artifact_id=f"c{n}", texts=[f"{n} one ", f"{n} two"])
        delta.start.SetInParent()
        events.append(event_pb2.Event(delta=delta))
    events += [
        event_pb2.Event(child_finished=event_pb2.ChildFinished(task_id=f"c{n}", state=end))
        for n in (1, 2)
    ]
    status = task_pb2.TaskStatus(state=end)
    events.append(event_pb2.Event(status=event_pb2.StatusChanged(status=status)))
    sequence = 1
    for event in events:
        count = event_count(event)
        header = event_pb2.BatchHeader(task_id="t", first_sequence=sequence, count=count)
        if event.HasField("delta"):
            child = event.delta.artifact_id
            header.origin.CopyFrom(event_pb2.Origin(agent="a", task_id=child, first_sequence=3))
        yield event_pb2.EventBatch(header=header, events=[event])
        sequence += count


@pytest.mark.parametrize(
    ("end", "rest"),
    [
        # What failed is no answer: the status has the reason.
        (task_pb2.TASK_STATE_FAILED, [""]),
        (task_pb2.TASK_STATE_REJECTED, [""]),
        (task_pb2.TASK_STATE_CANCELED, ["+\n2 one 2 two"]),
        (task_pb2.TASK_STATE_INPUT_REQUIRED, ["+\n2 one 2 two"]),
    ],
)
def test_text_of_steps_without_an_answer_is_sent_once(
    end: task_pb2.TaskState.ValueType, rest: list[str]
) -> None:
    projection, fold = PlainProjection(), Fold("t")
    written = []
    for batch in supervisor_of_parallel_steps(end):
        fold.apply(batch)
        for event in projection.apply(batch):
            if event.response.HasField("artifact_update"):
                update = event.response.artifact_update
                text = "".join(part.text for part in update.artifact.parts)
                written.append(("+" if update.append else "") + text)

    assert written == ["1 one ", "+1 two", *rest]
    assert bool(plain_artifacts(fold.snapshot())) == (rest != [""])
