"""Promise: an accepted message is handled, in order and once, over kills of everything."""

import asyncio
import contextlib
import random
import resource
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from redis.asyncio import Redis

from harness.mesh.host_processes import QUICK
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import Services, open_services
from harness.polling import poll
from harness.promise_scale import PromiseScale
from harness.valkey import ValkeyServer, running_valkey
from trunkline.core.private_files import PRIVATE_FOLDER
from trunkline.errors import (
    JournalUnavailableError,
    PeerError,
    PeerUnavailableError,
    QueueFullError,
    TaskNotFoundError,
)
from trunkline.mesh.client import ChannelPool, Directory
from trunkline.messages.client import MessagingClient
from trunkline.messages.conversion import build_envelope
from trunkline.messages.redis_records import PARTITIONS
from trunkline.messages.store import EnvelopeFilter
from trunkline.tasks.lifecycle import State
from trunkline.v1 import envelope_pb2 as pb2
from trunkline.v1 import task_service_pb2

WORKERS = ("worker-a", "worker-b")
MESSENGERS = ("messages", "messages-2")
OPEN = (pb2.DELIVERY_STATE_PENDING, pb2.DELIVERY_STATE_RUNNING)
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
AGENTS = Path(__file__).parents[1] / "harness" / "agents"
WAIT_S = 300.0
# Messages of one conversation.
LENGTH = 10
# Messages for each second of the longest pause between two kills.
KILL_PACE = 50_000


async def send(client: MessagingClient, envelopes: list[pb2.Envelope]) -> None:
    """Send messages, again and again until they are accepted."""
    while True:
        try:
            await client.send(envelopes)
        except QueueFullError:
            await asyncio.sleep(0.5)
        except PeerError:
            await asyncio.sleep(0.05)
        else:
            return


