"""Checks of webhooks: their configurations and their deliveries, those of the TCK too."""

import base64
import hashlib
import hmac

from a2a.types import a2a_pb2

from harness.a2a.protocol_variants import ProtocolVariant
from harness.conformance.registry import (
    MISSING,
    WEBHOOK_SECRET,
    Json,
    System,
    check,
    completed_task,
    refusal,
    send,
    started_task,
)
from harness.remote.webhook_receiver import Answer, ReceivedPost, accept, open_receiver, status
from trunkline.core.json_values import parse_dict

_NEEDS = "pushNotifications"
_CREDENTIALS = "token-of-the-webhook"
_BEARER = {"authentication": {"scheme": "Bearer", "credentials": _CREDENTIALS}}


async def _with_webhook(
    system: System, wire: ProtocolVariant, secrets: Json | None = None
) -> tuple[str, Json]:
    """Return a completed task with a webhook, and the answer to the registration."""
    task = await completed_task(wire)
    fields = {"task": task["id"], "config": "hook-1", "url": system.receiver.url}
    return task["id"], await wire.ask("set_push", secrets=secrets or {}, **fields)


@check("PUSH-CFG-001", "TCK/PUSH-CREATE-001", needs=_NEEDS)
async def _a_webhook_is_registered(system: System, wire: ProtocolVariant) -> None:
    _, created = await _with_webhook(system, wire)
    assert (created["id"], created["url"]) == ("hook-1", system.receiver.url)


@check("PUSH-CFG-002", "TCK/PUSH-CREATE-002", "TCK/PUSH-GET-001", "SEC-PUSH-001", needs=_NEEDS)
async def _a_webhook_is_read(system: System, wire: ProtocolVariant) -> None:
    task_id, created = await _with_webhook(system, wire, _BEARER)
    read = await wire.ask("get_push", task=task_id, config="hook-1")
    assert read == created
    assert (read["id"], read["url"]) == ("hook-1", system.receiver.url)
    assert _CREDENTIALS not in str(read)
    await _deliver(system, wire, _BEARER)


@check("PUSH-LIST-001", "TCK/PUSH-LIST-001", needs=_NEEDS)
async def _webhooks_are_listed(system: System, wire: ProtocolVariant) -> None:
    task_id, created = await _with_webhook(system, wire)
    other = await wire.ask("set_push", task=task_id, config="hook-2", url=system.receiver.url)
    configs = (await wire.ask("list_push", task=task_id))["configs"]
    assert sorted(configs, key=lambda config: config["id"]) == [created, other]


@check("PUSH-ERR-001", "TCK/PUSH-GET-002", needs=_NEEDS)
async def _a_missing_webhook_is_an_error(_system: System, wire: ProtocolVariant) -> None:
    task = await completed_task(wire)
    reason = await refusal(wire, "get_push", task=task["id"], config=MISSING)
    assert reason == "TASK_NOT_FOUND"


@check("PUSH-CFG-003", "PUSH-IDEM-001", "TCK/PUSH-DEL-001", "TCK/PUSH-DEL-002", needs=_NEEDS)
async def _a_webhook_is_removed_once_and_again(system: System, wire: ProtocolVariant) -> None:
    task_id, _ = await _with_webhook(system, wire)
    for _ in range(2):
        assert not await wire.ask("delete_push", task=task_id, config="hook-1")
    reason = await refusal(wire, "get_push", task=task_id, config="hook-1")
    assert reason == "TASK_NOT_FOUND"


async def _deliver(system: System, wire: ProtocolVariant, secrets: Json) -> ReceivedPost:
    """Return the post of a task's completion, which its receiver checks."""

    async def decide(post: ReceivedPost) -> Answer:
        return await accept(post) if _is_authentic(post) else status(401)

    async with open_receiver(decide) as receiver:
        task = await started_task(wire)
        fields = {"task": task["id"], "config": "hook-1", "url": receiver.url}
        await wire.ask("set_push", secrets=secrets, **fields)
        system.agent.release(task["id"])
        await receiver.until(lambda seen: any(_ends(post, task["id"]) for post in seen.accepted))
        assert receiver.accepted == receiver.all
        return next(post for post in receiver.accepted if _ends(post, task["id"]))


def _is_authentic(post: ReceivedPost) -> bool:
    return post.headers.get("authorization") == f"Bearer {_CREDENTIALS}"


