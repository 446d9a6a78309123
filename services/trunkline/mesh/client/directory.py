"""The hosts and agents of the mesh, as the registry reports them, and clients of them."""

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from types import TracebackType
from typing import Final, Self, TypeVar

from trunkline.core.backoff import Backoff
from trunkline.core.runtime import run_in_background
from trunkline.errors import (
    AgentNotFoundError,
    PeerError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.journal.events import parse_journal_id
from trunkline.mesh.client.channels import ChannelPool, MeshChannel
from trunkline.mesh.client.host import HostClient
from trunkline.mesh.client.mesh_words import TOOL_SERVICE, TRACE_SERVICE
from trunkline.mesh.client.placement import Placement
from trunkline.mesh.client.registry_views import (
    RegistryView,
    find_missing_hosts,
    merge_hosts,
    merge_lost_hosts,
)
from trunkline.mesh.client.resuming_stream import (
    PATIENCE_S,
    ResumingStream,
    SubmitStream,
    WatchStream,
)
from trunkline.mesh.client.services import RegistryClient, ToolClient
from trunkline.v1 import (
    message_pb2,
    message_service_pb2,
    registry_service_pb2,
    trace_service_pb2_grpc,
)

logger = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

HOST_LEFT: Final = (
    "the task's host has left the mesh, and no host has its journal; try again when it is back"
)
"""The problem with a task whose host does not live."""
AGENT_LEFT: Final = "the agent's host has left the mesh; try again when it is back"
"""The problem with an agent whose last host died."""
# The time that the other registries have for their answers once one has answered.
_READ_S: Final = 0.5
# The interval between two questions for a host that no update has named, and their time limit.
_LOOK_UP_S: Final = 1.0
_HOSTS_MISSING = (
    "it was restarted a moment ago, and not all hosts have registered again; try again in a moment"
)
START_S: Final = 15.0
"""The time in which all processes of a mesh that start at once have registered."""
# The states of a breaker, the best first.
_STATES: Final = ("closed", "half-open", "open")
# Journals of hosts that left, to distinguish their tasks from tasks that never existed.
_MAX_JOURNALS = 1000


class Directory:
    """Watches the registries while it is open, and finds the hosts of agents and tasks.

    A host is alive if a registry that answers says so. While no registry answers, their last
    updates stay valid. Opening the directory does not wait for a registry; `wait_until` does. A
    caller that needs the hosts of one moment only calls `read` in place of opening it.
    """

    def __init__(self, channels: ChannelPool, *registries: str) -> None:
        """`registries` are the addresses of the mesh's registries, at least one."""
        self._channels = channels
        self._registry_addresses = frozenset(registries)
        place = "registry" if len(registries) == 1 else "registries"
        self._registry_name = f"the {place} at {', '.join(registries)}"
        self.registries: Sequence[RegistryClient] = [
            RegistryClient(channels.get(address)) for address in registries
        ]
        """Clients of all registries. The first one is the mesh's own."""
        self._views = [RegistryView(client) for client in self.registries]
        # Hosts that may register again at a registry that was started a moment ago.
        self._missing: tuple[registry_service_pb2.Host, ...] = ()
        self._clients: dict[str, HostClient] = {}
        # The hosts that served the journals last.
        self._journals: dict[str, registry_service_pb2.Host] = {}
        self._agents: dict[str, registry_service_pb2.AgentRegistration] = {}
        self._placement = Placement(channels.breakers.is_failing)
        self._change_event = asyncio.Event()
        self._exit_stack = AsyncExitStack()
        # After a restart of the registry, an agent or a task that no host has may still exist.
        self._has_missing_hosts = False
        self._tool_client: ToolClient | None = None
        self._looking_up = asyncio.Lock()
        self._looked_up_s = -math.inf
        self._seen_services: set[str] = set()
        self._expected_services: set[str] = set()
        # When a registry answered first, by the monotonic clock.
        self._answered_s: float | None = None
        self.hosts: tuple[registry_service_pb2.Host, ...] = ()
        self.lost_hosts: tuple[registry_service_pb2.Host, ...] = ()
        """The latest hosts that died, with the journals that no other host has."""
        self.revision: int = 0
        """The number of updates so far; 0 before the first."""

    async def __aenter__(self) -> Self:
        for view in self._views:
            watch = self._watch_registry(view)
            await self._exit_stack.enter_async_context(run_in_background(watch))
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._exit_stack.__aexit__(exc_type, exc_val, exc_tb)

    async def read(self) -> None:
        """Read the hosts once.

        Raises:
            PeerError: no registry answers.
        """
        async with asyncio.TaskGroup() as group:
            waiting = {group.create_task(_read_view(view)) for view in self._views}
            while waiting and not self._list_answering():
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if waiting:
                _, waiting = await asyncio.wait(waiting, timeout=_READ_S)
            for read in waiting:
                read.cancel()
        problem = self._views[0].problem
        if problem is not None and not self._list_answering():
            raise problem
        self._apply_views()

    async def release_journals(self, names: Iterable[str]) -> list[str]:
        """Free journals at all registries that answer; return the ids of those that had an owner.

        `names` are ids of journals and their owners. The owners are the same at all registries.

        Raises:
            TrunklineError: a registry refuses it, or none answers.
        """
        names = list(names)
        answers = await self._ask_all(lambda registry: registry.release_journals(names))
        released = sorted({each for answer in answers.values() for each in answer})
        # A registry whose call came second found no owner, and does not know the journals.
        late = [registry for registry, found in answers.items() if len(found) < len(released)]
        if late:
            await self._ask_all(lambda registry: registry.release_journals(released), late)
        return released

    async def _ask_all(
        self,
        ask: Callable[[RegistryClient], Awaitable[_Answer]],
        registries: Sequence[RegistryClient] = (),
    ) -> dict[RegistryClient, _Answer]:
        """Ask registries at once, by default all; return the answers of those that answer.

        Raises:
            TrunklineError: a registry refuses it, or none answers.
        """

        async def try_one(registry: RegistryClient) -> None:
            try:
                answers[registry] = await ask(registry)
            except TrunklineError as error:
                problems.append(error)

        answers, problems = dict[RegistryClient, _Answer](), list[TrunklineError]()
        async with asyncio.TaskGroup() as group:
            for registry in registries or self.registries:
                group.create_task(try_one(registry))
        refusals = [error for error in problems if not isinstance(error, PeerError)]
        if refusals or not answers:
            raise (refusals or problems)[0]
        return answers

    def list_agents(self) -> dict[str, registry_service_pb2.AgentRegistration]:
        """Return the agents by name, sorted."""
        return dict(sorted(self._agents.items()))

    def get_agent(self, name: str) -> registry_service_pb2.AgentRegistration:
        """Return an agent's registration, of several the newest whose card is complete.

        Raises:
            AgentNotFoundError: no host has it.
            PeerUnavailableError: its last host died, no registry has answered yet, or the
                registries were restarted, so that its hosts may not have registered again.
        """
        self._check_agent(name)
        return self._agents[name]

    def list_replicas(self, name: str) -> Sequence[registry_service_pb2.Host]:
        """Return the hosts that run an agent, at least one; raises what `get_agent` raises."""
        self._check_agent(name)
        return self._placement.list_hosts(name)

    def list_readers(self, name: str) -> Sequence[registry_service_pb2.Host]:
        """Return the hosts that list the tasks of an agent, at least one.

        They are the hosts that run it. If all of these are gone, they are the hosts that share a
        store, which may have tasks of the agent.

        Raises:
            AgentNotFoundError, PeerUnavailableError: as `get_agent`, and no host lists its tasks.
        """
        try:
            return self.list_replicas(name)
        except (AgentNotFoundError, PeerUnavailableError):
            readers = [host for host in self.hosts if host.store_id]
            lost = {host.store_id for host in self.lost_hosts if name in _agent_names(host)}
            if not readers or not lost <= {host.store_id for host in readers}:
                raise
            return readers

    def choose_host(
        self, agent: str, *, context_id: str = "", key: str = ""
    ) -> registry_service_pb2.Host:
        """Return the replica of an agent that gets a new task; see `choose_replica`.

        Call it once for each submission, allocate the id of the task for this host, and send the
        submission to the host of the id. `key` is the idempotency key of the submission, if it has
        one.

        Raises:
            AgentNotFoundError, PeerUnavailableError: as `get_agent`.
        """
        self._check_agent(agent)
        return self._placement.choose_host(agent, context_id=context_id, key=key)

    def rank_hosts(self, agent: str, name: str) -> Sequence[registry_service_pb2.Host]:
        """Return the replicas of an agent by the rendezvous hash of a name, the highest first.

        Raises:
            AgentNotFoundError, PeerUnavailableError: as `get_agent`.
        """
        self._check_agent(agent)
        return self._placement.rank_hosts(agent, name)

    def get_task_host(self, task_id: str) -> registry_service_pb2.Host:
        """Return the host that serves a task's journal, whose id the task's id starts with.

        If it is gone or does not answer, return another host that reads the same store, if any.

        Raises:
            TaskNotFoundError: no host seen so far serves such a journal.
            PeerUnavailableError: the host is gone, no registry has answered yet, or the registries
                were restarted, so that the host may not have registered again.
        """
        self._check_ready()
        journal_id = parse_journal_id(task_id)
        owner = self._find_owner(task_id)
        if owner is not None and not (owner.store_id and self._is_refused(owner)):
            return owner
        if (host := self.choose_reader(task_id) or owner) is not None:
            return host
        if (last := self._journals.get(journal_id)) is not None:
            raise PeerUnavailableError(last.address, HOST_LEFT)
        self._check_complete()
        raise TaskNotFoundError(task_id)

    def knows_task_host(self, task_id: str) -> bool:
        """Return True if a host serves the task's journal, or served it before."""
        return parse_journal_id(task_id) in self._journals

    async def look_up_host(self, task_id: str) -> None:
        """Ask the registries for the host of a task, unless it is known.

        Another bridge may have heard of a new host first, and have given it a task. The next update
        may then be on its way. All callers together ask once a second, because anybody can invent
        an id.
        """
        async with self._looking_up:
            now_s = asyncio.get_running_loop().time()
            if self.knows_task_host(task_id) or now_s < self._looked_up_s + _LOOK_UP_S:
                return
            self._looked_up_s = now_s
            with suppress(TrunklineError, TimeoutError):
                async with asyncio.timeout(_LOOK_UP_S):
                    found = await self._ask_all(RegistryClient.read_hosts)
                    for answer in found.values():
                        self._note_journals(answer.hosts)
                    while self.knows_task_host(task_id) and not self._find_owner(task_id):
                        await self._change_event.wait()

    def _find_owner(self, task_id: str) -> registry_service_pb2.Host | None:
        journal_id = parse_journal_id(task_id)
        return next((host for host in self.hosts if journal_id in host.journal_ids), None)

    def client_for_agent(self, name: str) -> HostClient:
        """Return a client of the host that `choose_host` returns, which chooses the task's id."""
        return self._client(self.choose_host(name).address)

    def client_for_task(self, task_id: str) -> HostClient:
        """Return a client of the host that serves a task; raises what `get_task_host` raises."""
        return self._client(self.get_task_host(task_id).address)

    def channel_for_task(self, task_id: str) -> MeshChannel:
        """Return a channel to the host that serves a task; raises what `get_task_host` raises."""
        return self._channels.get(self.get_task_host(task_id).address)

    def client_at(self, address: str) -> HostClient:
        """Return a client of the host at an address from the registry."""
        return self._client(address)

    def channel_for_service(self, full_name: str) -> MeshChannel:
        """Return a channel to a host that serves a service, for example trunkline.v1.ToolService.

        Raises:
            PeerUnavailableError: no live host serves it.
        """
        self._check_ready()
        if address := self._find_service(full_name):
            return self._channels.get(address)
        raise PeerUnavailableError(full_name, "no host on the mesh serves it")

    def tool_client(self) -> ToolClient:
        """Return a client of the tool adapter; raises what `channel_for_service` raises."""
        channel = self.channel_for_service(TOOL_SERVICE)
        if self._tool_client is None or self._tool_client.channel is not channel:
            self._tool_client = ToolClient(channel)
        return self._tool_client

    @property
    def is_starting(self) -> bool:
        """The registries have answered for less than `START_S` seconds, or not at all."""
        return self._answered_s is None or time.monotonic() < self._answered_s + START_S

    def expect_service(self, full_name: str) -> None:
        """Expect a host with this service to appear shortly after a registry's first answer.

        After a restart of all processes, a host may be ready before those that it needs.
        """
        self._expected_services.add(full_name)

    def is_service_expected(self, full_name: str) -> bool:
        """Return whether a host may serve this soon, if none does now.

        It may if a host did before, because its process may start again. It may as well if
        `expect_service` was called, and a registry has answered for less than `START_S` seconds.
        """
        if full_name in self._seen_services:
            return True
        return self.is_starting and full_name in self._expected_services

    def trace_stub(self) -> "trace_service_pb2_grpc.TraceServiceAsyncStub":
        """Return a stub of the span store.

        The span store is in the process of a registry, which is no host if the services are in
        processes of their own.
        """
        address = self._find_service(TRACE_SERVICE) or self.find_registry().peer
        return trace_service_pb2_grpc.TraceServiceStub(self._channels.get(address))

    def find_registry(self) -> RegistryClient:
        """Return a client of the first registry that answers, else of the first one."""
        answering = self._list_answering()
        return answering[0].client if answering else self.registries[0]

    def messaging_mode(self) -> str:
        """Return where messages between agents are stored, or "" if no host serves them."""
        modes = (host.messaging_mode for host in reversed(self.hosts) if host.messaging_mode)
        return next(modes, "")

    def list_host_states(self) -> Iterator[tuple[registry_service_pb2.Host, str]]:
        """Yield each host with its state.

        A host is `ready`, `unreachable`, `lost` if it died, or `draining` if it takes no new tasks
        because it is leaving or can't write its journal.
        """
        breakers = self.breaker_states()
        for host in self.hosts:
            if breakers.get(host.address, "closed") != "closed":
                yield host, "unreachable"
            else:
                yield host, "draining" if host.load.refuses_tasks else "ready"
        for host in self.lost_hosts:
            yield host, "lost"

    def breaker_states(self) -> Mapping[str, str]:
        """Return the breaker states of the hosts called so far, by address."""
        states = self._channels.breakers.states()
        addresses = {host.address for host in self.hosts}
        return {address: state for address, state in states.items() if address in addresses}

    def agent_breaker_states(self) -> Mapping[str, str]:
        """Return the breaker states of the agents' hosts called so far, by agent.

        Of several replicas, the best state counts: a new task goes to a replica that answers.
        """
        states = self._channels.breakers.states()
        best: dict[str, str] = {}
        for name in self.list_agents():
            addresses = [host.address for host in self.list_replicas(name)]
            found = [states[address] for address in addresses if address in states]
            if found:
                best[name] = min(found, key=_STATES.index)
        return best

    def watch(  # noqa: PLR0913  a reader's options, each by name
        self,
        task_id: str,
        *,
        account: str,
        after: int | None = None,
        epoch: int = 0,
        with_snapshot: bool = False,
        until_turn_ends: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> ResumingStream:
        """Watch a task's events after a cursor, or from the head, until the task has ended.

        `until_turn_ends` also ends it where the task asks for input.

        Enter the stream to open it. A stream that is cut is reopened after the last event read, on
        the host that then serves the task. After `patience_s` seconds without a new event it
        raises the error of the cut. Other errors are raised at once.
        """
        return WatchStream(
            self,
            task_id,
            account,
            patience_s,
            after=after,
            epoch=epoch,
            with_snapshot=with_snapshot,
            until_turn_ends=until_turn_ends,
        )

    def submit(
        self,
        agent: str,
        *,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
        patience_s: float = PATIENCE_S,
    ) -> ResumingStream:
        """Submit a message to an agent and watch the turn until it is over, as `watch` does.

        The message arrives once, however often the stream is cut: a new task gets its id before the
        message is submitted, unless `submission` has one.
        """
        return SubmitStream(self, agent, message, submission, patience_s)

    async def wait_until(
        self, predicate: Callable[["Directory"], bool], *, timeout_s: float
    ) -> None:
        """Wait until the predicate is true of the directory.

        Raises:
            PeerUnavailableError: it did not become true in time, and no registry can be reached.
            PeerTimeoutError: it did not become true in time, although a registry answers.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not predicate(self):
                    await self._change_event.wait()
        except TimeoutError:
            if not self._list_answering():
                raise self._build_error() from None
            raise PeerTimeoutError(
                self._registry_name, f"the mesh is not as expected after {timeout_s:g} s"
            ) from None

    async def wait_for_change(self, revision: int) -> int:
        """Wait for an update later than `revision`; return its number."""
        while self.revision <= revision:
            await self._change_event.wait()
        return self.revision

    def _check_agent(self, name: str) -> None:
        """Check that a live host has an agent; raises what `get_agent` raises."""
        self._check_ready()
        if name not in self._agents:
            for host in self.lost_hosts:
                if any(agent.card.name == name for agent in host.agents):
                    raise PeerUnavailableError(host.address, AGENT_LEFT)
            self._check_complete()
            raise AgentNotFoundError(name)

    @property
    def missing_hosts(self) -> tuple[registry_service_pb2.Host, ...]:
        """The lost hosts whose tasks no host can read."""
        stores = {host.store_id for host in self.hosts if host.store_id}
        return tuple(host for host in self.lost_hosts if host.store_id not in stores)

    def group_by_store(
        self, hosts: Iterable[registry_service_pb2.Host]
    ) -> list[list[registry_service_pb2.Host]]:
        """Group hosts with journals so that each host of a group can list the same tasks.

        A host whose tasks are in files is alone. Other hosts of the same store follow those of
        `hosts`, which are in random order. Hosts that do not answer are last.
        """
        groups: dict[str, list[registry_service_pb2.Host]] = {}
        for host in hosts:
            if host.journal_ids:
                groups.setdefault(host.store_id or host.address, []).append(host)
        for store_id, group in groups.items():
            random.shuffle(group)
            known = {host.host_id for host in group}
            group += [
                host
                for host in self.hosts
                if host.store_id == store_id and host.host_id not in known
            ]
            group.sort(key=self._is_refused)
        return list(groups.values())

    def choose_reader(self, task_id: str, *, besides: str = "") -> registry_service_pb2.Host | None:
        """Return a host that can read a task from its store, if there is one.

        It is the less loaded of two random hosts, none at the address `besides`. Prefer those with
        the agents of the task's last host, because they can continue its tasks.
        """
        readers = [
            host
            for host in self.hosts
            if host.store_id and host.address != besides and not self._is_refused(host)
        ]
        last = self._journals.get(parse_journal_id(task_id))
        if last is not None:
            agents = _agent_names(last)
            readers = [host for host in readers if host.store_id == last.store_id]
            readers = [host for host in readers if agents <= _agent_names(host)] or readers
        elif len({host.store_id for host in readers}) > 1:
            return None
        chosen = random.sample(readers, min(2, len(readers)))
        return min(chosen, key=lambda host: host.load.open_turns, default=None)

    def _is_refused(self, host: registry_service_pb2.Host) -> bool:
        """Return whether calls of a host are refused, because it does not answer."""
        return self._channels.breakers.is_open(host.address)

    def _find_service(self, full_name: str) -> str:
        """Return the address of a host that serves a service, or "" if there is none."""
        # A killed host stays listed until its lease ends. So prefer the newest host, and before it
        # any host of which the last call did not fail.
        found = (host.address for host in reversed(self.hosts) if full_name in host.services)
        return min(found, key=self._channels.breakers.is_failing, default="")

    def _client(self, address: str) -> HostClient:
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = HostClient(self._channels.get(address))
        return client

    def _check_ready(self) -> None:
        # Before the first update, a missing agent or task may still exist.
        if self.revision == 0:
            raise self._build_error()

    def _check_complete(self) -> None:
        if self._has_missing_hosts:
            raise PeerUnavailableError(self._registry_name, _HOSTS_MISSING)

    def _build_error(self) -> PeerUnavailableError:
        problem = next((view.problem for view in self._views if view.problem is not None), None)
        if isinstance(problem, PeerUnavailableError):
            return PeerUnavailableError(self._registry_name, problem.problem)
        reason = str(problem) if problem is not None else "it has not answered yet"
        return PeerUnavailableError(self._registry_name, reason)

    async def _watch_registry(self, view: RegistryView) -> None:
        backoff = Backoff()
        while True:
            try:
                async with aclosing(view.client.watch_agents()) as updates:
                    async for update in updates:
                        backoff.reset()
                        if update.loads:
                            # Readers that wait for a change are not woken.
                            self._update_loads(update.loads)
                        else:
                            view.replace(update)
                            self._apply_views()
                problem: TrunklineError = PeerUnavailableError(
                    f"the registry at {view.client.peer}", "it is going away"
                )
            except TrunklineError as error:
                problem = error
            if view.problem is None:
                logger.warning("registry.lost", extra={"peer": view.client.peer})
            was_answering, view.is_answering, view.problem = view.is_answering, False, problem
            if was_answering:
                self._note_lost_registry()
            await backoff.pause()

    def _note_lost_registry(self) -> None:
        """Go on with what the other registries say, and without them with what is known."""
        answering = self._list_answering()
        if all(view.is_partial for view in answering):
            self._missing = self.hosts
        if answering:
            self._apply_views()

    def _apply_views(self) -> None:
        """Use what the registries say that answer. There must be one."""
        answering = self._list_answering()
        is_partial = all(view.is_partial for view in answering)
        live = merge_hosts([view.hosts for view in answering])
        self._missing = find_missing_hosts(self._missing, live) if is_partial else ()
        hosts = (*live, *self._missing)
        self._has_missing_hosts = is_partial and any(
            view.has_missing_journals for view in answering
        )
        revoked = {name for view in self._views for name in view.revoked_instances}
        self._channels.revoke(revoked)
        self._apply(hosts, merge_lost_hosts([view.lost_hosts for view in answering], hosts))

    def _list_answering(self) -> list[RegistryView]:
        return [view for view in self._views if view.is_answering]

    def _update_loads(self, loads: Mapping[str, registry_service_pb2.HostLoad]) -> None:
        for view in self._views:
            for host in view.hosts:
                if host.host_id in loads:
                    host.load.CopyFrom(loads[host.host_id])
        self._placement.update_loads(loads)

    def _note_journals(self, hosts: Iterable[registry_service_pb2.Host]) -> None:
        for host in hosts:
            for journal_id in host.journal_ids:
                self._journals.pop(journal_id, None)
                self._journals[journal_id] = host
        while len(self._journals) > _MAX_JOURNALS:
            del self._journals[next(iter(self._journals))]

    def _apply(
        self,
        hosts: Sequence[registry_service_pb2.Host],
        lost_hosts: Sequence[registry_service_pb2.Host],
    ) -> None:
        self.lost_hosts = tuple(lost_hosts)
        self._note_journals(lost_hosts)
        addresses = {host.address for host in hosts}
        # A reader of a host may have called it after the update without it.
        called = {host.address for host in self.hosts} | self._clients.keys()
        self.hosts = tuple(hosts)
        self._placement.update(hosts)
        self._agents = {}
        for host in hosts:
            for agent in host.agents:
                # A replica that has just started may not know all of its card yet.
                if not agent.card_pending or agent.card.name not in self._agents:
                    self._agents[agent.card.name] = agent
        self._note_journals(hosts)
        self._seen_services.update(name for host in hosts for name in host.services)
        for address in called - addresses - self._registry_addresses:
            self._channels.retire(address)
        changed = self._channels.expect(hosts, registry_addresses=self._registry_addresses)
        # A restarted host need not wait until its breaker and its channel try again.
        self._channels.breakers.allow_probes(addresses)
        self._channels.reconnect_failed(addresses)
        self._clients = {
            address: client
            for address, client in self._clients.items()
            if address in addresses - changed
        }
        if self._answered_s is None:
            self._answered_s = time.monotonic()
        self.revision += 1
        event, self._change_event = self._change_event, asyncio.Event()
        event.set()


def _agent_names(host: registry_service_pb2.Host) -> frozenset[str]:
    return frozenset(agent.card.name for agent in host.agents)


async def _read_view(view: RegistryView) -> None:
    """Ask a registry for its hosts once."""
    try:
        found = await view.client.read_hosts()
    except TrunklineError as error:
        view.problem = error
    else:
        view.is_answering = True
        view.hosts, view.lost_hosts = found.hosts, found.lost_hosts
