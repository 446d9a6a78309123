"""Promise 4: after any death or freeze, a task resumes, runs again, or fails with the reason."""

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from harness.a2a.reconnecting_client import stream_with_reconnects
from harness.a2a.sse_client import PATIENCE_S, ClientFold, Json, WireEvent, call, sse, user_message
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import WITH_HARNESS, Services, running_services
from harness.promise_scale import PromiseScale, percentiles
from trunkline.journal.events import parse_header
from trunkline.mesh.client import ChannelPool, Directory

# A machine that starves its processes for a lease makes them lose it, so CI has a longer one.
CI_LEASE_S = 3.0
PROOF_LEASE_S = 1.0
NUMBERS = 300
WHOLE = "".join(f"{n} " for n in range(1, NUMBERS + 1))
# The request to each agent: about a second and a half of numbers.
QUESTIONS = {"echo": f"count {NUMBERS} 5", "once": f"{NUMBERS} 5"}
HARM = ("kill", "kill and restart", "freeze")


def environment(lease_s: float | None = None) -> dict[str, str]:
    """Return the variables of the services. None: the default lease."""
    lease = {} if lease_s is None else {"TRUNKLINE_LEASE_S": str(lease_s)}
    return {**WITH_HARNESS, **lease}


class Trial:
    """One task, and the harm to the process that runs it."""

    def __init__(
        self,
        services: Services,
        agent: str,
        harm: str,
        at: int,
        *,
        lease_s: float,
        directory: Directory | None = None,
    ) -> None:
        """With a directory, the agent has replicas, and the one that has the task is harmed."""
        self.services = services
        self.agent = agent
        self.harm = harm
        self.process = agent
        self._directory = directory
        self.seen = 0
        self.harmed_at: float | None = None
        self.news_after_s: float | None = None
        self.is_back_in_time = False
        """True if it restarted within its lease, so no other host took its tasks over."""
        self._at = at
        self._lease_s = lease_s

    async def run(self) -> ClientFold:
        """Follow the task to its end, and start the process again."""
        url = self.services.http_url
        fold = await stream_with_reconnects(
            url, f"/agents/{self.agent}", QUESTIONS[self.agent], on_event=self._on_event
        )
        if self.harm == "freeze":
            self.services.cont(self.process)
        await self._back()
        return fold

    async def _on_event(self, fold: ClientFold, _event: WireEvent) -> None:
        self.seen += 1
        if self.harmed_at is not None and self.news_after_s is None:
            # Buffered events arrive at once; the first event of a restarted process takes longer.
            since_s = time.monotonic() - self.harmed_at
            if since_s > 0.2:
                self.news_after_s = since_s
        if self.seen == self._at:
            if self._directory is not None:
                address = self._directory.get_task_host(fold.task_id).address
                (self.process,) = (
                    name
                    for name in self.services.processes
                    if self.services.address(name) == address
                )
            self.harmed_at = time.monotonic()
            if self.harm == "freeze":
                self.services.stop(self.process)
            else:
                await self.services.kill(self.process)
                if self.harm == "kill and restart":
                    await self.services.restart(self.process)
                    # At the kill, part of its lease was already over.
                    self.is_back_in_time = time.monotonic() - self.harmed_at < self._lease_s / 2

    async def _back(self) -> None:
        process = self.services.processes[self.process]
        if self.harmed_at is None or self.harm == "kill and restart":
            return
        if self.harm == "freeze":
            # It was declared dead, and killed before the takeover of its tasks.
            async with asyncio.timeout(PATIENCE_S):
                await process.wait()
        await self.services.restart(self.process)


async def check(trial: Trial, fold: ClientFold, directory: Directory) -> str:
    """Assert that the task ended well or with the reason, in one journal. Return its end."""
    url, path = trial.services.http_url, f"/agents/{trial.agent}"
    task: Json = {}
    async with asyncio.timeout(PATIENCE_S):
        while not task:
            snapshot = await call(url, path, "GetTask", {"id": fold.task_id})
            # Until the restarted host has registered, the directory lists no host for the task.
            task = snapshot.get("result", {})
    again = ClientFold()
    again.take_task(task)
    assert (again.state, again.texts) == (fold.state, fold.texts)
    await check_epochs(directory, fold.task_id)
    (text,) = fold.texts.values() or [""]
    if fold.state == "TASK_STATE_COMPLETED":
        assert text == WHOLE
        return "completed"
    # Only a repeatable agent runs again, and only on a host that has it.
    assert fold.state == "TASK_STATE_FAILED", task
    assert trial.agent == "once" or not trial.is_back_in_time, task
    said = "".join(part["text"] for part in task["status"]["message"]["parts"])
    assert "host" in said, said
    assert WHOLE.startswith(text)
    return "failed with the reason"


async def check_epochs(directory: Directory, task_id: str) -> None:
    """Assert that no epoch of a journal has events after the start of the next one."""
    async with directory.watch(
        task_id, account="anonymous", after=0, with_snapshot=False
    ) as stream:
        epochs = [parse_header(sealed).epoch async for batches in stream for sealed in batches]
    assert epochs == sorted(epochs)


