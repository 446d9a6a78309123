"""Two machines that share only a database: the tasks of a host that is killed are still shown."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import httpx2
import pytest

from harness.a2a.bridged_mesh import Caller, open_bridged_mesh
from harness.a2a.grpc_client import GrpcMesh, open_bridge_grpc
from harness.a2a.protocol_variants import (
    SPOKEN,
    WEBHOOK_URL,
    ProtocolVariant,
    RefusedError,
    TaskView,
    find_variant,
    name_of,
)
from harness.a2a.sse_client import ClientFold, Json, call, send, sse, user_message
from harness.a2a.sse_client import RefusedError as RefusedStreamError
from harness.journal.builders import created
from harness.journal.postgres_server import new_database
from harness.mesh.command_line import COMMAND
from harness.mesh.identity import mesh_credentials
from harness.mesh.killable_agent import KillableAgent
from harness.mesh.small_mesh import PATIENCE_S, open_small_mesh
from harness.polling import poll
from harness.remote.webhook_receiver import ReceivedPost, accept, open_receiver, status
from trunkline.a2a_wire.protocol import RESUME_EXTENSION
from trunkline.core.postgres import PostgresDatabase
from trunkline.core.settings import Settings
from trunkline.errors import PeerError
from trunkline.journal.store import OrphanedChild
from trunkline.mesh.client import ChannelPool, Directory
from trunkline.mesh.client.host_queries import query_hosts, query_task
from trunkline.mesh.client.mesh_tasks import list_mesh_tasks
from trunkline.mesh.client.mesh_webhooks import list_mesh_webhooks
from trunkline.mesh.client.open_approvals import list_open_approvals
from trunkline.mesh.server import MeshServer
from trunkline.processes.hosting import add_host_services, open_host, open_membership
from trunkline.processes.journals import HostJournals
from trunkline.v1 import task_pb2, task_service_pb2
from trunkline_agents.echo.agent import echo
from trunkline_bridge.a2a.operations.operation_table import SERVED_OPERATIONS, StreamOperation
from trunkline_bridge.app import Bridge

_Answer = TypeVar("_Answer")

TESTS = Path(__file__).parents[2]
TELLER = "harness.agents.teller:teller"
BUYER = "harness.agents.buyer:buyer"
ECHO = "trunkline_agents.echo.agent:echo"
LEASE_S = 2.0
_ENDED_STATE = "SELECT state FROM trunkline_tasks WHERE task_id = $1 AND ended_ns > 0"
RESUME = {"A2A-Extensions": RESUME_EXTENSION}
WHOLE = "once upon a time"


@dataclass
class Machines:
    """A bridge, and two agents on machines of their own."""

    mesh: GrpcMesh
    first: KillableAgent
    other: KillableAgent

    def variant(self, spoken: tuple[str, type[ProtocolVariant]]) -> ProtocolVariant:
        """A client of the first machine's agent by one version over one binding."""
        return find_variant(self.mesh, spoken, RESUME)


@asynccontextmanager
async def open_machines(
    folder: Path, *, first: str = TELLER, other: str, patience_s: float = PATIENCE_S
) -> AsyncIterator[Machines]:
    """Start an agent on the first machine. `other` runs on the second one when it is started."""
    settings = Settings(
        default_agent=first.rpartition(":")[2],
        patience_s=patience_s,
        allow_webhook=("127.0.0.1",),
    )
    async with (
        new_database() as url,
        open_bridged_mesh(folder, settings, lease_s=LEASE_S) as bridged,
        open_bridge_grpc(bridged) as mesh,
        AsyncExitStack() as stack,
    ):
        environment = {
            "TELLER_FOLDER": str(folder),
            "TRUNKLINE_STORE": url,
            "TRUNKLINE_LEASE_S": str(LEASE_S),
        }

        def machine(number: int, place: str) -> KillableAgent:
            return KillableAgent(
                bridged.mesh,
                place.rpartition(":")[2],
                (*COMMAND, "serve", "agents", "--agent", place),
                folder / f"machine-{number}",
                stack,
                TESTS,
                environment,
            )

        machines = Machines(mesh, machine(1, first), machine(2, other))
        await machines.first.start()
        yield machines


