"""The journal equals a model: a list of events for each task."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from harness.journal.builders import append, begin, completed, created, fold_batches, working
from harness.journal.suspending_store import suspending
from trunkline.errors import CursorExpiredError, TaskEndedError
from trunkline.journal.batches import parse_batch
from trunkline.journal.events import build_draft, parse_header
from trunkline.journal.journal import Journal, Retention
from trunkline.journal.sqlite import SqliteStore
from trunkline.v1 import event_pb2, task_service_pb2


class Model:
    """A task as a list of its events, with runs of texts split up."""

    def __init__(self) -> None:
        self.events: list[event_pb2.Event] = [created()]
        self.has_artifact = False
        self.is_ended = False
        self.is_compacted = False

    def write(self, texts: list[str], *, is_end: bool) -> list[event_pb2.Event]:
        """Return events to append, and add them to the model one by one."""
        new_events = [working()]
        self.events.append(working())
        if texts:
            new_events.append((append if self.has_artifact else begin)("a", *texts))
            for text in texts:
                self.events.append((append if self.has_artifact else begin)("a", text))
                self.has_artifact = True
        if is_end:
            new_events.append(completed())
            self.events.append(completed())
            self.is_ended = True
        return new_events


class JournalMachine(RuleBasedStateMachine):
    """Creates, appends to several tasks at once, reads from any cursor, reopens, compacts."""

    tasks = Bundle("tasks")
    is_suspending = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.models: dict[str, Model] = {}
        self.loop.run_until_complete(self.open())

    async def open(self) -> None:
        store = SqliteStore.open(self.folder / "journal.db")
        # Small tails make readers use the store as well.
        self.journal = Journal(
            suspending(store) if self.is_suspending else store,
            await store.list_unfinished(),
            tail_bytes=400,
            retention=Retention(compact_after_s=0),
        )
        # Only rules maintain it. Its own timers depend on the machine's speed, and the model would
        # not know of their compactions.
        self.journal._maintenance.close()

    def teardown(self) -> None:
        self.loop.run_until_complete(self.journal.close())
        self.loop.close()
        shutil.rmtree(self.folder)

    @rule(target=tasks, count=st.integers(1, 3))
    def create(self, count: int) -> object:
        task_ids = [self.journal.new_task_id() for _ in range(count)]
        self.loop.run_until_complete(self.create_all(task_ids))
        self.models |= {task_id: Model() for task_id in task_ids}
        return multiple(*task_ids)

    async def create_all(self, task_ids: list[str]) -> None:
        futures = [self.journal.create(task_id, created()) for task_id in task_ids]
        assert all([(await future).is_new for future in futures])

    @rule(
        writes=st.lists(
            st.tuples(tasks, st.lists(st.text(max_size=40), max_size=4), st.booleans()),
            min_size=1,
            max_size=6,
        )
    )
    def append(self, writes: list[tuple[str, list[str], bool]]) -> None:
        self.loop.run_until_complete(self.append_all(writes))

    async def append_all(self, writes: list[tuple[str, list[str], bool]]) -> None:
        """Append within one iteration of the loop, so that all of it is one commit."""
        appends: list[tuple[asyncio.Future[int], int | None]] = []
        for task_id, texts, is_end in writes:
            model = self.models[task_id]
            is_late = model.is_ended
            events = [working()] if is_late else model.write(texts, is_end=is_end)
            append_future = self.journal.append(
                task_id, self.journal.epoch, [build_draft([event]) for event in events]
            )
            appends.append((append_future, None if is_late else len(model.events)))
        await asyncio.wait([append_future for append_future, _ in appends])
        for append_future, expected in appends:
            if expected is None:
                assert isinstance(append_future.exception(), TaskEndedError)
            else:
                assert append_future.result() == expected

    @rule()
    def reopen(self) -> None:
        self.loop.run_until_complete(self.reopen_now())

    async def reopen_now(self) -> None:
        await self.journal.close()
        await self.open()

    @rule(steps=st.sampled_from([1, 3, 1000]))
    def compact(self, steps: int) -> None:
        """Run some compaction steps, as the journal does between appends."""
        self.loop.run_until_complete(self.compact_now(steps))

    async def compact_now(self, steps: int) -> None:
        compactor = self.journal._maintenance._compactor
        await compactor.scan()
        while compactor.has_work and steps:
            step = await compactor.next_step(budget_bytes=300)
            steps -= 1
            if step is not None:
                await step.write()
                step.confirm()
                self.journal._forget_all(step.task_ids)
                for task_id in step.task_ids:
                    self.models[task_id].is_compacted = True

    @rule(task_id=tasks, data=st.data())
    def read(self, task_id: str, data: st.DataObject) -> None:
        events = self.models[task_id].events
        cursor = data.draw(st.integers(0, len(events)), label="cursor")
        limit_bytes = data.draw(st.sampled_from([1, 300, 10**6]), label="limit")
        self.loop.run_until_complete(self.read_from(task_id, cursor, limit_bytes))

    async def read_from(self, task_id: str, cursor: int, limit_bytes: int) -> None:
        events = self.models[task_id].events
        if self.models[task_id].is_compacted and cursor < len(events):
            with pytest.raises(CursorExpiredError):
                await self.journal.read(task_id, cursor, limit_bytes=limit_bytes)
            return
        while batches := await self.journal.read(task_id, cursor, limit_bytes=limit_bytes):
            for sealed in batches:
                header = parse_header(sealed)
                assert header.first_sequence == cursor + 1
                for sequence in range(cursor + 1, cursor + header.count + 1):
                    assert self.event_at(sealed, sequence) == events[sequence - 1]
                cursor += header.count
        assert cursor == len(events)

    def event_at(self, sealed: bytes, sequence: int) -> event_pb2.Event:
        """Return the event of one sequence of a batch, split from its run."""
        batch = parse_batch(sealed, until=sequence)
        last = batch.events[-1]
        texts = last.delta.texts
        if len(texts) > 1:
            del texts[:-1]
            last.delta.ClearField("start")
        return last

    @rule(task_id=tasks, data=st.data())
    def snapshot(self, task_id: str, data: st.DataObject) -> None:
        events = self.models[task_id].events
        first = len(events) if self.models[task_id].is_compacted else 0
        at = data.draw(st.integers(first, len(events)), label="at")
        snapshot = self.loop.run_until_complete(self.journal.snapshot(task_id, at=at))
        text = "".join(text for event in events[:at] for text in event.delta.texts)
        assert snapshot.sequence == at
        assert "".join(p.text for a in snapshot.task.artifacts for p in a.parts) == text

    @invariant()
    def check_rows(self) -> None:
        self.loop.run_until_complete(self.check_rows_now())

    async def check_rows_now(self) -> None:
        for task_id, model in self.models.items():
            row = await self.journal.row(task_id)
            assert (row.head, row.is_ended) == (len(model.events), model.is_ended)
        unfinished = {row.task_id for row in self.journal.list_unfinished()}
        assert unfinished == {
            unfinished_id for unfinished_id, model in self.models.items() if not model.is_ended
        }

    @invariant()
    def check_lists(self) -> None:
        self.loop.run_until_complete(self.check_lists_now())

    async def check_lists_now(self) -> None:
        request = task_service_pb2.ListTasksRequest(account="acme", page_size=100)
        page = await self.journal.list(request)
        assert {task.task_id for task in page.tasks} == set(self.models)

    @rule()
    def check_folds(self) -> None:
        self.loop.run_until_complete(self.check_folds_now())

    async def check_folds_now(self) -> None:
        for task_id, model in self.models.items():
            if model.is_compacted:
                continue
            batches = await self.journal._store.read(task_id, 0, limit_bytes=10**6)
            assert batches == await self.journal.read(task_id, 0, limit_bytes=10**6)
            snapshot = await self.journal.snapshot(task_id)
            assert fold_batches(task_id, batches) == snapshot


class SuspendingMachine(JournalMachine):
    """The same on a store that suspends its callers."""

    is_suspending = True


@pytest.mark.parametrize("machine", [JournalMachine, SuspendingMachine])
def test_a_journal_is_a_list_of_events_for_each_task(machine: type[JournalMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=25))
