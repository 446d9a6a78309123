"""The replicas of each agent, and the choice of the replica that gets a new task."""

import hashlib
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from trunkline.v1 import registry_service_pb2

# A replica with fewer open turns is never passed over: a few turns more or less say nothing.
_QUIET_TURNS: Final = 8
# Hosts report their loads more often than this. A report that changes nothing is not passed on.
_REPORT_S: Final = 5.0


@dataclass(slots=True, eq=False)
class Replica:
    """A host that runs an agent."""

    host: registry_service_pb2.Host
    submitted: int = 0
    """The tasks that this process has given to it since its last report."""

    @property
    def open_turns(self) -> int:
        """The open turns of its last report, and the tasks since then."""
        return self.host.load.open_turns + self.submitted


def choose_replica(
    replicas: Sequence[Replica],
    *,
    context_id: str = "",
    key: str = "",
    is_failing: Callable[[Replica], bool] = lambda _: False,
) -> Replica:
    """Return the replica that gets a new task. There must be at least one.

    Replicas that refuse tasks are left out, unless all do. So are failing replicas, unless the task
    has a key.

    - The tasks of a context go to the replica with the highest rendezvous hash of the context, so
      that all callers find the same one, and few contexts move when a replica comes or goes. A
      replica with more than twice the open turns of another one is passed over.
    - A task with an idempotency key and without a context goes to the replica with the highest hash
      of the key, and a task with both to the replica of its context, whatever the loads and the
      failures are: a repeated submission has to meet the first one, whose call may have failed.
    - Any other task goes to the less loaded of two random replicas.
    """
    if len(replicas) == 1:
        return replicas[0]
    accepting = [each for each in replicas if not each.host.load.refuses_tasks] or replicas
    if key:
        return max(accepting, key=_make_hash(context_id or key))
    healthy = [each for each in accepting if not is_failing(each)] or accepting
    if context_id:
        limit = max(2 * min(each.open_turns for each in healthy), _QUIET_TURNS)
        candidates = [each for each in healthy if each.open_turns <= limit]
        return max(candidates, key=_make_hash(context_id))
    if len(healthy) == 1:
        return healthy[0]
    first, second = random.sample(healthy, 2)
    return second if second.open_turns < first.open_turns else first


def _make_hash(name: str) -> Callable[[Replica], bytes]:
    """Return the rendezvous hash of a name: a function of the replica."""
    suffix = f"\n{name}".encode()

    def compute(replica: Replica) -> bytes:
        return hashlib.blake2b(replica.host.host_id.encode() + suffix, digest_size=8).digest()

    return compute


class Placement:
    """The replicas of each agent on the mesh, with their loads."""

    def __init__(
        self, is_failing: Callable[[str], bool], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`is_failing` returns whether the last call of the host at an address failed.

        `clock` returns seconds and never goes back.
        """
        self._is_failing = is_failing
        self._clock = clock
        self._replicas: dict[str, list[Replica]] = {}
        self._reported_s = clock()

    def update(self, hosts: Iterable[registry_service_pb2.Host]) -> None:
        """Replace the hosts."""
        submitted = {
            replica.host.host_id: replica.submitted
            for replicas in self._replicas.values()
            for replica in replicas
        }
        self._replicas = {}
        for host in hosts:
            replica = Replica(host, submitted.get(host.host_id, 0))
            for agent in host.agents:
                self._replicas.setdefault(agent.card.name, []).append(replica)

    def update_loads(self, loads: Mapping[str, registry_service_pb2.HostLoad]) -> None:
        """Replace the loads of hosts, by their ids."""
        for replicas in self._replicas.values():
            for replica in replicas:
                if replica.host.host_id in loads:
                    replica.host.load.CopyFrom(loads[replica.host.host_id])
        self._forget_submitted()

    def list_hosts(self, agent: str) -> Sequence[registry_service_pb2.Host]:
        """Return the hosts that run an agent."""
        return [replica.host for replica in self._replicas.get(agent, ())]

    def rank_hosts(self, agent: str, name: str) -> Sequence[registry_service_pb2.Host]:
        """Return the hosts that run an agent by the hash of a name, the highest first."""
        ranked = sorted(self._replicas.get(agent, ()), key=_make_hash(name), reverse=True)
        return [replica.host for replica in ranked]

    def choose_host(self, agent: str, *, context_id: str, key: str) -> registry_service_pb2.Host:
        """Return the host that gets a new task of an agent, which must have one."""
        if self._clock() > self._reported_s + _REPORT_S:
            # Loads that did not change are not reported.
            self._forget_submitted()
        chosen = choose_replica(
            self._replicas[agent],
            context_id=context_id,
            key=key,
            is_failing=lambda replica: self._is_failing(replica.host.address),
        )
        chosen.submitted += 1
        return chosen.host

    def _forget_submitted(self) -> None:
        """Forget the tasks that were submitted, because reported loads include them."""
        self._reported_s = self._clock()
        for replicas in self._replicas.values():
            for replica in replicas:
                replica.submitted = 0
