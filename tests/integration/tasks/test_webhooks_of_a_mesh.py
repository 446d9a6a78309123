"""Webhooks of `trunkline up`: abandoned, shown and replayed by the command line, and signed."""

import asyncio
import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

from harness.a2a.sse_client import call, user_message
from harness.mesh.command_line import CompletedCommand, run_command
from harness.mesh.processes import MeshProcess, running_mesh
from harness.remote.webhook_receiver import Answer, ReceivedPost, accept, open_receiver, status

PATIENCE_S = 300.0
POLL_S = 0.05


async def trunkline(*words: str) -> CompletedCommand:
    done = await run_command("webhooks", *words)
    assert done.exit == 0, done.err
    return done


async def webhooks(mesh: MeshProcess, *words: str) -> Any:
    return (await trunkline(*words, "--mesh", mesh.mesh_address, "--json")).json


async def test_an_abandoned_webhook_is_listed_and_replayed(tmp_path: Path) -> None:
    async def refuse(_received: ReceivedPost) -> Answer:
        return status(503)

    environment = {"TRUNKLINE_WEBHOOK_GIVE_UP_S": "1"}
    flags = ("--allow-webhook", "127.0.0.1")
    async with (
        open_receiver(refuse) as receiver,
        running_mesh(tmp_path, *flags, environment=environment) as mesh,
    ):
        webhook = {"url": receiver.url, "token": "opaque-77"}
        configuration = {"taskPushNotificationConfig": webhook}
        params = {"message": user_message("echo hello"), "configuration": configuration}
        answer = await call(mesh.http_url, "/agents/echo", "SendMessage", params)
        # A failed webhook has no effect on its task.
        task = answer["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        dead: list[Any] = []
        async with asyncio.timeout(PATIENCE_S):
            while not dead:
                dead = await webhooks(mesh, "list", "--state", "dead")
                await asyncio.sleep(POLL_S)
        assert dead[0]["task_id"] == task["id"]
        output = (await trunkline("show", task["id"], "--mesh", mesh.mesh_address)).out
        assert "it answered 503" in output
        assert "opaque-77" not in output
        receiver.decide = accept
        replayed = await webhooks(mesh, "replay", task["id"])
        assert replayed["webhooks"] == 1
        await receiver.until(lambda posts: len(posts.accepted) >= 4)
        secret = (await trunkline("secret", "--data", str(tmp_path / "data"))).out
    key = base64.b64decode(secret.strip().removeprefix("whsec_"))
    for post in receiver.accepted:
        signed = f"{post.id}.{post.headers['webhook-timestamp']}.".encode() + post.body
        digest = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
        assert post.headers["webhook-signature"] == f"v1,{digest}"
