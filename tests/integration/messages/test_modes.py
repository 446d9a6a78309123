"""Changes of the place of messages: from the file to Redis, from a server to its replica."""

import asyncio
import itertools
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from harness.mesh.messages import MessageMesh, open_message_mesh, serve_messages_on
from harness.mesh.small_mesh import PATIENCE_S, open_small_mesh
from harness.remote.cutting_relay import open_relay
from harness.valkey import ValkeyServer, running_valkey
from trunkline import MeshMessage, TaskContext, agent
from trunkline.core.settings import MessagingSettings
from trunkline.errors import ConfigurationError, PeerError, PeerUnavailableError
from trunkline.mesh.client import run_in_background
from trunkline.messages.client import MessagingClient
from trunkline.messages.conversion import build_envelope
from trunkline.messages.redis_store import RedisMessageStore
from trunkline.messages.store import EnvelopeFilter, NewMessage, QueuedDelivery
from trunkline.processes.hosting import describe_host
from trunkline.v1 import envelope_pb2 as pb2

UNCUT = 1 << 40
HANDLED = pb2.DELIVERY_STATE_HANDLED


class Worker:
    """An agent that notes what it handles."""

    def __init__(self) -> None:
        self.handled: list[str] = []

        @agent(name="worker", description="Works.")
        async def worker(task: TaskContext) -> None:
            raise AssertionError

        @worker.on("job")
        async def work(task: TaskContext, message: MeshMessage) -> str:
            self.handled.append(message.text)
            return f"did {message.text}"

        self.agent = worker


def job(number: int, **fields: Any) -> pb2.Envelope:
    text = f"{number}"
    return build_envelope(text, type="job", recipient="worker", id=f"job-{text}", **fields)


