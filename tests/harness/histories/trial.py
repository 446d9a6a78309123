"""A trial: a mesh on nodes, clients, faults by a seed, and the verdict on the recorded history."""

import asyncio
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from harness.histories import clients
from harness.histories.checker import Bounds, Violation, check, find_in_doubt
from harness.histories.database import Database
from harness.histories.faults import Fault, FaultKind
from harness.histories.history import HistoryFile, Kind, Record, now, read_history, write_history
from harness.histories.machines import CLIENTS, Machines
from harness.mesh.processes import WITH_HARNESS, read_line, running_process
from harness.network.nodes import HEALTHY, Link

KEPT: Final = Path(__file__).parents[3] / "build" / "histories"
"""Where the histories with a violation are kept."""
_SHOWN: Final = 10
_DATABASE_FAULTS: Final = (FaultKind.DATABASE, FaultKind.STALL, FaultKind.FAILOVER)
_END_LIMIT_S: Final = 240.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checker says of a trial."""

    history: Sequence[Record]
    violations: Sequence[Violation]
    path: Path
    """The file of the history, which is kept if there is a violation."""

    def __str__(self) -> str:
        lines = [f"{v.promise}: {v.task} {v.problem} (at {v.at:.3f})" for v in self.violations]
        more = len(lines) - _SHOWN
        rest = [f"and {more} more"] if more > 0 else []
        return "\n".join((f"history: {self.path}", *lines[:_SHOWN], *rest))

    def count(self, kind: Kind) -> int:
        """Return the number of records of a kind."""
        return sum(record.kind is kind for record in self.history)


class Trial:
    """Faults on one mesh while clients work, in rounds that each have a history.

    With a database, the clients send a message again that was not acknowledged. Without one, its
    key holds in one journal only, and another replica may make a second task of it.
    """

    def __init__(
        self,
        machines: Machines,
        folder: Path,
        effects: Path,
        bounds: Bounds,
        database: Database | None = None,
    ) -> None:
        self._machines = machines
        self._database = database
        self._database_turn = asyncio.Lock()
        self._folder = folder
        self._effects = effects
        self._bounds = bounds
        self._in_doubt: frozenset[str] = frozenset()

    async def run(self, name: str, faults: Sequence[Fault], rng: random.Random) -> Verdict:
        """Run one round, and check its history."""
        recorded = self._folder / f"{name}.clients"
        faulty = self._folder / f"{name}.faults"
        plan = clients.Plan(
            name, self._machines.bridges, str(recorded), rng.getrandbits(32),
            clients=4, pieces=40, gap_ms=20, end_s=self._bounds.end_s,
            repeats=self._database is not None,
        )  # fmt: skip
        started_at = now()
        async with running_process(
            *self._machines.network.nodes[CLIENTS].entry,
            sys.executable, "-m", "harness.histories.clients", json.dumps(asdict(plan)),
            cwd=self._folder, environment=WITH_HARNESS, stdin=asyncio.subprocess.PIPE,
        ) as process:  # fmt: skip
            await read_line(process, "ready")
            assert process.stdin is not None
            log = HistoryFile(faulty)
            async with asyncio.TaskGroup() as group:
                for fault in faults:
                    group.create_task(self._apply(fault, log))
            process.stdin.write(b"finish\n")
            async with asyncio.timeout(_END_LIMIT_S):
                code = await process.wait()
        assert code == 0, "the clients failed"
        for service in self._machines.services.values():
            for ended in service.exits:
                log.add(ended)
            service.exits.clear()
        log.close()
        history = [
            record
            for record in read_history(recorded, faulty, self._effects)
            if record.at >= started_at
        ]
        violations = check(history, self._bounds, in_doubt=self._in_doubt)
        self._in_doubt |= find_in_doubt(history, self._bounds)
        path = self._folder / f"{name}.jsonl"
        if violations:
            KEPT.mkdir(parents=True, exist_ok=True)
            path = KEPT / path.name
        write_history(path, history)
        return Verdict(history, violations, path)

    async def _apply(self, fault: Fault, log: HistoryFile) -> None:
        """Wait for a fault's time, do it, and heal it."""
        await asyncio.sleep(fault.at_s)
        if fault.kind in _DATABASE_FAULTS:
            # To make a new standby may take longer than the fault.
            async with self._database_turn:
                await self._apply_now(fault, log)
        else:
            await self._apply_now(fault, log)

    async def _apply_now(self, fault: Fault, log: HistoryFile) -> None:
        fields = {"number": fault.number, "name": fault.kind, "where": " ".join(fault.nodes)}
        log.add(Record(now(), Kind.FAULT, text=f"{fault.amount}", **fields))  # type: ignore[arg-type]
        await self._begin(fault)
        await asyncio.sleep(fault.lasts_s)
        await self._heal(fault)
        log.add(Record(now(), Kind.HEALED, **fields))  # type: ignore[arg-type]

    async def _begin(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.KILL:
                self._machines.services[fault.nodes[0]].kill()
            case FaultKind.FREEZE:
                self._machines.services[fault.nodes[0]].freeze()
            case FaultKind.CLOCK:
                self._machines.services[fault.nodes[0]].move_clock(fault.amount)
            case FaultKind.DATABASE | FaultKind.FAILOVER:
                assert self._database is not None
                await asyncio.to_thread(self._database.primary.kill)
            case FaultKind.STALL:
                assert self._database is not None
                self._database.primary.freeze()
            case FaultKind.SLOW:
                await self._set_links(fault, Link(delay_s=fault.amount))
            case FaultKind.LOSSY:
                await self._set_links(fault, Link(loss=fault.amount))
            case FaultKind.CUT | FaultKind.ONE_WAY | FaultKind.ISOLATE:
                await self._set_links(fault, Link(is_cut=True))

    async def _heal(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.KILL:
                await self._machines.services[fault.nodes[0]].start()
            case FaultKind.FREEZE:
                self._machines.services[fault.nodes[0]].thaw()
            case FaultKind.CLOCK:
                self._machines.services[fault.nodes[0]].move_clock(0)
            case FaultKind.DATABASE:
                assert self._database is not None
                await asyncio.to_thread(self._database.primary.start)
            case FaultKind.STALL:
                assert self._database is not None
                self._database.primary.thaw()
            case FaultKind.FAILOVER:
                assert self._database is not None
                await asyncio.to_thread(self._database.fail_over)
            case _:
                await self._set_links(fault, HEALTHY)

    async def _set_links(self, fault: Fault, link: Link) -> None:
        first, *others = fault.nodes
        for other in others:
            await self._machines.network.set_link(first, other, link)
            if fault.kind is not FaultKind.ONE_WAY:
                await self._machines.network.set_link(other, first, link)
