"""Hosts register, renew, fall silent and leave, and every watcher sees it."""

import asyncio
import errno
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import free_address
from harness.polling import wait_for
from trunkline.core.identity import Identity, Role
from trunkline.core.settings import Settings
from trunkline.core.small_files import FolderFiles
from trunkline.errors import (
    AgentNotFoundError,
    ConfigurationError,
    HostNotFoundError,
    JournalUnavailableError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskNotFoundError,
)
from trunkline.mesh.client import ChannelPool, Directory, RegistryClient, run_in_background
from trunkline.mesh.client.methods import read_responses
from trunkline.mesh.registry import Membership, RegistryServicer
from trunkline.mesh.server import MeshServer
from trunkline.mesh.server.authorization import caller
from trunkline.observe.audit import AuditLog, open_audit_log, read_records
from trunkline.v1 import registry_service_pb2, registry_service_pb2_grpc

# Far longer than any wait takes, so that only a hang reaches it.
PATIENCE_S = 300.0


def host(
    name: str, *agents: str, address: str = "", journal_id: str = "", service: str = ""
) -> registry_service_pb2.Host:
    result = registry_service_pb2.Host(
        host_id=name,
        address=address or f"{name}.example:50051",
        journal_ids=[journal_id] if journal_id else [],
        services=[service] if service else [],
    )
    for agent in agents:
        result.agents.add(routable=True).card.name = agent
    return result


def names(
    hosts: Sequence[registry_service_pb2.Host] | registry_service_pb2.WatchAgentsResponse,
) -> list[str]:
    if isinstance(hosts, registry_service_pb2.WatchAgentsResponse):
        hosts = hosts.hosts
    return [each.host_id for each in hosts]


@asynccontextmanager
async def registry_at(
    address: str = "127.0.0.1:0",
    *,
    lease_s: float = 10.0,
    kind: type[RegistryServicer] = RegistryServicer,
    grace_s: float = 0.0,
    folder: Path | None = None,
    audit: AuditLog | None = None,
) -> AsyncIterator[str]:
    server = MeshServer(mesh_credentials())
    files = None if folder is None else FolderFiles(folder.parent, folder.name)
    async with kind(lease_s=lease_s, audit=audit, folder=folder, files=files) as registry:
        server.add_registry(registry)
        (bound,) = await server.start(address)
        try:
            yield bound
        finally:
            await server.stop(grace_s)


class EarlierRegistry(RegistryServicer):
    """A registry of an earlier release, which knows only single renewals."""

    async def HoldLease(  # noqa: N802  gRPC's name
        self, _requests: AsyncIterator[registry_service_pb2.HoldLeaseRequest], context: Any
    ) -> registry_service_pb2.HoldLeaseResponse:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such method")
        raise AssertionError


@pytest.fixture
async def channels() -> AsyncIterator[ChannelPool]:
    async with ChannelPool(mesh_credentials()) as channels:
        yield channels


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with registry_at() as address:
        yield address


@pytest.fixture
def client(channels: ChannelPool, address: str) -> RegistryClient:
    return RegistryClient(channels.get(address))


@pytest.fixture
async def directory(channels: ChannelPool, address: str) -> AsyncIterator[Directory]:
    async with Directory(channels, address) as directory:
        yield directory


