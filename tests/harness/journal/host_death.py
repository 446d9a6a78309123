"""The death of a host inside a test, and journals that end where one did."""

from trunkline.journal.batches import parse_batch
from trunkline.journal.events import build_draft
from trunkline.journal.journal import Journal
from trunkline.tasks.journal_host import JournalHost


async def kill_host(host: JournalHost) -> None:
    """Let a host end as a killed process does: nothing below its journal says goodbye."""
    host._deadlines.close()
    host._flushing.close()
    host.journal.close()
    for run in host._runs.all():
        run.is_stopped = True
        for code in (run.runner, run.termination):
            if code is not None:
                code.cancel()
        await run.runner_done.wait()
    await host.__aexit__(None, None, None)


async def wait_until_slots_free(host: JournalHost) -> None:
    """Wait until nobody holds a place any more."""
    while runs := host._runs.all():
        await runs[0].released.wait()


async def replay_journal(source: Journal, task_id: str, target: Journal, *, until: int) -> None:
    """Write the beginning of a task's journal into another one: what a death there left."""
    cursor = 0
    while cursor < until:
        for sealed in source.read(task_id, cursor):
            batch = parse_batch(sealed, until=until)
            events = list(batch.events)
            cursor = batch.header.first_sequence + batch.header.count - 1
            if events[0].HasField("created"):
                await target.create(task_id, events.pop(0))
            if events:
                origin = batch.header.origin if batch.header.HasField("origin") else None
                await target.append(task_id, target.epoch, [build_draft(events, origin=origin)])
            if cursor >= until:
                return
