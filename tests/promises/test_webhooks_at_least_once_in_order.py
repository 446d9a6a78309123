"""Promise 9: webhooks arrive at least once and in order after any failure of host or receiver."""

import asyncio
import base64
import hashlib
import hmac
import random
import secrets
from pathlib import Path

from harness.a2a.sse_client import Json, call, user_message
from harness.mesh.processes import Services, running_services
from harness.promise_scale import PromiseScale
from harness.remote.webhook_receiver import (
    OK,
    Answer,
    ReceivedPost,
    WebhookReceiver,
    open_receiver,
    status,
)

LEASE_S = 1.0
NUMBERS = 60
WHOLE = "".join(f"{n} " for n in range(1, NUMBERS + 1))
KEY = secrets.token_bytes(32)
PATIENCE_S = 300.0
# Shares of posts: refused, accepted without a response, and dropped without a response.
REFUSED, LOST, CUT = 0.03, 0.03, 0.03


class Copy:
    """A receiver's copy of one task, which applies each post id once."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.order: list[tuple[int, int]] = []
        self.states: list[str] = []
        self.text = ""
        self.posts = 0

    def take(self, received: ReceivedPost) -> None:
        self.posts += 1
        if received.id in self.names:
            return
        self.names.add(received.id)
        sequence, number = received.id.rpartition(".")[0].rpartition(".")[2], received.id[-1]
        self.order.append((int(sequence), int(number)))
        for kind, content in received.json.items():
            if kind == "artifactUpdate":
                piece = "".join(part["text"] for part in content["artifact"]["parts"])
                self.text = self.text + piece if content.get("append") else piece
            else:
                self.states.append(content["status"]["state"])

    @property
    def has_ended(self) -> bool:
        return self.states[-1:] == ["TASK_STATE_COMPLETED"]


class Trial:
    """Tasks with webhooks, an unreliable receiver, and processes that are killed."""

    def __init__(self, services: Services, rng: random.Random, kills: int, posts: int) -> None:
        self.copies: dict[str, Copy] = {}
        self.kills = {"bridge": 0, "echo": 0}
        self._services = services
        self._rng = rng
        self._count = 0
        # The posts at which a process is killed before the response, with that process.
        at = sorted(rng.sample(range(2, posts), kills))
        self._plan = {post: ("bridge", "echo")[n % 2] for n, post in enumerate(at)}
        self._is_up = asyncio.Lock()

    async def decide(self, received: ReceivedPost) -> Answer:
        """Accept a post or refuse it; at some posts, kill a process first."""
        check_signature(received)
        self._count += 1
        chance = self._rng.random()
        if chance < REFUSED:
            return status(503)
        if chance < REFUSED + CUT:
            return None
        task_id = received.id.split(".")[0]
        self.copies.setdefault(task_id, Copy()).take(received)
        victim = self._plan.pop(self._count, "")
        if victim:
            await self._kill(victim)
        return None if chance > 1 - LOST else OK

    async def _kill(self, victim: str) -> None:
        async with self._is_up:
            self.kills[victim] += 1
            await self._services.kill(victim)
            await self._services.restart(victim)


def check_signature(received: ReceivedPost) -> None:
    headers = received.headers
    signed = f"{received.id}.{headers['webhook-timestamp']}.".encode() + received.body
    digest = base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"


async def submit(services: Services, receiver: WebhookReceiver) -> str:
    """Begin a task with a webhook; return its id. A refused submit is retried."""
    params: Json = {
        "message": user_message(f"count {NUMBERS} 10"),
        "configuration": {
            "returnImmediately": True,
            "taskPushNotificationConfig": {"url": receiver.url},
        },
    }
    while True:
        try:
            answer = await call(services.http_url, "/agents/echo", "SendMessage", params)
        except OSError:
            continue
        if "result" in answer:
            task_id: str = answer["result"]["task"]["id"]
            return task_id


async def test_webhooks_at_least_once_in_order(
    tmp_path: Path, scale: PromiseScale, rng: random.Random
) -> None:
    """Receivers refuse and hang up before and after they accept; bridge and host are killed."""
    tasks = scale.pick(ci=6, prove=100)
    kills = scale.pick(ci=2, prove=20)
    environment = {
        "TRUNKLINE_LEASE_S": str(LEASE_S),
        "TRUNKLINE_ALLOW_WEBHOOK": "127.0.0.1",
        "TRUNKLINE_WEBHOOK_SECRET": "whsec_" + base64.b64encode(KEY).decode(),
    }
    async with (
        running_services(tmp_path, agents=["echo"], environment=environment) as services,
        open_receiver() as receiver,
    ):
        trial = Trial(services, rng, kills, posts=tasks * 6)
        receiver.decide = trial.decide
        async with asyncio.TaskGroup() as group:
            submitted = [group.create_task(submit(services, receiver)) for _ in range(tasks)]
        names = {task.result() for task in submitted}
        limit_s = PATIENCE_S * (1 + kills)
        await receiver.until(
            lambda _: all(name in trial.copies and trial.copies[name].has_ended for name in names),
            limit_s=limit_s,
        )
    for name in names:
        copy = trial.copies[name]
        # In order from first to last, with the complete text.
        assert copy.order == sorted(copy.order), copy.order
        assert copy.states == [
            "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED",
        ]  # fmt: skip
        assert copy.text == WHOLE
    repeated = sum(trial.copies[name].posts - len(trial.copies[name].names) for name in names)
    scale.report(
        tasks=tasks, posts=len(receiver.all), repeated=repeated, killed=sum(trial.kills.values())
    )