async def wait_until_unreachable(directory: Directory) -> PeerUnavailableError:
    """Wait until a directory notices that its registry is unreachable; return its error."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await directory.wait_until(lambda d: len(d.hosts) == 2, timeout_s=0.05)
            except PeerTimeoutError:
                continue
            except PeerUnavailableError as away:
                return away


async def test_a_registered_host_is_listed_with_the_end_of_its_lease(
    client: RegistryClient,
) -> None:
    assert await client.register(host("h-1", "math")) == 10.0
    (listed,) = await client.list_agents()
    assert listed.lease_expire_time.seconds > 0
    listed.ClearField("lease_expire_time")
    assert listed.identity == str(mesh_credentials().identity)
    listed.ClearField("identity")
    assert listed == host("h-1", "math")


async def test_any_number_of_hosts_may_run_an_agent(
    client: RegistryClient, directory: Directory
) -> None:
    for name in ("h-1", "h-2", "h-3"):
        await client.register(host(name, "math"))
    await directory.wait_until(lambda d: len(d.hosts) == 3, timeout_s=PATIENCE_S)
    assert names(directory.list_replicas("math")) == ["h-1", "h-2", "h-3"]
    for _ in range(2):
        await client.deregister("h-1")
    await directory.wait_until(lambda d: len(d.hosts) == 2, timeout_s=PATIENCE_S)
    assert {directory.choose_host("math").host_id for _ in range(100)} == {"h-2", "h-3"}


async def test_the_newest_complete_card_of_the_replicas_is_the_agent_s(
    client: RegistryClient, directory: Directory
) -> None:
    for number, is_pending in enumerate((False, False, True)):
        replica = host(f"h-{number}", "math")
        replica.agents[0].card.version = str(number)
        replica.agents[0].card_pending = is_pending
        await client.register(replica)
    await directory.wait_until(lambda d: len(d.hosts) == 3, timeout_s=PATIENCE_S)
    assert directory.get_agent("math").card.version == "1"
    assert [agent.card.version for agent in directory.list_agents().values()] == ["1"]


async def test_a_renewal_reports_the_load_to_the_directories(
    client: RegistryClient, directory: Directory
) -> None:
    for name in ("h-1", "h-2"):
        await client.register(host(name, "math"))
    await directory.wait_until(lambda d: len(d.hosts) == 2, timeout_s=PATIENCE_S)
    revision = directory.revision
    await client.keep_alive("h-1", registry_service_pb2.HostLoad(open_turns=1000))
    await wait_for(lambda: directory.hosts[0].load.open_turns == 1000)
    assert {directory.choose_host("math").host_id for _ in range(100)} == {"h-2"}
    leaving = registry_service_pb2.HostLoad(refuses_tasks=True)
    await client.keep_alive("h-2", leaving)
    await wait_for(lambda: directory.hosts[1].load.refuses_tasks)
    assert {directory.choose_host("math").host_id for _ in range(100)} == {"h-1"}
    # If no replica accepts tasks, a host that refuses one tells the reason.
    await client.keep_alive("h-1", leaving)
    await wait_for(lambda: directory.hosts[0].load.refuses_tasks)
    assert {directory.choose_host("math").host_id for _ in range(100)} == {"h-1", "h-2"}
    assert directory.revision == revision


async def test_watchers_get_loads_seldom_and_only_on_request(channels: ChannelPool) -> None:
    async with registry_at() as address:
        client = RegistryClient(channels.get(address))
        stub = registry_service_pb2_grpc.RegistryServiceStub(channels.get(address))
        await client.register(host("h-1", "math"))
        reported: list[int] = []
        earlier_build: list[registry_service_pb2.WatchAgentsResponse] = []

        async def read_loads() -> None:
            async for response in client.watch_agents():
                assert bool(response.hosts) is not bool(response.loads)
                reported.extend(load.open_turns for load in response.loads.values())

        async def read_hosts() -> None:
            request = registry_service_pb2.WatchAgentsRequest()
            async for response in read_responses(stub.WatchAgents(request)):
                earlier_build.append(response)  # noqa: PERF401  read until the block ends

        async with run_in_background(read_loads()), run_in_background(read_hosts()):
            began_s = time.monotonic()
            for number in range(1, 201):
                load = registry_service_pb2.HostLoad(open_turns=number)
                await client.keep_alive("h-1", load)
                await asyncio.sleep(0.005)
            await wait_for(lambda: 200 in reported)
            took_s = time.monotonic() - began_s
            assert len(reported) <= took_s / 0.5 + 1
            # Renewals that change nothing are not passed on.
            count = len(reported)
            for _ in range(10):
                await client.keep_alive("h-1", load)
                await asyncio.sleep(0.1)
            assert len(reported) == count
        assert len(earlier_build) == 1


async def test_a_restarted_host_replaces_the_old_one_at_its_address(client: RegistryClient) -> None:
    await client.register(host("h-1", "math", address="127.0.0.1:7001"))
    await client.register(host("h-2", "math", address="127.0.0.1:7001"))
    assert names(await client.list_agents()) == ["h-2"]
    with pytest.raises(HostNotFoundError):
        await client.keep_alive("h-1")


async def test_a_watcher_gets_all_hosts_at_once_and_after_each_change(
    client: RegistryClient,
) -> None:
    await client.register(host("h-1", "math"))
    async with aclosing(client.watch_agents()) as pictures:
        assert names(await anext(pictures)) == ["h-1"]
        await client.register(host("h-2", "echo"))
        assert names(await anext(pictures)) == ["h-1", "h-2"]
        await client.keep_alive("h-1")
        await client.deregister("h-1")
        assert names(await anext(pictures)) == ["h-2"]


async def test_a_silent_host_disappears_for_every_watcher_when_its_lease_ends(
    channels: ChannelPool,
) -> None:
    async with registry_at(lease_s=0.3) as address:
        client = RegistryClient(channels.get(address))
        assert await client.register(host("h-1", "math")) == pytest.approx(0.3)
        async with aclosing(client.watch_agents()) as pictures, asyncio.timeout(PATIENCE_S):
            assert names(await anext(pictures)) == ["h-1"]
            # The list may become complete first, which is an update as well.
            while names(await anext(pictures)):
                pass
        with pytest.raises(HostNotFoundError):
            await client.keep_alive("h-1")
        assert await client.list_agents() == []


async def test_the_holder_of_a_lease_learns_that_it_expired(channels: ChannelPool) -> None:
    async with registry_at(lease_s=0.3) as address, asyncio.timeout(PATIENCE_S):
        client = RegistryClient(channels.get(address))
        await client.register(host("h-1", "math"))
        with pytest.raises(HostNotFoundError):
            await client.hold_lease("h-1", every_s=0.6)


async def test_a_registry_that_stops_does_not_wait_for_held_leases(channels: ChannelPool) -> None:
    is_held = asyncio.Event()

    class Registry(RegistryServicer):
        async def HoldLease(  # noqa: N802  gRPC's name
            self, requests: AsyncIterator[registry_service_pb2.HoldLeaseRequest], context: Any
        ) -> registry_service_pb2.HoldLeaseResponse:
            is_held.set()
            return await super().HoldLease(requests, context)

    async def hold(client: RegistryClient) -> None:
        with pytest.raises(PeerUnavailableError):
            await client.hold_lease("h-1", every_s=PATIENCE_S)

    async with (
        asyncio.timeout(PATIENCE_S),
        asyncio.TaskGroup() as group,
        registry_at(kind=Registry, grace_s=2 * PATIENCE_S) as address,
    ):
        client = RegistryClient(channels.get(address))
        await client.register(host("h-1"))
        group.create_task(hold(client))
        await is_held.wait()


@pytest.mark.parametrize("kind", [RegistryServicer, EarlierRegistry])
async def test_a_member_stays_listed_beyond_a_lease_and_leaves_at_its_end(
    channels: ChannelPool, kind: type[RegistryServicer]
) -> None:
    async with registry_at(lease_s=1.0, kind=kind) as address:
        client = RegistryClient(channels.get(address))
        async with aclosing(client.watch_agents()) as pictures, asyncio.timeout(PATIENCE_S):
            assert names(await anext(pictures)) == []
            async with Membership([client], host("h-1", "math")) as member:
                assert member.registered.is_set()
                assert names(await anext(pictures)) == ["h-1"]
                # Another host's lease, taken later, expires while h-1 is still listed. (On a
                # machine frozen for long enough to lose h-1 as well, h-1 is listed again.)
                await client.register(host("h-2"))
                assert names(await anext(pictures)) == ["h-1", "h-2"]
                async for picture in pictures:
                    if names(picture) == ["h-1"]:
                        break
            assert names(await anext(pictures)) == []


async def test_watchers_learn_of_an_ended_lease_that_another_call_noticed() -> None:
    request = registry_service_pb2.ListAgentsRequest()
    watched = registry_service_pb2.WatchAgentsRequest()
    context: Any = None
    caller.set(Identity("mesh", Role.MEMBER))
    async with RegistryServicer(lease_s=0.2) as registry, asyncio.timeout(PATIENCE_S):
        updates = registry.WatchAgents(watched, context)

        async def read_next() -> registry_service_pb2.WatchAgentsResponse:
            return await anext(updates)

        while (await read_next()).is_partial:
            pass
        await registry.Register(registry_service_pb2.RegisterRequest(host=host("h-1")), context)
        assert names(await read_next()) == ["h-1"]
        async with asyncio.TaskGroup() as group:
            seen = group.create_task(read_next())
            # Without a pause, so that the lease ends in this call, before the timer is due.
            while not seen.done():
                await registry.ListAgents(request, context)
                await asyncio.sleep(0)
        assert names(seen.result()) == []


async def test_a_member_registers_again_when_the_registry_was_restarted(
    channels: ChannelPool,
) -> None:
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        async with registry_at(free_address(), lease_s=1.0) as address:
            directory = await stack.enter_async_context(Directory(channels, address))
            member = Membership([RegistryClient(channels.get(address))], host("h-1", "math"))
            await stack.enter_async_context(member)
            await directory.wait_until(lambda d: bool(d.hosts), timeout_s=PATIENCE_S)
        seen = directory.revision
        async with registry_at(address, lease_s=1.0):
            # The directory reconnects by itself. Until then, calls on its channel are refused.
            await directory.wait_until(lambda d: d.revision > seen, timeout_s=PATIENCE_S)
            client = RegistryClient(channels.get(address))
            async with aclosing(client.watch_agents()) as pictures:
                async for picture in pictures:
                    if names(picture) == ["h-1"]:
                        break
            # The first update of a new registry may come before the member's registration.
            await directory.wait_until(
                lambda d: d.revision > seen and names(d.hosts) == ["h-1"], timeout_s=PATIENCE_S
            )
            await stack.aclose()
            assert await client.list_agents() == []


async def test_a_changed_registration_replaces_the_previous_one(channels: ChannelPool) -> None:
    async with registry_at() as address, asyncio.timeout(PATIENCE_S):
        client = RegistryClient(channels.get(address))
        async with Membership([client], host("h-1", "math", journal_id="h-1")) as member:
            registration = host("h-1", "math", journal_id="h-1")
            registration.journal_ids.append("h-0")
            member.update(registration)
            assert not member.registered.is_set()
            await member.registered.wait()
            (known,) = await client.list_agents()
            assert list(known.journal_ids) == ["h-1", "h-0"]


async def test_a_registration_changed_while_the_registry_is_down_is_sent_later(
    channels: ChannelPool,
) -> None:
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        async with registry_at(free_address(), lease_s=1.0) as address:
            client = RegistryClient(channels.get(address))
            member = await stack.enter_async_context(Membership([client], host("h-1", "math")))
        member.update(host("h-1", "echo"))
        async with registry_at(address, lease_s=1.0):
            await member.registered.wait()
            (known,) = await client.list_agents()
            assert [agent.card.name for agent in known.agents] == ["echo"]
            await stack.aclose()


async def test_hosts_of_a_restarted_registry_are_not_declared_dead_before_they_return(
    channels: ChannelPool,
) -> None:
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        async with registry_at(free_address()) as address:
            client = RegistryClient(channels.get(address))
            for name in ("h-1", "h-2", "h-3"):
                await client.register(host(name, f"agent-of-{name}", journal_id=f"j-{name}"))
            directory = await stack.enter_async_context(Directory(channels, address))
            await directory.wait_until(lambda d: len(d.hosts) == 3, timeout_s=PATIENCE_S)
        seen = directory.revision
        async with registry_at(address, lease_s=2.0):
            await stack.enter_async_context(Membership([client], host("h-1", journal_id="j-h-1")))
            # It took over h-2's journal; h-3 is dead, which shows after a lease.
            replacement = host("h-4", "another", journal_id="j-h-2")
            await stack.enter_async_context(Membership([client], replacement))
            pictures = []
            while names(directory.hosts) != ["h-1", "h-4"]:
                seen = await directory.wait_for_change(seen)
                pictures.append(names(directory.hosts))
            *before, last = pictures
            assert before[-1] == ["h-1", "h-4", "h-3"]
            for picture in before:
                assert {"h-1", "h-3"} < set(picture)
                assert len({"h-2", "h-4"} & set(picture)) == 1
            assert last == ["h-1", "h-4"]
            await stack.aclose()


async def test_a_member_retries_while_the_registry_is_down(
    channels: ChannelPool, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 0
    tried_often = asyncio.Event()

    class CountedClient(RegistryClient):
        async def register(self, host: registry_service_pb2.Host) -> float:
            nonlocal tries
            tries += 1
            if tries == 4:
                tried_often.set()
            return await super().register(host)

    # No server listens on port 1.
    client = CountedClient(channels.get("127.0.0.1:1"))
    async with Membership([client], host("h-1")) as member, asyncio.timeout(PATIENCE_S):
        await tried_often.wait()
        assert not member.registered.is_set()
    assert caplog.messages.count("registry.refused") == 1


async def test_an_exception_in_a_member_s_block_is_raised_unchanged(client: RegistryClient) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with Membership([client], host("h-1")):
            raise KeyError("mine")
    assert await client.list_agents() == []


async def test_a_directory_finds_agents_tasks_and_services(
    client: RegistryClient, directory: Directory, channels: ChannelPool
) -> None:
    await client.register(
        host("h-1", "math", "echo", journal_id="aaaaaaaa", service="trunkline.v1.ToolService")
    )
    await client.register(host("h-2", "currency", journal_id="bbbbbbbb"))
    await directory.wait_until(lambda d: len(d.hosts) == 2, timeout_s=PATIENCE_S)
    assert list(directory.list_agents()) == ["currency", "echo", "math"]
    assert directory.get_agent("echo").card.name == "echo"
    assert directory.choose_host("currency").host_id == "h-2"
    assert directory.get_task_host("aaaaaaaa-0123456789abcdef").host_id == "h-1"
    assert directory.client_for_agent("math") is directory.client_for_task(
        "aaaaaaaa-0123456789abcdef"
    )
    channel = directory.channel_for_service("trunkline.v1.ToolService")
    assert channel is channels.get("h-1.example:50051")


async def test_a_service_is_called_at_a_host_of_which_the_last_call_did_not_fail(
    client: RegistryClient, directory: Directory, channels: ChannelPool
) -> None:
    service = "trunkline.v1.ToolService"
    for name in ("h-1", "h-2"):
        await client.register(host(name, service=service))
    await directory.wait_until(lambda d: len(d.hosts) == 2, timeout_s=PATIENCE_S)
    older, newest = (channels.get(f"h-{number}.example:50051") for number in (1, 2))
    assert directory.channel_for_service(service) is newest
    newest.breaker.on_failure("it was killed")
    assert directory.channel_for_service(service) is older
    older.breaker.on_failure("it was killed, too")
    assert directory.channel_for_service(service) is newest


async def test_a_directory_raises_for_unknown_names(
    client: RegistryClient, directory: Directory
) -> None:
    await client.register(host("h-1", "math", journal_id="aaaaaaaa"))
    await directory.wait_until(lambda d: bool(d.hosts), timeout_s=PATIENCE_S)
    with pytest.raises(AgentNotFoundError):
        directory.client_for_agent("nobody")
    with pytest.raises(TaskNotFoundError):
        directory.client_for_task("zzzzzzzz-0123456789abcdef")
    with pytest.raises(PeerUnavailableError, match="no host on the mesh serves it"):
        directory.channel_for_service("trunkline.v1.ToolService")


async def test_a_task_of_a_host_that_left_is_unavailable_and_not_unknown(
    client: RegistryClient, directory: Directory
) -> None:
    await client.register(host("h-1", "math", journal_id="aaaaaaaa"))
    await directory.wait_until(lambda d: bool(d.hosts), timeout_s=PATIENCE_S)
    await client.deregister("h-1")
    await directory.wait_until(lambda d: not d.hosts, timeout_s=PATIENCE_S)
    with pytest.raises(PeerUnavailableError) as excinfo:
        directory.client_for_task("aaaaaaaa-0123456789abcdef")
    assert excinfo.value.peer == "h-1.example:50051"
    with pytest.raises(AgentNotFoundError):
        directory.get_agent("math")


def with_store(
    name: str, *agents: str, journal_id: str, store_id: str
) -> registry_service_pb2.Host:
    member = host(name, *agents, journal_id=journal_id)
    member.store_id = store_id
    return member


async def test_a_task_of_a_host_that_left_is_read_at_a_host_of_the_same_store(
    client: RegistryClient, directory: Directory
) -> None:
    await client.register(with_store("h-1", "math", journal_id="aaaaaaaa", store_id="one"))
    await client.register(with_store("h-2", "echo", journal_id="bbbbbbbb", store_id="one"))
    await client.register(with_store("h-3", "math", journal_id="cccccccc", store_id="two"))
    await client.register(host("h-4", "math", journal_id="dddddddd"))
    await directory.wait_until(lambda d: len(d.hosts) == 4, timeout_s=PATIENCE_S)
    assert directory.get_task_host("aaaaaaaa-0123456789abcdef").host_id == "h-1"
    groups = directory.group_by_store(directory.hosts)
    assert sorted(sorted(names(group)) for group in groups) == [["h-1", "h-2"], ["h-3"], ["h-4"]]

    await client.deregister("h-1")
    await directory.wait_until(lambda d: len(d.hosts) == 3, timeout_s=PATIENCE_S)
    assert directory.get_task_host("aaaaaaaa-0123456789abcdef").host_id == "h-2"
    # A host that can continue the task is preferred.
    await client.register(with_store("h-5", "math", journal_id="eeeeeeee", store_id="one"))
    await directory.wait_until(lambda d: len(d.hosts) == 4, timeout_s=PATIENCE_S)
    for _ in range(10):
        assert directory.get_task_host("aaaaaaaa-0123456789abcdef").host_id == "h-5"

    await client.deregister("h-2")
    await client.deregister("h-5")
    await directory.wait_until(lambda d: len(d.hosts) == 2, timeout_s=PATIENCE_S)
    with pytest.raises(PeerUnavailableError, match="the task's host has left"):
        directory.get_task_host("aaaaaaaa-0123456789abcdef")


async def test_a_task_of_a_host_that_does_not_answer_is_read_elsewhere(
    client: RegistryClient, directory: Directory, channels: ChannelPool
) -> None:
    await client.register(with_store("h-1", "math", journal_id="aaaaaaaa", store_id="one"))
    await client.register(with_store("h-2", "echo", journal_id="bbbbbbbb", store_id="one"))
    await directory.wait_until(lambda d: len(d.hosts) == 2, timeout_s=PATIENCE_S)
    breaker = channels.breakers.get("h-1.example:50051")
    while breaker.state == "closed":
        breaker.on_failure("refused")
    assert directory.get_task_host("aaaaaaaa-0123456789abcdef").host_id == "h-2"
    assert names(directory.group_by_store(directory.hosts)[0]) == ["h-2", "h-1"]


@asynccontextmanager
async def restarted_registry(
    channels: ChannelPool, folder: Path, *, lease_s: float = 10.0
) -> AsyncIterator[tuple[RegistryClient, Directory]]:
    """Restart a registry that knew host h-1; open a client and a directory of the new one."""
    async with asyncio.timeout(PATIENCE_S):
        async with registry_at(folder=folder) as address:
            registry = RegistryClient(channels.get(address))
            await registry.register(host("h-1", "math", journal_id="aaaaaaaa"))
        async with (
            registry_at(folder=folder, lease_s=lease_s) as address,
            Directory(channels, address) as directory,
        ):
            yield RegistryClient(channels.get(address)), directory


async def test_nothing_is_unknown_until_the_hosts_return_to_a_restarted_registry(
    channels: ChannelPool, tmp_path: Path
) -> None:
    async with restarted_registry(channels, tmp_path) as (registry, directory):
        await registry.register(host("h-2", "echo", journal_id="bbbbbbbb"))
        await directory.wait_until(lambda d: bool(d.hosts), timeout_s=PATIENCE_S)
        with pytest.raises(PeerUnavailableError, match="has left the mesh; try again"):
            directory.get_agent("math")
        with pytest.raises(PeerUnavailableError, match=r"has left the mesh, .* try again"):
            directory.get_task_host("aaaaaaaa-0123456789abcdef")
        with pytest.raises(PeerUnavailableError, match="not all hosts have registered"):
            directory.get_agent("another")
        await registry.register(host("h-1", "math", journal_id="aaaaaaaa"))
        await directory.wait_until(lambda d: len(d.hosts) == 2, timeout_s=PATIENCE_S)
        assert directory.choose_host("math").host_id == "h-1"
        with pytest.raises(AgentNotFoundError):
            directory.get_agent("nobody")
        with pytest.raises(TaskNotFoundError):
            directory.get_task_host("zzzzzzzz-0123456789abcdef")


async def test_a_host_that_does_not_return_to_a_restarted_registry_is_lost(
    channels: ChannelPool, tmp_path: Path
) -> None:
    async with restarted_registry(channels, tmp_path, lease_s=0.2) as (registry, directory):
        # The second update ends the time in which hosts may return.
        await directory.wait_until(lambda d: d.revision >= 2, timeout_s=PATIENCE_S)
        with pytest.raises(PeerUnavailableError, match="the agent's host has left"):
            directory.get_agent("math")
        with pytest.raises(PeerUnavailableError, match="the task's host has left"):
            directory.get_task_host("aaaaaaaa-0123456789abcdef")
        assert [lost.host_id for lost in directory.lost_hosts] == ["h-1"]
        assert await registry.release_journals(["aaaaaaaa"]) == ["aaaaaaaa"]
        await directory.wait_until(lambda d: not d.lost_hosts, timeout_s=PATIENCE_S)
        with pytest.raises(AgentNotFoundError):
            directory.get_agent("math")


async def test_a_host_that_left_while_a_registry_was_away_is_not_lost(
    channels: ChannelPool, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    async with asyncio.timeout(PATIENCE_S), registry_at(folder=folders[0]) as one:
        first = RegistryClient(channels.get(one))
        async with registry_at(folder=folders[1]) as two:
            for registry in (first, RegistryClient(channels.get(two))):
                for host_id, journal_id in (("h-1", "aaaaaaaa"), ("h-2", "bbbbbbbb")):
                    await registry.register(host(host_id, journal_id=journal_id))
        await first.deregister("h-1")
        async with registry_at(folder=folders[1]) as two:
            second = RegistryClient(channels.get(two))
            assert names((await second.read_hosts()).lost_hosts) == ["h-1", "h-2"]
            both, alone = Directory(channels, one, two), Directory(channels, two)
            await both.read()
            assert names(both.hosts) == ["h-2"]
            assert names(both.lost_hosts) == []
            await alone.read()
            assert names(alone.lost_hosts) == ["h-1", "h-2"]


async def test_a_host_that_no_update_has_named_yet_is_looked_up(channels: ChannelPool) -> None:
    goes_on = asyncio.Event()

    class Late(RegistryServicer):
        async def WatchAgents(  # noqa: N802  gRPC's name
            self, request: registry_service_pb2.WatchAgentsRequest, context: Any
        ) -> AsyncIterator[registry_service_pb2.WatchAgentsResponse]:
            async for update in super().WatchAgents(request, context):
                yield update
                await goes_on.wait()

    new, invented = "aaaaaaaa-0123456789abcdef", "zzzzzzzz-0123456789abcdef"
    async with (
        asyncio.timeout(PATIENCE_S),
        registry_at(kind=Late) as address,
        Directory(channels, address) as directory,
    ):
        await directory.wait_until(lambda d: d.revision == 1, timeout_s=PATIENCE_S)
        registered = host("h-1", journal_id="aaaaaaaa")
        await RegistryClient(channels.get(address)).register(registered)
        with pytest.raises(TaskNotFoundError):
            directory.get_task_host(new)
        await directory.look_up_host(new)
        await directory.look_up_host(invented)
        with pytest.raises(PeerUnavailableError):
            directory.get_task_host(new)
        with pytest.raises(TaskNotFoundError):
            directory.get_task_host(invented)
        goes_on.set()
        await directory.wait_for_change(1)
        assert directory.get_task_host(new).host_id == "h-1"


async def test_a_registry_waits_at_its_start_for_a_store_that_is_away_again(tmp_path: Path) -> None:
    class Files(FolderFiles):
        reads = 0

        async def read(self, path: str) -> bytes | None:
            self.reads += 1
            if self.reads < 3:
                raise JournalUnavailableError("database", "connection refused")
            return await super().read(path)

    files = Files(tmp_path)
    async with RegistryServicer(10.0, files=files):
        assert files.reads == 3


async def test_journals_are_released_at_all_registries_at_once(
    channels: ChannelPool, tmp_path: Path
) -> None:
    asked = asyncio.Barrier(2)

    class Registry(RegistryServicer):
        async def ReleaseJournals(  # noqa: N802  gRPC's name
            self, request: registry_service_pb2.ReleaseJournalsRequest, context: Any
        ) -> registry_service_pb2.ReleaseJournalsResponse:
            if "member" in request.names:
                await asked.wait()
            return await super().ReleaseJournals(request, context)

    async with (
        asyncio.timeout(PATIENCE_S),
        registry_at(folder=tmp_path, kind=Registry, lease_s=0.2) as one,
        registry_at(folder=tmp_path, kind=Registry, lease_s=0.2) as two,
        Directory(channels, one, two) as directory,
    ):
        for address in (one, two):
            registered = host("h-1", journal_id="aaaaaaaa")
            await RegistryClient(channels.get(address)).register(registered)
        await directory.wait_until(lambda d: names(d.lost_hosts) == ["h-1"], timeout_s=PATIENCE_S)
        # The registries share the owners, and one of them forgets the owner first.
        assert await directory.release_journals(["member"]) == ["aaaaaaaa"]
        await directory.wait_until(lambda d: not d.lost_hosts, timeout_s=PATIENCE_S)


class Disk:
    """Delays or refuses the writes of one file, as the disk of a busy or full machine does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
        self.works = threading.Event()
        self.is_full = False
        self.is_asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        replace = Path.replace

        def write(temporary: Path, target: Path) -> Path:
            if target.name == file:
                if self.is_full:
                    raise OSError(errno.ENOSPC, "no space left on device")
                if not self.works.is_set():
                    loop.call_soon_threadsafe(self.is_asked.set)
                assert self.works.wait(PATIENCE_S)
            return replace(temporary, target)

        monkeypatch.setattr(Path, "replace", write)