def _ends(post: ReceivedPost, task_id: str) -> bool:
    """Return whether a post of any version reports the completion of the task."""
    body = post.json.get("statusUpdate") or post.json.get("task") or post.json
    is_of_task = task_id in (body.get("taskId"), body.get("id"))
    ended = ("TASK_STATE_COMPLETED", "completed")
    return is_of_task and body.get("status", {}).get("state") in ended


@check("PUSH-DELIV-001", "TCK/PUSH-DELIVER-001", needs=_NEEDS)
async def _a_delivery_has_the_credentials(system: System, wire: ProtocolVariant) -> None:
    post = await _deliver(system, wire, _BEARER | {"token": "the-token"})
    assert post.headers["authorization"] == f"Bearer {_CREDENTIALS}"
    assert post.headers["x-a2a-notification-token"] == "the-token"


@check("PUSH-DELIV-002", "TCK/PUSH-DELIVER-002", needs=_NEEDS)
async def _a_delivery_is_repeated_until_it_is_accepted(
    system: System, wire: ProtocolVariant
) -> None:
    refused: list[str] = []

    async def refuse_once(post: ReceivedPost) -> Answer:
        if refused:
            return await accept(post)
        refused.append(post.id)
        return status(503, "retry-after: 0")

    async with open_receiver(refuse_once) as receiver:
        task = await started_task(wire)
        await wire.ask("set_push", task=task["id"], config="hook-1", url=receiver.url)
        system.agent.release(task["id"])
        await receiver.until(lambda seen: any(_ends(post, task["id"]) for post in seen.accepted))
        assert receiver.ids()[0] == refused[0]


@check("PUSH-DELIV-003", "TCK/PUSH-DELIVER-003", needs=_NEEDS)
async def _a_delivery_is_a_stream_response(system: System, wire: ProtocolVariant) -> None:
    post = await _deliver(system, wire, _BEARER)
    parsed = parse_dict(post.json, a2a_pb2.StreamResponse())
    assert list(post.json) == ["statusUpdate"]
    assert parsed.status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED


@check("SEC-PUSH-002", needs=_NEEDS)
async def _a_receiver_tells_ours_from_forged_posts(system: System, wire: ProtocolVariant) -> None:
    # Our own client registers no webhooks, as `clients` proves, so this is about receivers of
    # ours: the credentials and the signature of a post prove its origin.
    post = await _deliver(system, wire, _BEARER)
    assert _is_authentic(post)
    assert post.headers["webhook-signature"] == _signature(post)
    changed = ReceivedPost(post.target, post.headers, post.body.replace(b"COMPLETED", b"FAILED"))
    assert changed.body != post.body
    assert post.headers["webhook-signature"] != _signature(changed)


def _signature(post: ReceivedPost) -> str:
    """Return the signature of a post (Standard Webhooks)."""
    key = base64.b64decode(WEBHOOK_SECRET.removeprefix("whsec_"))
    signed = f"{post.id}.{post.headers['webhook-timestamp']}.".encode() + post.body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


@check("TCK-0.3/delivery_received", "TCK-0.3/delivery_auth_header", version="0.3", needs=_NEEDS)
async def _a_delivery_of_v0_3_has_the_credentials(system: System, wire: ProtocolVariant) -> None:
    secrets = {"authentication": {"schemes": ["Bearer"], "credentials": _CREDENTIALS}}
    post = await _deliver(system, wire, secrets)
    assert post.headers["authorization"] == f"Bearer {_CREDENTIALS}"


@check(
    "TCK-0.3/delivery_token_header",
    "TCK-0.3/delivery_payload_is_task",
    version="0.3",
    needs=_NEEDS,
)
async def _a_delivery_of_v0_3_is_the_task(system: System, wire: ProtocolVariant) -> None:
    task = await send(wire, "tck-multi-turn start")
    fields = {"task": task["id"], "config": "hook-1"}
    async with open_receiver() as receiver:
        await wire.ask("set_push", url=receiver.url, secrets={"token": "the-token"}, **fields)
        await send(wire, "done", task=task["id"])
        await receiver.until(lambda seen: any(_ends(post, task["id"]) for post in seen.accepted))
        post = receiver.accepted[-1]
    assert post.headers["x-a2a-notification-token"] == "the-token"
    assert (post.json["kind"], post.json["id"]) == ("task", task["id"])
    assert post.json["status"]["state"] == "completed"
