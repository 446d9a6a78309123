"""All promises at once: clients on a mesh of machines whose processes, links and clocks fail.

What the clients see is recorded, and a checker reads the history against the promises.
"""

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from harness.histories.checker import Bounds
from harness.histories.database import open_database
from harness.histories.faults import LINK_FAULTS, FaultKind, draw_faults
from harness.histories.machines import CLIENTS, DATABASES, SERVICES, open_machines
from harness.histories.trial import Trial
from harness.network.nodes import open_network
from harness.promise_scale import PromiseScale

LEASE_S = 3.0
# More in CI would add seconds, and no kind of fault.
CI_FAULTS = 5
BOUNDS = Bounds(end_s=30.0, stop_s=2 * LEASE_S)
FAULTS_OF_A_ROUND = 10
# Further ones would only take time.
MOST_BROKEN_ROUNDS = 5


@pytest.fixture
def faults(request: pytest.FixtureRequest) -> int | None:
    """The faults of a proof, if their number was given."""
    number: int | None = request.config.getoption("--faults")
    return number


async def break_machines(
    folder: Path,
    scale: PromiseScale,
    rng: random.Random,
    *,
    count: int,
    databases: Sequence[str] = (),
    has_clocks: bool = False,
) -> str:
    """Do `count` faults in rounds. Return the rounds that break a promise, in words."""
    kinds = [FaultKind.KILL, FaultKind.FREEZE]
    if has_clocks:
        kinds.append(FaultKind.CLOCK)
    if databases:
        kinds += [FaultKind.DATABASE, FaultKind.STALL]
    if len(databases) > 1:
        kinds.append(FaultKind.FAILOVER)
    nodes = (*SERVICES, CLIENTS, *databases)
    totals: Counter[str] = Counter()
    broken: list[str] = []
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(open_network(*nodes))
        if network.has_links:
            kinds += sorted(LINK_FAULTS)
        database = None
        if databases:
            servers = [network.nodes[name] for name in databases]
            database = await stack.enter_async_context(open_database(*servers))
        machines = await stack.enter_async_context(
            open_machines(
                network, folder, effects=folder / "effects", lease_s=LEASE_S,
                store=database.url if database else "", has_clocks=has_clocks,
            )
        )  # fmt: skip
        trial = Trial(machines, folder, folder / "effects", BOUNDS, database)
        while totals["faults"] < count:
            faults = draw_faults(
                rng, min(count - totals["faults"], FAULTS_OF_A_ROUND), kinds,
                services=SERVICES, nodes=nodes, lease_s=LEASE_S,
            )  # fmt: skip
            verdict = await trial.run(f"{folder.name}-{totals['faults']}", faults, rng)
            totals["faults"] += len(faults)
            totals.update(record.kind for record in verdict.history)
            if verdict.violations:
                broken.append(str(verdict))
            if len(broken) == MOST_BROKEN_ROUNDS:
                break
            scale.show_progress(totals["faults"], count, dict(totals))
    assert totals["ok"]
    assert totals["effect"]
    scale.report(has_links=network.has_links, broken_rounds=len(broken), **totals)
    return "\n".join(broken)


async def test_machines_that_share_a_folder(
    tmp_path: Path, scale: PromiseScale, rng: random.Random, faults: int | None
) -> None:
    """Hosts with journals in files of one folder."""
    count = faults or scale.pick(ci=CI_FAULTS, prove=300)
    assert not await break_machines(tmp_path, scale, rng, count=count)


async def test_machines_that_share_a_database(
    tmp_path: Path, scale: PromiseScale, rng: random.Random, faults: int | None
) -> None:
    """Hosts that share nothing but PostgreSQL, which fails, too."""
    databases = DATABASES[: scale.pick(ci=1, prove=2)]
    count = faults or scale.pick(ci=CI_FAULTS, prove=700)
    assert not await break_machines(
        tmp_path, scale, rng, count=count, databases=databases, has_clocks=scale.is_proof
    )