async def test_no_registration_waits_for_the_file_of_known_hosts(
    channels: ChannelPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, "hosts.json")
    async with asyncio.timeout(PATIENCE_S):
        async with registry_at(folder=tmp_path) as address:
            registry = RegistryClient(channels.get(address))
            try:
                await registry.register(host("h-1", "math", journal_id="aaaaaaaa"))
                await registry.register(host("h-2", journal_id="bbbbbbbb"))
                await registry.deregister("h-2")
                assert names(await registry.list_agents()) == ["h-1"]
            finally:
                disk.works.set()
        # The file is up to date when the registry ends.
        async with registry_at(folder=tmp_path) as address:
            found = await RegistryClient(channels.get(address)).read_hosts()
            assert names(found.lost_hosts) == ["h-1"]


async def test_a_registration_whose_owner_is_written_slowly_is_refused_and_then_done(
    channels: ChannelPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, "journal-owners.json")
    async with asyncio.timeout(PATIENCE_S):
        async with registry_at(folder=tmp_path) as address:
            registry = RegistryClient(channels.get(address))
            wanted = host("h-1", "math", journal_id="aaaaaaaa")
            try:
                async with asyncio.TaskGroup() as group:
                    registering = group.create_task(registry.register(wanted))
                    await disk.is_asked.wait()
                    # The caller gives up.
                    registering.cancel()
                assert registering.cancelled()
                assert await registry.list_agents() == []
                # It has no journals, so it waits for no write of owners.
                await registry.register(host("h-2"))
            finally:
                disk.works.set()
            await registry.register(wanted)
            assert names(await registry.list_agents()) == ["h-2", "h-1"]
        async with registry_at(folder=tmp_path) as address:
            registry = RegistryClient(channels.get(address))
            assert await registry.release_journals(["aaaaaaaa"]) == ["aaaaaaaa"]