async def test_what_a_local_run_accepted_is_handled_in_the_distributed_mode(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trunkline.messages")
    worker = Worker()
    with running_valkey(tmp_path / "valkey") as valkey:
        async with open_small_mesh(tmp_path) as small:
            mesh = MessageMesh(small)
            host = await small.join(worker.agent)
            async with serve_messages_on(small, tmp_path, mode="auto", url="redis://127.0.0.1:1"):
                # Not the mode that was wished for: one line says which one, and why.
                assert small.directory.messaging_mode() == "local"
                (line,) = (each for each in caplog.records if each.msg == "messages.mode")
                assert (line.levelname, vars(line)["configured"]) == ("WARNING", "auto")
                assert "Redis (messaging.url) can't be reached" in vars(line)["reason"]
                await mesh.client().request(job(0), timeout_s=PATIENCE_S)
                # The worker is away when the others come.
                host.withdraw_agents()
                await small.directory.wait_until(
                    lambda known: "worker" not in known.list_agents(), timeout_s=PATIENCE_S
                )
                await mesh.client().send([job(n, correlation_id="one") for n in range(1, 21)])
            for _ in range(2):
                async with serve_messages_on(small, tmp_path, mode="auto", url=valkey.url):
                    assert small.directory.messaging_mode() == "distributed"
                    if host.membership is not None:
                        host.membership.update(describe_host(host.host, address=host.address))
                    await small.directory.wait_until(
                        lambda known: "worker" in known.list_agents(), timeout_s=PATIENCE_S
                    )
                    # New messages are in Redis, and so are the replies to those in the file.
                    reply = await mesh.client().request(
                        build_envelope("new", type="job", recipient="worker"), timeout_s=PATIENCE_S
                    )
                    assert reply.text == "did new"
                    await mesh.until(
                        lambda stored: stored.envelope.causation_id == "job-20", type="answer"
                    )
                    answers = await mesh.listing(correlation_id="one", type="answer")
                    texts = [stored.envelope.text for stored in answers]
                    assert texts == [f"did {n}" for n in range(1, 21)]
    waiting = [each for each in caplog.records if each.msg == "messages.local_waiting"]
    # The second run finds nothing that waits.
    assert [vars(each)["deliveries"] for each in waiting] == [20]
    old = [text for text in worker.handled if text != "new"]
    assert old == [f"{n}" for n in range(21)]


class Sender:
    """Sends messages until it is stopped, and records the accepted messages."""

    def __init__(self, client: MessagingClient) -> None:
        self.accepted: list[int] = []
        self._client = client
        self._is_stopped = False
        self._progress = asyncio.Condition()

    async def run(self) -> None:
        for number in itertools.count():
            if self._is_stopped:
                return
            try:
                await self._client.send([job(number, correlation_id=f"c{number % 5}")])
            except PeerError:
                # It may be stored or not. A sender that gives up does not know.
                continue
            async with self._progress:
                self.accepted.append(number)
                self._progress.notify_all()

    async def until_more(self, count: int) -> None:
        """Wait until so many more messages were accepted."""
        wanted = len(self.accepted) + count
        async with self._progress:
            await self._progress.wait_for(lambda: len(self.accepted) >= wanted)

    def stop(self) -> None:
        self._is_stopped = True


@contextmanager
def running_replicas(folder: Path) -> Iterator[tuple[ValkeyServer, ValkeyServer]]:
    """Run a server and its replica."""
    at_once = ("--repl-diskless-sync-delay", "0")
    with running_valkey(folder / "one", *at_once) as first:
        replicates = ("--replicaof", f"127.0.0.1 {first.port}")
        with running_valkey(folder / "two", *at_once, *replicates) as second:
            yield first, second


async def call(server: ValkeyServer, *words: str | int) -> Any:
    """Call a command of a server."""
    async with Redis.from_url(server.url) as client:
        untyped: Any = client
        return await untyped.execute_command(*words)


async def fail_over(first: ValkeyServer, second: ValkeyServer) -> None:
    """Kill a server, promote its replica, and start the server again as the replica."""
    await asyncio.to_thread(first.stop, signal.SIGKILL)
    await call(second, "REPLICAOF", "NO", "ONE")
    await asyncio.to_thread(first.start)
    await call(first, "REPLICAOF", "127.0.0.1", second.port)


async def test_a_failover_to_a_replica_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    worker = Worker()
    with running_replicas(tmp_path) as (first, second):
        async with open_relay(itertools.repeat(UNCUT)) as relay:
            relay.target = f"127.0.0.1:{first.port}"
            url = f"redis://{relay.address}"
            table: dict[str, Any] = {"mode": "distributed", "url": url, "replicas": 1, "lease_s": 5}
            async with open_message_mesh(tmp_path, worker.agent, **table) as mesh:
                sender = Sender(mesh.client())
                async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
                    group.create_task(sender.run())
                    await sender.until_more(100)
                    await fail_over(first, second)
                    relay.target = f"127.0.0.1:{second.port}"
                    await sender.until_more(50)
                    sender.stop()
                accepted = sender.accepted
                # The last ones of each of the five conversations, which are handled in order.
                for number in accepted[-10:]:
                    await mesh.ended(f"job-{number}")
                page = await mesh.client().read_page(EnvelopeFilter(type="job"), page_size=1_000)
                states = {
                    stored.envelope.text: [each.state for each in stored.deliveries]
                    for stored in page.envelopes
                }
                assert [states[f"{number}"] for number in accepted] == [[HANDLED]] * len(accepted)
                # Without a replica the server's word does not count.
                await asyncio.to_thread(first.stop, signal.SIGKILL)
                message = NewMessage("", job(-1), caller="", recipients=("worker",))
                async with RedisMessageStore.open(MessagingSettings(url=url, replicas=1)) as store:
                    for _ in range(2):
                        with pytest.raises(PeerUnavailableError, match="0 of 1 replicas"):
                            await store.accept([message])
    counts = {int(text): worker.handled.count(text) for text in worker.handled if text.isdecimal()}
    assert counts.keys() >= set(accepted)
    # The tasks outlive the failover: none is made twice.
    assert set(counts.values()) == {1}


async def take(store: RedisMessageStore, taken: asyncio.Queue[QueuedDelivery]) -> None:
    """Take the deliveries of a store, as the dispatcher does."""
    async for batch in store.deliveries():
        for delivery in batch:
            await taken.put(delivery)


async def test_an_end_that_a_failover_lost_is_made_again(tmp_path: Path) -> None:
    with running_replicas(tmp_path) as (first, second):
        async with open_relay(itertools.repeat(UNCUT)) as relay:
            relay.target = f"127.0.0.1:{first.port}"
            # Nothing waits for the replica, so it may lack what was acknowledged.
            settings = MessagingSettings(url=f"redis://{relay.address}", lease_s=60)
            async with (
                RedisMessageStore.open(settings) as store,
                run_in_background(take(store, taken := asyncio.Queue[QueuedDelivery]())),
            ):
                message = NewMessage("acme", job(1), caller="", recipients=("worker",))
                await store.accept([message])
                async with asyncio.timeout(PATIENCE_S):
                    delivery = await taken.get()
                begun = await store.begin_attempt(delivery, "task-1")
                async with Redis.from_url(first.url) as former:
                    # WAIT counts the replicas that have this connection's own writes.
                    await former.set("last", "write")
                    assert await former.wait(1, 60_000) == 1
                await call(second, "REPLICAOF", "NO", "ONE")
                # The former server does not know yet.
                await store.end(begun, HANDLED)
                await asyncio.to_thread(first.stop, signal.SIGKILL)
                relay.target = f"127.0.0.1:{second.port}"
                async with asyncio.timeout(PATIENCE_S):
                    again = await taken.get()
                # The same task, which has its outcome, long before the lease ends.
                assert (again.key, again.task_id) == (delivery.key, "task-1")
                await store.end(again, HANDLED)


async def test_auto_is_not_local_beside_a_distributed_process(tmp_path: Path) -> None:
    with running_valkey(tmp_path / "valkey") as valkey:
        async with (
            open_small_mesh(tmp_path) as mesh,
            serve_messages_on(mesh, tmp_path, mode="auto", url=valkey.url),
        ):
            other = serve_messages_on(mesh, tmp_path / "b", mode="auto", url="redis://127.0.0.1:1")
            with pytest.raises(ConfigurationError, match="other processes of this mesh use Redis"):
                async with other:
                    raise AssertionError
            assert mesh.directory.messaging_mode() == "distributed"
