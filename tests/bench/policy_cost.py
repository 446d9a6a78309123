"""Measures the cost of users' statements and of the policy per call between two processes.

`.venv/bin/python tests/bench/policy_cost.py` serves a host by mutual TLS in this process and reads
a task over a trunk, in rounds: as a member without a statement and a policy, as a member with a
policy, and as a bridge with a statement and a policy. It prints the CPU time per call, of client
and server together, in the fastest round, which other load disturbs least, and what each adds. On a
busy machine that is noise, so it also prints the time of the server's checks alone.
"""

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.agents.inline_agents import define, message
from harness.journal.opening import open_journal
from harness.mesh.identity import mesh_credentials
from harness.mesh.other_identities import issue
from trunkline.core.identity import MeshCredentials, Role, StatementSigner
from trunkline.core.settings import AccountPolicy, PolicySettings
from trunkline.core.users import User, current_user
from trunkline.mesh.client import ChannelPool, HostClient
from trunkline.mesh.server import MeshServer
from trunkline.mesh.server.authorization import MeshAuthorizer
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.v1 import message_service_pb2, task_service_pb2

_ACCOUNT = "acme"
_CASES = ("off", "policy", "policy and statement")
_METHOD = "trunkline.v1.TaskService/GetTask"
_CHECK_ROUNDS = 100
_PEER = "ipv4:127.0.0.1:1"
_METHODS = ("SendMessage", "GetTask", "WatchTask")


@asynccontextmanager
async def serving(
    host: TaskHost, credentials: MeshCredentials, policy: PolicySettings | None
) -> AsyncIterator[HostClient]:
    """Serve a host; yield a client with other credentials."""
    server = MeshServer(mesh_credentials(), policy=policy)
    server.add_message_service(host)
    server.add_task_service(host)
    (address,) = await server.start("127.0.0.1:0")
    async with ChannelPool(credentials) as channels:
        yield HostClient(channels.get(address))
    await server.stop(0)


async def measure(client: HostClient, task_id: str, calls: int) -> float:
    """Return the CPU microseconds of a call."""
    gc.collect()
    started_s = time.process_time()
    for _ in range(calls):
        await client.get_task(task_id, account=_ACCOUNT)
    return (time.process_time() - started_s) / calls * 1e6


async def measure_checks(
    credentials: MeshCredentials, policy: PolicySettings | None, statement: str, calls: int
) -> float:
    """Return the microseconds of the checks of a call, in the fastest of many rounds."""
    authorizer = MeshAuthorizer(mesh_credentials(), policy)
    request = task_service_pb2.GetTaskRequest(task_id="j-1", account=_ACCOUNT)
    fastest_s = float("inf")
    for _ in range(_CHECK_ROUNDS):
        started_s = time.perf_counter()
        for _ in range(calls):
            identity = credentials.identity
            checks = await authorizer.enter_call(identity, _METHOD, statement, _PEER)
            checks.check(request)
        fastest_s = min(fastest_s, time.perf_counter() - started_s)
    return fastest_s / calls * 1e6


async def run_checks(folder: Path, calls: int) -> dict[str, float]:
    """Return the time of the server's checks of a call in each case."""
    bridge = issue(folder / "checks", role=Role.BRIDGE)
    statement = await StatementSigner(bridge).sign(User(_ACCOUNT, "alice"))
    rules = PolicySettings(accounts={_ACCOUNT: AccountPolicy(methods=_METHODS)})
    costs = (
        await measure_checks(mesh_credentials(), None, "", calls),
        await measure_checks(mesh_credentials(), rules, "", calls),
        await measure_checks(bridge, rules, statement, calls),
    )
    return {case: round(cost, 2) for case, cost in zip(_CASES, costs, strict=True)}


async def run(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Return the lowest CPU time of a call in each case."""

    async def answer(task: TaskContext) -> None:
        await task.complete("done")

    rules = PolicySettings(
        callers={"tested": ("supervisor",)},
        accounts={_ACCOUNT: AccountPolicy(agents=("tested",), methods=_METHODS)},
    )
    bridge = issue(folder, role=Role.BRIDGE)
    journal = open_journal(folder / "journal.db")
    rounds: dict[str, list[float]] = {case: [] for case in _CASES}
    async with TaskHost(journal, [define(answer)]) as host, AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(serving(host, credentials, policy))
            for credentials, policy in (
                (mesh_credentials(), None),
                (mesh_credentials(), rules),
                (bridge, rules),
            )
        ]
        submission = message_service_pb2.Submission(account=_ACCOUNT, caller="alice")
        accepted = await host.submit("tested", message("hello"), submission)
        task_id = (await host.wait_turn(accepted.task_id)).task.id
        users: Sequence[User | None] = (None, None, User(_ACCOUNT, "alice"))
        for number in range(options.rounds + 1):
            for case, client, user in zip(_CASES, clients, users, strict=True):
                current_user.set(user)
                cost = await measure(client, task_id, options.calls)
                # The first round connects and warms up.
                if number:
                    rounds[case].append(cost)
    await journal.close()
    return {case: min(costs) for case, costs in rounds.items()}


def main() -> None:
    """Measure, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checks = asyncio.run(run_checks(Path(folder), options.calls))
        costs = asyncio.run(run(options, Path(folder)))
    base = costs["off"]
    report = {
        case: {
            "cpu_us": round(cost, 1),
            "more_percent": round((cost / base - 1) * 100, 1),
            "checks_us": checks[case],
        }
        for case, cost in costs.items()
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