async def test_a_journal_registered_while_it_is_released_has_an_owner(
    channels: ChannelPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, "journal-owners.json")
    disk.works.set()
    wanted = host("h-1", "math", journal_id="aaaaaaaa")
    async with asyncio.timeout(PATIENCE_S), registry_at(folder=tmp_path) as address:
        registry = RegistryClient(channels.get(address))
        await registry.register(wanted)
        disk.works.clear()
        async with asyncio.TaskGroup() as group:
            released = group.create_task(registry.release_journals(["aaaaaaaa"]))
            await disk.is_asked.wait()
            registered = group.create_task(registry.register(wanted))
            await asyncio.wait([registered], timeout=0.1)
            disk.works.set()
        assert released.result() == ["aaaaaaaa"]
        assert await registry.release_journals(["aaaaaaaa"]) == ["aaaaaaaa"]


async def test_a_release_whose_caller_gives_up_is_done_whole(
    channels: ChannelPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, "journal-owners.json")
    disk.works.set()
    settings = Settings(audit_file=tmp_path / "audit.jsonl")
    async with (
        asyncio.timeout(PATIENCE_S),
        open_audit_log(settings, process="registry") as audit,
        registry_at(folder=tmp_path, lease_s=0.3, audit=audit) as address,
        Directory(channels, address) as directory,
    ):
        registry = RegistryClient(channels.get(address))
        await registry.register(host("h-1", journal_id="aaaaaaaa"))
        await directory.wait_until(lambda d: bool(d.lost_hosts), timeout_s=PATIENCE_S)
        disk.works.clear()
        async with asyncio.TaskGroup() as group:
            leaving = group.create_task(registry.release_journals(["member"]))
            await disk.is_asked.wait()
            leaving.cancel()
        disk.works.set()
        await directory.wait_until(lambda d: not d.lost_hosts, timeout_s=PATIENCE_S)
        assert await registry.release_journals(["member"]) == []
    entries = [record.entry or {} for record in read_records(tmp_path / "audit.jsonl")]
    (released,) = (entry for entry in entries if entry["action"] == "journal.release")
    assert released["object"] == {"journal": "aaaaaaaa", "owner": "member"}
    assert released["actor"]["name"] == str(mesh_credentials().identity)
    assert released["actor"]["address"] == "127.0.0.1"


