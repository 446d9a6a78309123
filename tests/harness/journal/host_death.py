"""The death of a host inside a test, and journals as such a death leaves them."""

from trunkline.journal.batches import parse_batch
from trunkline.journal.events import build_draft
from trunkline.journal.journal import Journal
from trunkline.tasks.host import TaskHost


async def kill_host(host: TaskHost) -> None:
    """End a host as a killed process ends: its journal is not closed properly."""
    host.journals.primary.deadlines.close()
    host.journals.primary.flush_scheduler.close()
    await host.journal.close()
    for execution in host.journals.primary.executions.all():
        execution.stop()
        if execution.termination is not None:
            execution.termination.cancel()
        await execution.runner_done.wait()
    await host.__aexit__(None, None, None)


async def wait_until_slots_free(host: TaskHost, journal_id: str = "") -> None:
    """Wait until no task of a journal, by default the primary one, is executed."""
    journal_id = journal_id or host.journal.id
    while executions := host.journals.hosts[journal_id].executions.all():
        await executions[0].released.wait()


def find_replayed(host: TaskHost, task_id: str) -> None:
    """Make a host find a task in its primary journal whose id names another journal."""
    host.journals.hosts[task_id.partition("-")[0]] = host.journals.primary


async def replay_journal(source: Journal, task_id: str, target: Journal, *, until: int) -> None:
    """Copy the beginning of a task's journal into another one, as a host's death leaves it."""
    cursor = 0
    while cursor < until:
        for sealed in await source.read(task_id, cursor):
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