async def retry_refused(call: Callable[[], Awaitable[_Answer]]) -> _Answer:
    """Return the result of a call as soon as a host answers it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await call()
            except (RefusedError, PeerError) as error:
                if isinstance(error, RefusedError) and error.reason != "UNAVAILABLE":
                    raise
                await asyncio.sleep(0.05)


async def refuse(_received: ReceivedPost) -> bytes:
    return status(500)


def texts(events: Sequence[TaskView]) -> str:
    return "".join(event.text for event in events)


async def test_an_ended_task_of_a_killed_host_is_shown_in_each_version(tmp_path: Path) -> None:
    async with open_machines(tmp_path, other=ECHO) as machines:
        await machines.other.start()
        (tmp_path / "began").touch()
        first = machines.variant(SPOKEN[0])
        events = await first.streamed("same")
        task_id = next(event.task for event in events if event.task)
        chosen = await machines.variant(SPOKEN[-1]).send("same", task="chosen")
        ended = await first.get(task_id)
        assert ended.text == chosen.text == WHOLE

        await machines.first.kill()

        # Lists are complete, also while the mesh does not know of the death.
        for _ in range(5):
            page = await list_mesh_tasks(
                machines.mesh.bridged.mesh.directory, task_service_pb2.ListTasksRequest()
            )
            assert len(page.tasks) == 2
            assert task_id in {row.task_id for row in page.tasks}
            assert not page.is_incomplete
        assert await first.get(task_id) == ended
        for spoken in SPOKEN:
            client = machines.variant(spoken)
            seen = await client.get(task_id)
            assert (seen.state, seen.text) == ("completed", WHOLE), name_of(spoken)
            for number, event in enumerate(events):
                resumed = {**RESUME, "Last-Event-ID": event.id}
                async with client.subscribe(task_id, headers=resumed) as stream:
                    rest = [each async for each in stream]
                expected = events[number + 1 :]
                assert texts(rest) == texts(expected), name_of(spoken)
                assert [each.id for each in rest] == [each.id for each in expected]
        assert (await machines.variant(SPOKEN[-1]).get("chosen")).text == WHOLE


async def test_the_tasks_of_a_frozen_host_are_read_at_another_one(tmp_path: Path) -> None:
    async with open_machines(tmp_path, first=ECHO, other=BUYER) as machines:
        await machines.other.start()
        first = machines.variant(SPOKEN[0])
        task_id = (await first.send("hello")).task
        directory = machines.mesh.bridged.mesh.directory

        with machines.first.frozen():
            began_s = time.monotonic()
            assert (await first.get(task_id)).task == task_id
            page = await list_mesh_tasks(directory, task_service_pb2.ListTasksRequest())
            # Unanswered pings would show it after 15 s.
            assert time.monotonic() - began_s < 7
        assert [row.task_id for row in page.tasks] == [task_id]


async def test_a_stream_of_a_killed_host_shows_all_of_its_task(tmp_path: Path) -> None:
    async with open_machines(tmp_path, other=TELLER) as machines:
        fold, ids = ClientFold(), []
        request = {"message": user_message("same")}
        async with sse(machines.mesh.bridged.url, "/", "SendStreamingMessage", request) as stream:
            async for event in stream.events():
                fold.apply(event)
                ids.append(event.id)
                if list(fold.texts.values()) == ["once upon "]:
                    break
            await machines.first.kill()
            await machines.other.start()
            async for event in stream.events():
                fold.apply(event)
                ids.append(event.id)
        assert list(fold.texts.values()) == [WHOLE]
        assert fold.state == "TASK_STATE_COMPLETED"
        assert len(set(ids)) == len(ids)
        for spoken in SPOKEN:
            assert (await machines.variant(spoken).get(fold.task_id)).text == WHOLE


async def test_a_question_of_a_killed_host_is_answered_on_another_machine(tmp_path: Path) -> None:
    async with open_machines(tmp_path, first=ECHO, other=ECHO) as machines:
        first = machines.variant(SPOKEN[0])
        asked = await first.send("ask your name?")
        unwanted = await first.send("ask what?")
        assert asked.state == unwanted.state == "input-required"

        await machines.first.kill()
        await machines.other.start()

        answered = await retry_refused(lambda: first.send("Ann", task=asked.task))
        assert (answered.task, answered.state) == (asked.task, "completed")
        canceled = await retry_refused(lambda: first.cancel(unwanted.task))
        assert canceled.state == "canceled"


async def test_approvals_and_webhooks_of_a_killed_host_are_listed_and_answered(
    tmp_path: Path,
) -> None:
    async with open_machines(tmp_path, first=BUYER, other=ECHO) as machines:
        await machines.other.start()
        first = machines.variant(SPOKEN[0])
        directory = machines.mesh.bridged.mesh.directory
        asked = await first.send("a boat")
        hook = {"taskId": asked.task, "id": "hook", "url": WEBHOOK_URL}
        url = machines.mesh.bridged.url
        created_hook = await call(url, "/", "CreateTaskPushNotificationConfig", hook)
        assert "result" in created_hook, created_hook
        for task_id in ("", asked.task):
            shown = await list_mesh_webhooks(directory, task_id)
            (listed,) = filter(None, shown.answers)
            assert [each.config.id for each in listed] == ["hook"]

        await machines.first.kill()

        # Before and after the end of the lease, and while no host runs the agent.
        for is_lost in (False, True):
            await directory.wait_until(
                lambda d: bool(d.lost_hosts) is is_lost,  # noqa: B023
                timeout_s=PATIENCE_S,
            )
            webhooks = await list_mesh_webhooks(directory)
            assert [each.config.id for answer in webhooks.answers for each in answer] == ["hook"]
            of_task = await retry_refused(
                lambda: directory.client_for_task(asked.task).list_webhooks(asked.task)
            )
            assert [each.config.url for each in of_task] == [hook["url"]]
            approvals = await query_hosts(
                directory, lambda host: list_open_approvals(host, ""), one_per_store=True
            )
            found = [each for answer in approvals.answers for each in answer]
            assert [each.root.task.id for each in found] == [asked.task]
            assert not webhooks.failures
            assert not approvals.failures
        assert directory.missing_hosts == ()

        await machines.first.start()
        done = await retry_refused(lambda: first.send("approve", task=asked.task))
        assert (done.state, done.text) == ("completed", "bought: APPROVED")


@pytest.mark.parametrize("is_killed", [False, True])
async def test_tasks_and_webhooks_outlive_the_last_host_of_their_agent(
    tmp_path: Path, *, is_killed: bool
) -> None:
    async with (
        open_receiver(refuse) as receiver,
        open_machines(tmp_path, first=ECHO, other=BUYER) as machines,
    ):
        await machines.other.start()
        directory = machines.mesh.bridged.mesh.directory
        hook = {"taskPushNotificationConfig": {"url": receiver.url}}
        request = {"message": user_message("hello"), "configuration": hook}
        answer = await call(machines.mesh.bridged.url, "/", "SendMessage", request)
        task_id = answer["result"]["task"]["id"]
        await receiver.until(lambda seen: seen.all)

        await (machines.first.kill() if is_killed else machines.first.stop())
        await directory.wait_until(
            lambda known: len(known.hosts) == 1 and not known.lost_hosts, timeout_s=PATIENCE_S
        )

        found = await list_mesh_webhooks(directory)
        assert [each.config.task_id for answer in found.answers for each in answer] == [task_id]
        receiver.decide = accept
        await receiver.until(lambda seen: seen.accepted)
        # Also a bridge that has never heard of the agent finds its tasks.
        async with (
            ChannelPool(mesh_credentials()) as channels,
            Directory(channels, machines.mesh.bridged.mesh.registry_address) as new,
        ):
            app = Bridge(new, Settings(default_agent="echo")).http
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(transport=transport) as client:
                caller = Caller(client, "http://bridge")
                assert (await caller.call("GetTask", {"id": task_id}))["id"] == task_id
                listed = await caller.call("ListTasks", {})
                assert [each["id"] for each in listed["tasks"]] == [task_id]
                unknown = Caller(client, "http://bridge/agents/unknown")
                refusal = await unknown.error("ListTasks", {})
                assert refusal["data"][0]["reason"] == "AGENT_NOT_FOUND"
                count = await query_task(
                    new,
                    task_id,
                    lambda host: host.replay_webhook(task_id, "", from_start=True),
                )
                assert count == 1


async def test_each_operation_on_a_task_between_two_owners(tmp_path: Path) -> None:
    async with open_machines(tmp_path, first=BUYER, other=ECHO, patience_s=0.5) as machines:
        await machines.other.start()
        first = machines.variant(SPOKEN[0])
        url = machines.mesh.bridged.url
        directory = machines.mesh.bridged.mesh.directory
        task_id = (await first.send("a boat")).task
        hook = {"taskId": task_id, "id": "hook", "url": WEBHOOK_URL}
        created_hook = await call(url, "/", "CreateTaskPushNotificationConfig", hook)
        assert "result" in created_hook, created_hook
        answer = {"message": user_message("approve", messageId="the-answer", taskId=task_id)}
        reads: dict[str, Json] = {
            "GetTask": {"id": task_id},
            "ListTasks": {},
            "SubscribeToTask": {"id": task_id},
            "GetTaskPushNotificationConfig": {"taskId": task_id, "id": "hook"},
            "ListTaskPushNotificationConfigs": {"taskId": task_id},
        }
        writes: dict[str, Json] = {
            "SendMessage": answer,
            "SendStreamingMessage": answer,
            "CancelTask": {"id": task_id},
            "CreateTaskPushNotificationConfig": {**hook, "id": "new"},
            "DeleteTaskPushNotificationConfig": {"taskId": task_id, "id": "hook"},
        }
        streams = {
            each.wire.name for each in SERVED_OPERATIONS if isinstance(each, StreamOperation)
        }
        names = {each.wire.name for each in SERVED_OPERATIONS}
        assert names - {"GetExtendedAgentCard"} == {*reads, *writes}

        async def outcome(method: str, params: Json) -> tuple[int, bool]:
            """Return the status of a call, and whether it says when to try again."""
            if method not in streams:
                status, headers, _ = await send(url, "/", method, params)
                return status, "retry-after" in headers
            try:
                async with sse(url, "/", method, params) as stream:
                    return stream.status, False
            except RefusedStreamError as error:
                return error.status, "retry-after" in error.headers

        await machines.first.kill()

        # Before the end of the lease, and while no host runs the agent.
        for is_lost in (False, True):
            await directory.wait_until(
                lambda d: is_lost <= bool(d.lost_hosts),  # noqa: B023
                timeout_s=PATIENCE_S,
            )
            seen = {name: await outcome(name, params) for name, params in reads.items()}
            assert seen == dict.fromkeys(reads, (200, False))
            for path in (f"tasks/{task_id}", f"tasks/{task_id}/wire", "tasks", "webhooks"):
                page = await machines.mesh.bridged.client.get(f"{url}/ui/api/{path}")
                assert page.status_code == 200, page.text
                assert task_id in page.text
            outcomes = {name: await outcome(name, params) for name, params in writes.items()}
            assert outcomes == dict.fromkeys(writes, (503, True))
        listed = await call(url, "/", "ListTasks", reads["ListTasks"])
        assert [each["id"] for each in listed["result"]["tasks"]] == [task_id]

        # A refused write has changed nothing, and can be repeated.
        await machines.first.start()
        for name in ("CreateTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig"):
            await poll(
                lambda: outcome(name, writes[name]),  # noqa: B023
                lambda found: found == (200, False),
            )
        hooks = await call(url, "/", "ListTaskPushNotificationConfigs", {"taskId": task_id})
        assert [each["id"] for each in hooks["result"]["configs"]] == ["new"]
        done = await retry_refused(lambda: first.send("approve", task=task_id))
        assert (done.state, done.text) == ("completed", "bought: APPROVED")


async def test_a_child_of_a_host_that_was_never_seen_is_canceled_at_once(tmp_path: Path) -> None:
    """The mesh was restarted after the child's host had died."""
    # No other takeover comes within the time of the test.
    settings = Settings(data_dir=tmp_path, lease_s=600.0)
    async with (
        new_database() as url,
        PostgresDatabase(url) as database,
        open_small_mesh(tmp_path) as mesh,
        AsyncExitStack() as stack,
    ):
        until_s = datetime.now(UTC).timestamp() + 600
        own = await HostJournals(settings, database).open_own("echo", {"echo"})
        other = await HostJournals(settings, database).open_own("echo", {"echo"})
        child_id = other.journal.new_task_id()
        await other.journal.create(child_id, created())
        await own.journal.add_orphaned_child(OrphanedChild(child_id, "acme", until_s))
        await other.journal.close(for_takeover=True)
        await own.journal.close()

        journals = HostJournals(settings, database)
        host = await stack.enter_async_context(
            open_host(
                [echo],
                directory=mesh.directory,
                settings=settings,
                journals=journals,
                database=database,
            )
        )
        assert host.journal.id == own.journal.id
        server = MeshServer(mesh_credentials())
        add_host_services(server, host)
        (address,) = await server.start("127.0.0.1:0")
        stack.push_async_callback(server.stop, 0)
        await stack.enter_async_context(
            open_membership(
                host,
                mesh.directory,
                address=address,
                settings=settings,
                journals=journals,
            )
        )
        (row,) = await poll(lambda: database.fetch(_ENDED_STATE, child_id))
        assert row["state"] == task_pb2.TASK_STATE_CANCELED