async def test_a_registration_is_refused_as_long_as_its_owner_cannot_be_written(
    channels: ChannelPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, "journal-owners.json")
    disk.works.set()
    disk.is_full = True
    async with registry_at(folder=tmp_path) as address:
        registry = RegistryClient(channels.get(address))
        wanted = host("h-1", "math", journal_id="aaaaaaaa")
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="no space left"):
                await registry.register(wanted)
            assert await registry.list_agents() == []
        disk.is_full = False
        await registry.register(wanted)
        assert names(await registry.list_agents()) == ["h-1"]


async def test_a_directory_keeps_its_hosts_while_the_registry_is_down_and_catches_up(
    channels: ChannelPool,
) -> None:
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        async with registry_at(free_address()) as address:
            await RegistryClient(channels.get(address)).register(host("h-1", "math"))
            directory = await stack.enter_async_context(Directory(channels, address))
            await directory.wait_until(lambda d: bool(d.hosts), timeout_s=PATIENCE_S)
        assert names(directory.hosts) == ["h-1"]
        await wait_until_unreachable(directory)
        async with registry_at(address):
            await RegistryClient(channels.get(address)).register(host("h-2", "echo"))
            await directory.wait_until(lambda d: len(d.hosts) == 2, timeout_s=PATIENCE_S)
        assert directory.choose_host("echo").host_id == "h-2"
        assert directory.choose_host("math").host_id == "h-1"