async def test_nothing_is_stuck(tmp_path: Path, scale: PromiseScale, rng: random.Random) -> None:
    """Hosts are killed, or frozen past their lease and thawed, at any point of a task."""
    trials = scale.pick(ci=3, prove=60)
    lease_s = scale.pick(ci=CI_LEASE_S, prove=PROOF_LEASE_S)
    outcomes: Counter[str] = Counter()
    news: list[float] = []
    async with (
        running_services(
            tmp_path,
            agents=("supervisor", "echo"),
            others={"once": "harness.agents.once_agent:once"},
            environment=environment(lease_s),
        ) as services,
        ChannelPool(mesh_credentials()) as channels,
        Directory(channels, services.mesh_address) as directory,
    ):
        for number in range(trials):
            agent = ("echo", "once")[number % 2]
            harm = HARM[number % 3]
            at = rng.randrange(1, NUMBERS)
            trial = Trial(services, agent, harm, at, lease_s=lease_s)
            fold = await trial.run()
            end = await check(trial, fold, directory)
            outcomes[f"{agent} {harm}: {end}"] += 1
            if trial.news_after_s is not None:
                news.append(trial.news_after_s)
    if scale.is_proof:
        # Only of those that did not restart at once, because a restart does not wait for the lease.
        assert max(news) <= 2 * lease_s + 0.5, news
    scale.report(trials=trials, news_after=percentiles(news), **outcomes)


async def test_a_replica_resumes_the_tasks_of_a_dead_host(
    tmp_path: Path, scale: PromiseScale, rng: random.Random
) -> None:
    """Two processes run one agent; after a kill of the one with a task, the other completes it."""
    trials = scale.pick(ci=1, prove=40)
    lease_s = scale.pick(ci=CI_LEASE_S, prove=PROOF_LEASE_S)
    news: list[float] = []
    async with (
        running_services(tmp_path, agents=("echo",), environment=environment(lease_s)) as services,
        ChannelPool(mesh_credentials()) as channels,
        Directory(channels, services.mesh_address) as directory,
    ):
        await services.start("second", "agents", "echo")
        for _ in range(trials):
            at = rng.randrange(1, NUMBERS)
            trial = Trial(services, "echo", "kill", at, lease_s=lease_s, directory=directory)
            fold = await trial.run()
            assert await check(trial, fold, directory) == "completed"
            if trial.news_after_s is not None:
                news.append(trial.news_after_s)
    if scale.is_proof:
        assert max(news) <= 2 * lease_s + 0.5, news
    scale.report(trials=trials, news_after=percentiles(news))


async def test_clients_that_vanish_change_nothing(
    tmp_path: Path, scale: PromiseScale, rng: random.Random
) -> None:
    """A client may disconnect at any moment: its task still completes."""
    tasks = scale.pick(ci=10, prove=300)
    async with running_services(tmp_path, agents=("echo",), environment=environment()) as services:
        asked: list[str] = []

        async def vanish(reads: int) -> None:
            params = {"message": user_message("count 100 3")}
            async with sse(
                services.http_url, "/agents/echo", "SendStreamingMessage", params
            ) as answer:
                async for event in answer.events():
                    if "task" in event.result:
                        asked.append(event.result["task"]["id"])
                    if not reads:
                        answer.cut()
                        return
                    reads -= 1

        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(vanish(rng.randrange(100)))
        assert len(asked) == tasks
        for task_id in asked:
            await until_completed(services, task_id)
    scale.report(tasks=tasks)


async def until_completed(services: Services, task_id: str) -> None:
    """Wait for a task's end, and assert that it completed."""
    url, path = services.http_url, "/agents/echo"
    async with asyncio.timeout(PATIENCE_S):
        while True:
            task = (await call(url, path, "GetTask", {"id": task_id}))["result"]
            state = task["status"]["state"]
            if state not in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"):
                break
            await asyncio.sleep(0.05)
    assert state == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("victim", ["echo", "bridge"])
async def test_sigterm_under_load_loses_nothing(
    tmp_path: Path, scale: PromiseScale, victim: str
) -> None:
    """A host finishes accepted tasks before it exits; readers of a bridge resume elsewhere."""
    streams = scale.pick(ci=12, prove=100)
    async with running_services(tmp_path, agents=("echo",), environment=environment()) as services:
        started = asyncio.Event()
        count = 0

        async def on_event(_fold: ClientFold, event: WireEvent) -> None:
            nonlocal count
            count += "task" in event.result
            if count >= streams:
                started.set()

        async def follow() -> ClientFold:
            return await stream_with_reconnects(
                services.http_url, "/agents/echo", QUESTIONS["echo"], on_event=on_event
            )

        async with asyncio.TaskGroup() as group:
            following = [group.create_task(follow()) for _ in range(streams)]
            await started.wait()
            assert await services.terminate(victim) == 0
            await services.restart(victim)
        for task in following:
            fold = task.result()
            assert fold.state == "TASK_STATE_COMPLETED"
            assert list(fold.texts.values()) == [WHOLE]
    scale.report(streams=streams)
