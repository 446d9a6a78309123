"""Draws faults by a seed: which, on what, when and for how long."""

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class FaultKind(StrEnum):
    """What can happen to processes, links, clocks and the database."""

    KILL = "kill"
    """A process gets SIGKILL, and is restarted."""
    FREEZE = "freeze"
    """A process gets SIGSTOP, and later SIGCONT."""
    CUT = "cut"
    """Nothing passes between two nodes."""
    ONE_WAY = "one-way"
    """Nothing passes from one node to another; the other direction is well."""
    ISOLATE = "isolate"
    """Nothing passes between a node and all others."""
    SLOW = "slow"
    """Packets between two nodes are late."""
    LOSSY = "lossy"
    """Packets between two nodes are lost."""
    CLOCK = "clock"
    """The wall clock of a process jumps, and jumps back."""
    DATABASE = "database"
    """All processes of the database get SIGKILL, and it is restarted."""
    STALL = "stall"
    """All processes of the database get SIGSTOP, and later SIGCONT."""
    FAILOVER = "failover"
    """The primary is killed for good, and its standby is promoted. A new standby is made."""


LINK_FAULTS: Final = frozenset(
    {FaultKind.CUT, FaultKind.ONE_WAY, FaultKind.ISOLATE, FaultKind.SLOW, FaultKind.LOSSY}
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. Its nodes are those of a process, or the ends of links, the sender first."""

    number: int
    kind: FaultKind
    nodes: tuple[str, ...]
    at_s: float
    """When it begins, from the start of all."""
    lasts_s: float
    amount: float = 0.0
    """Seconds of a delay or of a clock's jump, or the share of packets that are lost."""

    @property
    def until_s(self) -> float:
        """When it is healed."""
        return self.at_s + self.lasts_s

    @property
    def targets(self) -> frozenset[frozenset[str]]:
        """What it changes: a process by its node, or links by their ends."""
        if self.kind is not FaultKind.ISOLATE:
            return frozenset({frozenset(self.nodes)})
        first, *others = self.nodes
        return frozenset(frozenset({first, other}) for other in others)


def draw_faults(
    rng: random.Random,
    count: int,
    kinds: Sequence[FaultKind],
    *,
    services: Sequence[str],
    nodes: Sequence[str],
    lease_s: float,
) -> list[Fault]:
    """Draw faults that begin one after another and may overlap, but not on one target.

    `services` are the nodes with a process that may be killed; `nodes` are all with links.
    """
    faults: list[Fault] = []
    clock_s = 0.0
    for number in itertools.count(1):
        if len(faults) == count:
            return faults
        clock_s += rng.uniform(0.1, lease_s / 2)
        fault = _draw(rng, number, rng.choice(kinds), services, nodes, clock_s, lease_s)
        if not _overlaps(fault, faults):
            faults.append(fault)
    raise AssertionError


def _draw(
    rng: random.Random,
    number: int,
    kind: FaultKind,
    services: Sequence[str],
    nodes: Sequence[str],
    at_s: float,
    lease_s: float,
) -> Fault:
    # Some are over before a lease is, and some after.
    lasts_s = rng.choice((rng.uniform(0.1, lease_s / 2), rng.uniform(lease_s, 2 * lease_s)))
    match kind:
        case FaultKind.KILL | FaultKind.FREEZE | FaultKind.CLOCK:
            amount = rng.choice((-3600.0, 3600.0, 2 * 86400.0)) if kind is FaultKind.CLOCK else 0.0
            return Fault(number, kind, (rng.choice(services),), at_s, lasts_s, amount)
        case FaultKind.DATABASE | FaultKind.STALL | FaultKind.FAILOVER:
            return Fault(number, kind, ("database",), at_s, lasts_s / 2)
        case FaultKind.ISOLATE:
            first = rng.choice(nodes)
            others = (other for other in nodes if other != first)
            return Fault(number, kind, (first, *others), at_s, lasts_s)
    ends = tuple(rng.sample(nodes, 2))
    most = {FaultKind.SLOW: 0.5, FaultKind.LOSSY: 0.3}.get(kind, 0.0)
    return Fault(number, kind, ends, at_s, lasts_s, round(rng.uniform(0.02, most), 3))


def _overlaps(fault: Fault, others: Iterable[Fault]) -> bool:
    return any(other.until_s >= fault.at_s and other.targets & fault.targets for other in others)
