"""What is posted of a task's events, in the version of A2A that a webhook was registered in."""

from collections.abc import AsyncIterator, Iterable

from trunkline.client import HostClient
from trunkline.v1 import task_pb2, webhook_service_pb2
from trunkline_bridge.projection import Links, TextPiece, WireEvent
from trunkline_bridge.webhooks.posting import Post
from trunkline_bridge.webhooks.reading import joined, task_at, whole_text
from trunkline_bridge.wire import v0_1_json, v0_3_json, v1_json
from trunkline_bridge.wire.json_values import Json, dumps
from trunkline_bridge.wire.versions import V0_1, V0_3

_JSON = "application/json"
_A2A_JSON = "application/a2a+json"


async def notifications(
    client: HostClient,
    webhook: webhook_service_pb2.Webhook,
    events: Iterable[WireEvent],
    links: Links,
    *,
    is_again: bool = False,
) -> AsyncIterator[Post]:
    """Yield the posts that events are, in order: from A2A 1.0 on each event, before that the task.

    Text that waits together is one event. The task is posted whenever its status has changed, as
    it was then. `is_again` says that what comes first may have arrived before, and nobody knows:
    text that did may have been joined otherwise, so its artifact is put in its place, whole.

    Raises:
        CursorExpiredError: what an event was about is gone.
    """
    if webhook.version not in _OLD:
        for event in joined(events):
            shown = event
            if is_again and isinstance(event, TextPiece):
                shown = await whole_text(client, webhook, event, links)
            is_again = False
            yield _post(shown.id, v1_json.stream_response(shown.response), _A2A_JSON)
        return
    for event in events:
        if event.response.WhichOneof("payload") in ("task", "status_update"):
            task = await task_at(client, webhook, event.sequence, links)
            yield _post(event.id, _OLD[webhook.version](task, webhook), _JSON)


def _v0_3(task: task_pb2.Task, _webhook: webhook_service_pb2.Webhook) -> Json:
    return v0_3_json.task(task)


def _v0_1(task: task_pb2.Task, webhook: webhook_service_pb2.Webhook) -> Json:
    # A task goes by the id that its client chose, and so does its only webhook.
    return v0_1_json.task(task, client_id=webhook.config.id)


_OLD = {V0_3: _v0_3, V0_1: _v0_1}


def _post(event_id: str, content: Json, content_type: str) -> Post:
    return Post(event_id, dumps(content).encode("utf-8"), content_type)
