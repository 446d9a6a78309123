"""Short builders of events, batches and rows for journals."""

from collections.abc import Iterable, Sequence

from trunkline.journal.events import build_draft, seal
from trunkline.journal.fold import Fold
from trunkline.journal.store import CommitGroup, SealedBatch, TaskRow
from trunkline.v1 import event_pb2, message_pb2, part_pb2, snapshot_pb2, task_pb2

TASK = "journal1-aaaaaaaaaaaaaaaa"
TIME_NS = 1_700_000_000_000_000_000


def delta_event(
    artifact_id: str,
    texts: Iterable[str],
    *,
    start: event_pb2.ArtifactStart | None = None,
    last: bool = False,
) -> event_pb2.Event:
    """Return the event that appends texts to an artifact. `last` closes it after the last text."""
    delta = event_pb2.ArtifactDelta(artifact_id=artifact_id, start=start, texts=texts, last=last)
    return event_pb2.Event(delta=delta)


def fold_batches(
    task_id: str, batches: Iterable[bytes], snapshot: snapshot_pb2.TaskSnapshot | None = None
) -> snapshot_pb2.TaskSnapshot:
    """Return the snapshot after sealed batches. They follow `snapshot` if it is set.

    Raises:
        InvalidAgentResponseError: the events break the contract, or sequences are missing.
    """
    fold = Fold(task_id, snapshot)
    for sealed in batches:
        fold.apply(event_pb2.EventBatch.FromString(sealed))
    return fold.snapshot()


def message(text: str, message_id: str = "m-1") -> message_pb2.Message:
    return message_pb2.Message(
        message_id=message_id, role=message_pb2.ROLE_USER, parts=[part_pb2.Part(text=text)]
    )


def created(
    account: str = "acme", agent: str = "echo", context_id: str = "context-1"
) -> event_pb2.Event:
    return event_pb2.Event(
        created=event_pb2.TaskCreated(
            account=account, agent=agent, context_id=context_id, message=message("hello")
        )
    )


def status(state: task_pb2.TaskState.ValueType, text: str = "", at_s: int = 0) -> event_pb2.Event:
    changed = event_pb2.StatusChanged(status=task_pb2.TaskStatus(state=state))
    if text:
        changed.status.message.CopyFrom(message(text))
    if at_s:
        changed.status.timestamp.FromSeconds(at_s)
    return event_pb2.Event(status=changed)


def working() -> event_pb2.Event:
    return status(task_pb2.TASK_STATE_WORKING)


def completed() -> event_pb2.Event:
    return status(task_pb2.TASK_STATE_COMPLETED)


def begin(artifact_id: str, *texts: str, last: bool = False) -> event_pb2.Event:
    start = event_pb2.ArtifactStart(name=artifact_id)
    return delta_event(artifact_id, texts, start=start, last=last)


def append(artifact_id: str, *texts: str, last: bool = False) -> event_pb2.Event:
    return delta_event(artifact_id, texts, last=last)


def sealed(
    events: Sequence[event_pb2.Event],
    first_sequence: int = 1,
    *,
    task_id: str = TASK,
    origin: event_pb2.Origin | None = None,
    epoch: int = 1,
) -> bytes:
    return seal(
        build_draft(events, origin=origin),
        task_id=task_id,
        epoch=epoch,
        first_sequence=first_sequence,
        time_ns=TIME_NS,
    )


def batch(
    events: Sequence[event_pb2.Event],
    first_sequence: int = 1,
    *,
    task_id: str = TASK,
    origin: event_pb2.Origin | None = None,
) -> event_pb2.EventBatch:
    return event_pb2.EventBatch.FromString(
        sealed(events, first_sequence, task_id=task_id, origin=origin)
    )


def stored(
    events: Sequence[event_pb2.Event], first_sequence: int = 1, *, task_id: str = TASK
) -> SealedBatch:
    draft = build_draft(events)
    return SealedBatch(
        task_id, first_sequence, draft.count, sealed(events, first_sequence, task_id=task_id)
    )


def row(
    task_id: str = TASK,
    *,
    state: task_pb2.TaskState.ValueType = task_pb2.TASK_STATE_SUBMITTED,
    account: str = "acme",
    agent: str = "echo",
    context_id: str = "context-1",
    time_ns: int = TIME_NS,
    head: int = 1,
) -> TaskRow:
    return TaskRow(
        task_id=task_id,
        context_id=context_id,
        account=account,
        agent=agent,
        state=state,
        status_time_ns=time_ns,
        create_time_ns=time_ns,
        head=head,
    )


def group(
    *batches: SealedBatch, made: Sequence[TaskRow] = (), changed: Sequence[TaskRow] = ()
) -> CommitGroup:
    return CommitGroup(
        batches=list(batches),
        created={task_row.task_id: task_row for task_row in made},
        changed={task_row.task_id: task_row for task_row in changed},
    )
