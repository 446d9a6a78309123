"""Several processes run one agent: all of them take new tasks, and continue each other's tasks."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from harness.a2a.reconnecting_client import stream_with_reconnects
from harness.a2a.sse_client import call, user_message
from harness.journal.postgres_server import new_database
from harness.mesh.command_line import run_command
from harness.mesh.host_processes import (
    NUMBERS,
    PATIENCE_S,
    QUICK,
    WHOLE,
    Caller,
    has_ended,
    hosts,
    is_waiting,
    journals,
    replica,
    text_of,
)
from harness.mesh.processes import Services
from harness.polling import poll, wait_for
from trunkline.mesh.client.resuming_stream import allocate_task_id
from trunkline.v1 import message_pb2, message_service_pb2, part_pb2, registry_service_pb2

# A takeover may take two leases. The rest is for a machine that is busy.
LEASE_S = float(QUICK["TRUNKLINE_LEASE_S"])


@asynccontextmanager
async def replicas(
    folder: Path, *names: str, store: str = "", lease_s: float = LEASE_S
) -> AsyncIterator[tuple[Services, Caller]]:
    """Run processes of the agent echo, the first of which is named like the agent."""
    environment = {"TRUNKLINE_LEASE_S": str(lease_s)}
    if store:
        environment["TRUNKLINE_STORE"] = store
    async with hosts(folder, "echo", environment=environment) as (services, caller):
        for name in names:
            await replica(services, caller, name, "echo")
        yield services, caller


async def place(caller: Caller, count: int, context_id: str = "") -> Counter[str]:
    """Give the agent tasks; return the number of tasks by the address of their host."""
    addresses: Counter[str] = Counter()
    for number in range(count):
        message = message_pb2.Message(
            message_id=f"m-{number}",
            context_id=context_id,
            role=message_pb2.ROLE_USER,
            parts=[part_pb2.Part(text="hello")],
        )
        async with caller.directory.submit(
            "echo",
            message=message,
            submission=message_service_pb2.Submission(),
            patience_s=PATIENCE_S,
        ) as turn:
            addresses[caller.host_of(turn.task_id)] += 1
            async for _ in turn:
                pass
    return addresses


async def test_all_replicas_take_new_tasks_and_a_conversation_stays_at_one(tmp_path: Path) -> None:
    async with replicas(tmp_path, "second") as (services, caller):
        taken = await place(caller, 40)
        addresses = {services.address("echo"), services.address("second")}
        assert taken.keys() == addresses
        assert min(taken.values()) >= 10
        conversations = [await place(caller, 3, f"context-{number}") for number in range(16)]
        assert all(len(conversation) == 1 for conversation in conversations)
        assert {address for each in conversations for address in each} == addresses
        assert len(journals(tmp_path)) == 2

        started_s = time.monotonic()
        await services.start("third", "agents", "echo")
        third = services.address("third")
        ready_s = time.monotonic()
        while not (await place(caller, 1))[third]:
            assert time.monotonic() - ready_s < 2, "a new replica takes no tasks"
        assert time.monotonic() - started_s < PATIENCE_S


async def test_top_shows_each_replica_with_its_tasks(tmp_path: Path) -> None:
    async with replicas(tmp_path, "second") as (services, caller):
        questions = [await caller.begin_question() for _ in range(6)]
        done = await run_command("top", "--once", "--json", "--mesh", services.mesh_address)
        assert done.exit == 0, done
        addresses = {host["host"]: host["address"] for host in done.json["hosts"]}
        waiting = {
            addresses[agent["host"]]: agent["waiting"]
            for agent in done.json["agents"]
            if agent["agent"] == "echo"
        }
        assert waiting == Counter(caller.host_of(task_id) for task_id in questions)
        assert waiting.keys() == {services.address("echo"), services.address("second")}


async def test_a_message_makes_one_task_whichever_replicas_get_it(tmp_path: Path) -> None:
    async with new_database() as url, replicas(tmp_path, "second", store=url) as (_, caller):
        targets = caller.directory.list_replicas("echo")

        async def submit(number: int, host: registry_service_pb2.Host) -> str:
            message = message_pb2.Message(
                message_id=f"m-{number}",
                role=message_pb2.ROLE_USER,
                parts=[part_pb2.Part(text="hello")],
            )
            submission = message_service_pb2.Submission(
                idempotent=True, task_id=allocate_task_id(host)
            )
            async with caller.directory.submit(
                "echo", message=message, submission=submission, patience_s=PATIENCE_S
            ) as turn:
                async for _ in turn:
                    pass
                return turn.task_id

        for number in range(20):
            async with asyncio.TaskGroup() as group:
                submits = [group.create_task(submit(number, host)) for host in targets]
            tasks = {each.result() for each in submits}
            assert len(tasks) == 1
            # A repeated message finds it, too.
            assert {await submit(number, host) for host in targets} == tasks


@pytest.mark.parametrize(("harm", "store"), [("kill", ""), ("drain", ""), ("kill", "postgresql")])
async def test_streams_of_a_replica_that_is_gone_end_exactly(
    tmp_path: Path, harm: str, store: str
) -> None:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(new_database()) if store else ""
        services, caller = await stack.enter_async_context(
            replicas(tmp_path, "second", "third", store=url)
        )
        await services.start("bridge", "bridge", "--default", "echo")
        url, path = services.http_url, "/agents/echo"
        text = f"count {NUMBERS} 30"
        async with asyncio.TaskGroup() as group:
            streams = [
                group.create_task(stream_with_reconnects(url, path, text)) for _ in range(20)
            ]
            await wait_for(
                lambda: all(host.load.open_turns for host in caller.directory.list_replicas("echo"))
            )
            if harm == "kill":
                await services.kill("second")
            else:
                assert await services.terminate("second") == 0
            # New tasks run at the other replicas meanwhile.
            for _ in range(10):
                answer = await call(url, path, "SendMessage", {"message": user_message("hello")})
                assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED", answer
        for stream in streams:
            fold = stream.result()
            assert (fold.state, list(fold.texts.values())) == ("TASK_STATE_COMPLETED", [WHOLE])

        async def list_tasks() -> int:
            listed = await call(url, path, "ListTasks", {"pageSize": 100})
            return len(listed["result"]["tasks"])

        # The journal waits half a lease, because its process may start again.
        assert await poll(list_tasks, lambda count: count >= 30) == 30


async def test_a_replica_that_leaves_gives_its_waiting_tasks_away(tmp_path: Path) -> None:
    async with replicas(tmp_path, "second") as (services, caller):
        questions = [await caller.begin_question() for _ in range(6)]
        assert {caller.host_of(task_id) for task_id in questions} == {
            services.address("echo"),
            services.address("second"),
        }
        assert await services.terminate("echo") == 0
        for task_id in questions:
            await caller.until(task_id, is_waiting)
            assert caller.host_of(task_id) == services.address("second")
            await caller.answer(task_id, "Ada")
            answered = await caller.until(task_id, has_ended)
            assert text_of(answered) == "answer: Ada"


async def test_a_journal_is_found_although_its_former_host_registers_once_more(
    tmp_path: Path,
) -> None:
    """A host that was frozen registers when it thaws, before it learns that it has no journal."""
    async with replicas(tmp_path, "second") as (services, caller):
        task_id = await caller.begin_question()
        former = caller.directory.get_task_host(task_id)
        names = {services.address(name): name for name in ("echo", "second")}
        (other,) = names.keys() - {former.address}
        await services.kill(names[former.address])
        await wait_for(lambda: caller.host_of(task_id) == other)

        await caller.directory.find_registry().register(former)
        await caller.directory.find_registry().deregister(former.host_id)

        async with asyncio.timeout(10 * LEASE_S):
            await caller.until(task_id, is_waiting)
        assert caller.host_of(task_id) == other


async def test_a_rolling_restart_fails_no_request_and_delays_none_for_long(tmp_path: Path) -> None:
    async with replicas(tmp_path, "second", "third") as (services, _):
        await services.start("bridge", "bridge", "--default", "echo")
        url, path = services.http_url, "/agents/echo"
        is_over = asyncio.Event()
        delays: list[float] = []

        async def send_messages() -> None:
            while not is_over.is_set():
                began_s = time.monotonic()
                answer = await call(url, path, "SendMessage", {"message": user_message("hello")})
                assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED", answer
                delays.append(time.monotonic() - began_s)

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(send_messages())
            for name in ("echo", "second", "third"):
                assert await services.terminate(name) == 0
                await services.restart(name)
            is_over.set()
        # A request that waited for a takeover would take longer than a lease.
        assert max(delays) < LEASE_S
        # A process that starts again within half a lease gets its own journal back.
        assert len(journals(tmp_path)) <= 6


@pytest.mark.parametrize("store", ["", "postgresql"])
async def test_a_restart_of_all_replicas_at_once_makes_no_new_journals(
    tmp_path: Path, store: str
) -> None:
    names = ("echo", "second", "third")
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(new_database()) if store else ""
        # Half a lease is longer than the starts of the processes are apart.
        services, caller = await stack.enter_async_context(
            replicas(tmp_path, *names[1:], store=url, lease_s=30.0)
        )
        questions = [await caller.begin_question() for _ in range(9)]
        known = {task_id.partition("-")[0] for task_id in questions}
        assert len(known) == 3
        for _ in range(2):
            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(services.terminate(name))
            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(services.restart(name))
            # Each process has one of the three journals.
            await caller.directory.wait_until(
                lambda now: (
                    sorted(map(tuple, (host.journal_ids for host in now.hosts if host.agents)))
                    == sorted((journal_id,) for journal_id in known)
                ),
                timeout_s=PATIENCE_S,
            )
        for task_id in questions:
            await caller.answer(task_id, "Ada")
            assert text_of(await caller.until(task_id, has_ended)) == "answer: Ada"


async def test_the_journals_of_fewer_processes_are_all_served_after_a_restart(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path, "second") as (services, caller):
        ended = [await caller.begin("hello") for _ in range(6)]
        for task_id in ended:
            await caller.until(task_id, has_ended)
        assert len({task_id.partition("-")[0] for task_id in ended}) == 2
        for name in ("second", "echo"):
            assert await services.terminate(name) == 0
        await services.restart("echo")
        for task_id in ended:
            await caller.until(task_id, has_ended)
            assert caller.host_of(task_id) == services.address("echo")
        assert len(journals(tmp_path)) == 2


async def test_the_journals_of_dead_replicas_are_spread_over_the_others(tmp_path: Path) -> None:
    names = ("second", "third", "fourth", "fifth", "sixth")
    async with replicas(tmp_path, *names) as (services, caller):
        questions = [await caller.begin_question() for _ in range(24)]
        dead = ("echo", *names[:3])
        addresses = {services.address(name) for name in dead}
        at_dead = [each for each in questions if caller.host_of(each) in addresses]
        assert {caller.host_of(each) for each in at_dead} == addresses
        async with asyncio.TaskGroup() as group:
            for name in dead:
                group.create_task(services.kill(name))
        for task_id in at_dead:
            await caller.until(task_id, is_waiting)
        remaining = {services.address("fifth"), services.address("sixth")}
        assert {caller.host_of(task_id) for task_id in at_dead} == remaining
        # Each of the two has its own journal and some of the four others.
        served = {host.address: len(host.journal_ids) for host in caller.directory.hosts}
        assert sum(served.values()) == 6
        assert min(served.values()) >= 2