async def test_a_directory_that_never_reached_the_registry_raises(channels: ChannelPool) -> None:
    # No server listens on port 1.
    async with Directory(channels, "127.0.0.1:1") as directory:
        with pytest.raises(PeerUnavailableError, match=r"127\.0\.0\.1:1"):
            directory.client_for_agent("math")
        with pytest.raises(PeerUnavailableError, match="refused"):
            raise await wait_until_unreachable(directory)


async def test_waiting_for_a_mesh_that_never_starts_ends(directory: Directory) -> None:
    await directory.wait_until(lambda d: d.revision > 0, timeout_s=PATIENCE_S)
    with pytest.raises(PeerTimeoutError):
        await directory.wait_until(lambda d: bool(d.hosts), timeout_s=0.05)


# A watch could be ended in its first write, which only some of many tries meet.
@pytest.mark.parametrize("_round", range(20))
async def test_watchers_do_not_delay_a_server_that_stops(
    channels: ChannelPool, _round: int
) -> None:
    server = MeshServer(mesh_credentials())
    server.add_registry(RegistryServicer())
    (address,) = await server.start("127.0.0.1:0")
    client = RegistryClient(channels.get(address))
    async with aclosing(client.watch_agents()) as pictures, asyncio.timeout(PATIENCE_S):
        assert names(await anext(pictures)) == []
        # The grace period is far longer than the test may take.
        await server.stop(10 * PATIENCE_S)
        with pytest.raises(PeerUnavailableError, match="shutting down"):
            await anext(pictures)