async def send_all(client: MessagingClient, rng: random.Random, count: int) -> None:
    """Send conversations to both workers, in batches."""
    batch: list[pb2.Envelope] = []
    for number in range(count):
        conversation = number // LENGTH
        batch.append(
            build_envelope(
                f"{number % LENGTH} {rng.randrange(20)}",
                type="job",
                recipient=WORKERS[conversation % 2],
                correlation_id=f"c{conversation}",
                id=f"m{number}",
                priority=rng.choice(("low", "normal", "high")),
            )
        )
        if len(batch) == min(500, count // 4) or number == count - 1:
            await send(client, batch)
            batch = []


async def kill_at_random(
    services: Services, rng: random.Random, victims: list[str], pause_s: float
) -> None:
    for victim in victims:
        await asyncio.sleep(rng.random() * pause_s)
        await services.kill(victim)
        await services.restart(victim)


async def read_open(client: MessagingClient) -> int:
    """Return the number of messages that are not handled, or 1 if nobody can say."""
    try:
        page = await client.read_page(EnvelopeFilter(type="job", states=OPEN), page_size=1)
    except PeerError:
        return 1
    return len(page.envelopes)


async def wait_until_handled(client: MessagingClient, *, every_s: float) -> None:
    """Return when no message waits. A watch would be cut by each kill of the service."""
    remaining = await read_open(client)
    while remaining:
        await asyncio.sleep(every_s)
        remaining = await read_open(client)


async def check_answers(client: MessagingClient, count: int) -> None:
    """Check that each conversation was answered once, by the reply to its last message."""
    answered: list[str] = []
    token = ""
    while True:
        page = await client.read_page(
            EnvelopeFilter(type="answer"), page_size=1000, page_token=token
        )
        answered += [stored.envelope.causation_id for stored in page.envelopes]
        token = page.next_page_token
        if not token:
            break
    assert sorted(answered) == sorted(f"m{number}" for number in range(LENGTH - 1, count, LENGTH))


async def check_handled(client: MessagingClient, directory: Directory, count: int) -> int:
    """Check each message; return how many needed more than one attempt."""
    seen = retried = 0
    token = ""
    while True:
        query = EnvelopeFilter(type="job")
        page = await client.read_page(query, page_size=1000, page_token=token)
        for stored in page.envelopes:
            seen += 1
            (delivery,) = stored.deliveries
            assert delivery.state == pb2.DELIVERY_STATE_HANDLED, stored
            if delivery.attempt_count == 1:
                continue
            retried += 1
            # Only the last attempt committed: the ones before were cut by a kill.
            states = []
            for attempt in delivery.attempts:
                with contextlib.suppress(PeerUnavailableError, TaskNotFoundError):
                    # Else its host died before the first task of its journal, or of this one.
                    task_client = directory.client_for_task(attempt.task_id)
                    snapshot = await task_client.get_task(attempt.task_id, account="")
                    states.append(snapshot.task.status.state)
            assert states.index(State.TASK_STATE_COMPLETED) == len(states) - 1, stored
        token = page.next_page_token
        if not token:
            break
    assert seen == count
    return retried


async def check_commits(directory: Directory, count: int) -> None:
    """Check that the journals have one completed task for each message, and no more."""
    completed = 0
    for worker in WORKERS:
        query = task_service_pb2.ListTasksRequest(state=State.TASK_STATE_COMPLETED, page_size=1)
        completed += (await directory.client_for_agent(worker).tasks.ListTasks(query)).total_size
    assert completed == count


def check_order(folder: Path, count: int) -> int:
    """Check the order of each conversation; return how often a handler ran again."""
    ends: dict[str, list[int]] = defaultdict(list)
    for worker in WORKERS:
        for line in (folder / worker).read_text().splitlines():
            correlation_id, number = line.split()
            ends[correlation_id].append(int(number))
    for numbers in ends.values():
        assert numbers == sorted(numbers)
    assert sum(len(set(numbers)) for numbers in ends.values()) == count
    return sum(map(len, ends.values())) - count


@asynccontextmanager
async def open_workers(
    folder: Path,
    *workers: str,
    messengers: Sequence[str] = ("messages",),
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[tuple[Services, Directory, MessagingClient]]:
    """Run a registry, messaging services and workers in processes of their own."""
    environment = {
        **QUICK,
        "PYTHONPATH": str(AGENTS),
        "WORKER_FOLDER": str(folder),
        "TRUNKLINE_MESSAGING_BACKOFF_S": "0.05",
        # A journal without tasks is gone with its host.
        "TRUNKLINE_MESSAGING_HOST_PATIENCE_S": "30",
        **(settings or {}),
    }
    async with (
        open_services(folder, environment=environment) as services,
        ChannelPool(mesh_credentials()) as channels,
    ):
        await services.start("registry", "registry")
        for messenger in messengers:
            await services.launch(messenger, "messages")
        for worker in workers:
            spec = f"message_worker:{worker.replace('-', '_')}"
            await services.launch(worker, "agents", "--agent", spec)
        for name in (*messengers, *workers):
            await services.ready(name)
        async with Directory(channels, services.mesh_address) as directory:
            await directory.wait_until(
                lambda known: set(workers) <= known.list_agents().keys(), timeout_s=WAIT_S
            )
            yield services, directory, MessagingClient(directory)


@pytest.fixture
def messages(request: pytest.FixtureRequest) -> int | None:
    """The messages of a proof, if they were given."""
    number: int | None = request.config.getoption("--messages")
    return number


async def test_messages_survive_kills(
    tmp_path: Path, scale: PromiseScale, rng: random.Random, messages: int | None
) -> None:
    """Kills of workers and of the messaging service lose no message and repeat no commit."""
    count = scale.pick(ci=120, prove=messages or 100_000)
    kills = scale.pick(ci=2, prove=50)
    victims = [rng.choice(WORKERS) for _ in range(kills)]
    victims += ["messages"] * scale.pick(ci=1, prove=5)
    rng.shuffle(victims)
    async with open_workers(tmp_path, *WORKERS) as (services, directory, client):
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(send_all(client, rng, count))
            pause_s = scale.pick(ci=0.5, prove=count / KILL_PACE)
            group.create_task(kill_at_random(services, rng, victims, pause_s))
        async with asyncio.timeout(scale.pick(ci=WAIT_S, prove=3_500)):
            await wait_until_handled(client, every_s=scale.pick(ci=0.1, prove=1.0))
        seconds = time.monotonic() - began
        retried = await check_handled(client, directory, count)
        await check_answers(client, count)
        await check_commits(directory, count)
    again = check_order(tmp_path, count)
    scale.report(
        messages=count,
        kills=len(victims),
        retried=retried,
        ran_again=again,
        rate=f"{count / seconds:.0f}/s",
    )


async def test_a_delivery_at_a_host_that_died_without_tasks_is_made_at_the_next_one(
    tmp_path: Path,
) -> None:
    """The journal without tasks is kept, so that its new host can say that it has no such task."""
    patience = {"TRUNKLINE_MESSAGING_HOST_PATIENCE_S": "600"}
    async with (
        open_workers(tmp_path, *WORKERS, settings=patience) as (services, directory, client),
        asyncio.timeout(WAIT_S / 5),
    ):
        services.stop("worker-a")
        job = build_envelope("0 1", type="job", recipient="worker-a", correlation_id="c", id="m")
        await client.send([job])
        await poll(partial(client.get, "m"), lambda stored: stored.deliveries[0].attempts)
        await services.kill("worker-a")
        # The other worker, which has another agent, takes the journal.
        await directory.wait_until(
            lambda known: any(len(host.journal_ids) > 1 for host in known.hosts), timeout_s=WAIT_S
        )
        await services.restart("worker-a")
        await wait_until_handled(client, every_s=0.1)
        (delivery,) = (await client.get("m")).deliveries
        assert (delivery.state, delivery.attempt_count) == (pb2.DELIVERY_STATE_HANDLED, 1)
    assert (tmp_path / "worker-a").read_text() == "c 0\n"


async def wait_for_owners(url: str, count: int) -> None:
    """Wait until the partitions are shared by so many messaging processes."""
    async with Redis.from_url(url, decode_responses=True) as client, asyncio.timeout(WAIT_S):
        while True:
            keys = [key async for key in client.scan_iter("{a2a_messages}:lease:*")]
            leases = [lease for lease in await client.mget(keys) if lease] if keys else []
            owners = {str(lease).partition(":")[0] for lease in leases}
            if len(leases) == PARTITIONS and len(owners) == count:
                return
            await asyncio.sleep(0.05)


async def break_messengers(
    services: Services, valkey: ValkeyServer, rounds: int, pause_s: float
) -> None:
    """Kill and freeze messaging processes in turns, and restart Valkey beside them."""
    first, second = MESSENGERS
    for _ in range(rounds):
        await asyncio.sleep(pause_s)
        await services.kill(first)
        await wait_for_owners(valkey.url, 1)
        await services.restart(first)
        await wait_for_owners(valkey.url, 2)
        services.stop(second)
        # The other one has all partitions now, and what the frozen one writes is refused.
        await wait_for_owners(valkey.url, 1)
        services.cont(second)
        await asyncio.to_thread(valkey.stop, signal.SIGKILL)
        await asyncio.to_thread(valkey.start)
        await wait_for_owners(valkey.url, 2)


async def test_distributed_messages_survive_kills_freezes_and_restarts(
    tmp_path: Path, scale: PromiseScale, rng: random.Random, messages: int | None
) -> None:
    """Two messaging processes share the messages; no kill, freeze or restart loses or repeats."""
    count = scale.pick(ci=400, prove=messages or 100_000)
    rounds = scale.pick(ci=1, prove=5)
    victims = [rng.choice(WORKERS) for _ in range(scale.pick(ci=1, prove=50))]
    with running_valkey(tmp_path / "valkey") as valkey:
        settings = {
            "TRUNKLINE_MESSAGING_URL": valkey.url,
            "TRUNKLINE_MESSAGING_MODE": "distributed",
            "TRUNKLINE_MESSAGING_LEASE_S": "1",
        }
        async with open_workers(tmp_path, *WORKERS, messengers=MESSENGERS, settings=settings) as (
            services,
            directory,
            client,
        ):
            await wait_for_owners(valkey.url, 2)
            began = time.monotonic()
            async with asyncio.TaskGroup() as group:
                group.create_task(send_all(client, rng, count))
                pause_s = scale.pick(ci=0.2, prove=count / KILL_PACE)
                group.create_task(kill_at_random(services, rng, victims, pause_s))
                pause_s = scale.pick(ci=0.0, prove=count / KILL_PACE * 4)
                group.create_task(break_messengers(services, valkey, rounds, pause_s))
            async with asyncio.timeout(scale.pick(ci=WAIT_S, prove=3_000)):
                await wait_until_handled(client, every_s=scale.pick(ci=0.1, prove=1.0))
            seconds = time.monotonic() - began
            retried = await check_handled(client, directory, count)
            await check_answers(client, count)
            await check_commits(directory, count)
        again = check_order(tmp_path, count)
    scale.report(
        messages=count,
        kills=len(victims),
        restarts_of_valkey=rounds,
        retried=retried,
        ran_again=again,
        rate=f"{count / seconds:.0f}/s",
    )


async def test_a_full_disk_refuses_messages_and_loses_none(tmp_path: Path) -> None:
    """What was accepted is handled once space is free; what was refused is not there."""
    accepted: list[str] = []
    async with open_workers(tmp_path, "worker-a") as (services, _, client):
        pid = services.processes["messages"].pid
        folder = tmp_path / "data" / PRIVATE_FOLDER

        def message(number: int) -> pb2.Envelope:
            padding = {"padding": "x" * 20_000}
            return build_envelope(
                f"{number} 0", type="job", recipient="worker-a", id=f"m{number}", metadata=padding
            )

        await client.send([message(0)])
        accepted.append("m0")
        largest = max(path.stat().st_size for path in folder.glob("messages.db*"))
        limit = (largest + 100_000, resource.RLIM_INFINITY)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
        refused = ""
        for number in range(1, 1_000):
            try:
                await client.send([message(number)])
            except JournalUnavailableError as error:
                refused = str(error)
                break
            accepted.append(f"m{number}")
        assert "disk" in refused
        resource.prlimit(pid, resource.RLIMIT_FSIZE, UNLIMITED)
        await send(client, [message(5_000)])
        accepted.append("m5000")
        async with asyncio.timeout(WAIT_S):
            await wait_until_handled(client, every_s=0.1)
        page = await client.read_page(EnvelopeFilter(type="job"), page_size=1_000)
        assert [each.envelope.envelope_id for each in page.envelopes] == accepted[::-1]
        handled = {delivery.state for each in page.envelopes for delivery in each.deliveries}
        assert handled == {pb2.DELIVERY_STATE_HANDLED}
