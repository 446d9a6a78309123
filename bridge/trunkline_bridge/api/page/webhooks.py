"""The page's view of webhooks: the progress of their deliveries, and their replay."""

from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Final

from trunkline.a2a_wire.errors import invalid_params
from trunkline.a2a_wire.json_values import Json
from trunkline.errors import TaskNotFoundError, WebhookNotFoundError
from trunkline.mesh.client import Directory
from trunkline.mesh.client.host import HostClient
from trunkline.mesh.client.mesh_watch import HostChanges, open_mesh_watch
from trunkline.mesh.client.mesh_webhooks import list_mesh_webhooks
from trunkline.mesh.client.methods import canceling
from trunkline.observe.audit import Action, AuditLog
from trunkline.v1 import webhook_service_pb2
from trunkline_bridge.api.page.access import PageAccess, may_use
from trunkline_bridge.api.page.binding import (
    API_PATH,
    PageEvent,
    PageStreams,
    Paths,
    read_page_size,
    read_text,
)
from trunkline_bridge.callers.audit import recorded
from trunkline_bridge.callers.authorization import check_permission
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.callers.permissions import CREATE_PUSH_CONFIG
from trunkline_bridge.http.sse import EventStreamResponse

_PATH: Final = f"{API_PATH}/webhooks"
_LIST: Final = "ListTaskPushNotificationConfigs"
_STATE: Final = "WEBHOOK_STATE_"


class PageWebhooks:
    """The webhooks of the caller's tasks, and of all tasks for operators."""

    def __init__(
        self,
        directory: Directory,
        access: PageAccess,
        streams: PageStreams,
        audit: AuditLog | None = None,
    ) -> None:
        """Without an audit log, nothing is recorded."""
        self._streams = streams
        self._directory = directory
        self._access = access
        self._audit = audit

    def paths(self) -> Paths:
        """Return the handlers of the paths."""
        return {
            _PATH: {"GET": self._list_webhooks},
            f"{_PATH}:watch": {"GET": self._watch},
            f"{_PATH}/{{webhook_id:segment}}:replay": {"POST": self._replay},
        }

    async def _list_webhooks(self, caller: Caller, params: Json, _path: Mapping[str, str]) -> Json:
        """Return a page of webhooks, newest first. A host lists its newest 1,000."""
        size, state = read_page_size(params), _parse_state(read_text(params, "state"))
        task_id = read_text(params, "taskId")
        account = self._account(caller)
        directory = self._directory
        found = await list_mesh_webhooks(directory, task_id, state, account=account)
        permitted = [
            webhook
            for answer in found.answers
            for webhook in answer
            if may_use(caller, webhook.agent, _LIST)
        ]
        permitted.sort(key=_position, reverse=True)
        token = read_text(params, "pageToken")
        rest = [webhook for webhook in permitted if not token or _position(webhook) < token]
        page = rest[:size]
        return {
            "webhooks": [_webhook_json(webhook) for webhook in page],
            "nextPageToken": _position(page[-1]) if len(page) < len(rest) else "",
            "isIncomplete": bool(found.failures or directory.missing_hosts),
        }

    async def _watch(
        self, caller: Caller, _params: Json, _path: Mapping[str, str]
    ) -> EventStreamResponse[PageEvent]:
        return self._streams.respond(caller, self._changes(caller))

    async def _changes(self, caller: Caller) -> AsyncGenerator[PageEvent, None]:
        """Yield the webhooks that change or are deleted.

        `ready` says that the watch has begun. `reset` says that changes are missing. The reader
        lists again after both.
        """
        watch_host = partial(_watch_host, account=self._account(caller))
        async with open_mesh_watch(self._directory, watch_host) as watch:
            yield PageEvent("ready", {})
            while True:
                webhooks, is_incomplete = await watch.take()
                if is_incomplete:
                    yield PageEvent("reset", {})
                for webhook in webhooks:
                    if not webhook.state:
                        yield PageEvent("deleted", {"id": _webhook_id(webhook)})
                    elif may_use(caller, webhook.agent, _LIST):
                        yield PageEvent("webhook", _webhook_json(webhook))

    async def _replay(self, caller: Caller, params: Json, path: Mapping[str, str]) -> Json:
        """Send a webhook again: its remaining events, or with `fromStart` all events."""
        task_id, _, config_id = path["webhook_id"].partition(".")
        from_start = params.get("fromStart", False)
        if not isinstance(from_start, bool):
            raise invalid_params(("fromStart", "must be true or false"))
        with recorded(self._audit, caller, Action.WEBHOOK_REPLAY, task=task_id, webhook=config_id):
            client = self._directory.client_for_task(task_id)
            webhooks = await client.list_webhooks(task_id, account=self._account(caller))
            if not config_id or config_id not in [found.config.id for found in webhooks]:
                raise WebhookNotFoundError(task_id, config_id)
            agent = webhooks[0].agent
            check_permission(self._audit, caller, agent, CREATE_PUSH_CONFIG, task_id)
            try:
                count = await client.replay_webhook(task_id, config_id, from_start=from_start)
            except TaskNotFoundError:
                raise WebhookNotFoundError(task_id, config_id) from None
        return {"webhooks": count}

    def _account(self, caller: Caller) -> str:
        """Return the account whose webhooks a caller sees, or an empty text for all accounts."""
        return "" if self._access.is_operator(caller) else caller.account


async def _watch_host(
    client: HostClient, *, account: str
) -> AsyncGenerator[HostChanges[webhook_service_pb2.Webhook], None]:
    """Yield an account's webhooks that change on a host. A deleted webhook has no state."""
    request = webhook_service_pb2.WatchWebhooksRequest(account=account)
    with canceling(client.webhooks.WatchWebhooks(request)) as responses:
        async for response in responses:
            items = [((each.config.task_id, each.config.id), each) for each in response.webhooks]
            yield HostChanges(items, response.is_incomplete)


def _position(webhook: webhook_service_pb2.Webhook) -> str:
    """Return the position of a webhook in the list, which is also a page token."""
    config = webhook.config
    return f"{webhook.created.ToNanoseconds():020d}.{config.task_id}.{config.id}"


def _webhook_id(webhook: webhook_service_pb2.Webhook) -> str:
    return f"{webhook.config.task_id}.{webhook.config.id}"


def _parse_state(text: str) -> webhook_service_pb2.WebhookState.ValueType:
    """Return the state by its short name, or unspecified for an empty name.

    WireError: no such state.
    """
    states = {
        name.removeprefix(_STATE).lower(): value
        for name, value in webhook_service_pb2.WebhookState.items()
        if value != webhook_service_pb2.WEBHOOK_STATE_UNSPECIFIED
    }
    if text and text not in states:
        raise invalid_params(("state", f"must be one of {', '.join(states)}"))
    return states.get(text, webhook_service_pb2.WEBHOOK_STATE_UNSPECIFIED)


def _webhook_json(webhook: webhook_service_pb2.Webhook) -> Json:
    """Return a webhook, which hosts list without its secrets."""
    config = webhook.config
    name = webhook_service_pb2.WebhookState.Name(webhook.state)
    times = {
        key: stamp.ToJsonString() if stamp.ToNanoseconds() else None
        for key, stamp in (
            ("createdAt", webhook.created),
            ("failingSince", webhook.failing_since),
            ("nextAttemptAt", webhook.next_attempt),
        )
    }
    return {
        "id": _webhook_id(webhook),
        "taskId": config.task_id,
        "configId": config.id,
        "url": config.url,
        "agent": webhook.agent,
        "account": webhook.account,
        "version": webhook.version,
        "state": name.removeprefix(_STATE).lower(),
        "sentEventId": webhook.cursor,
        "attempts": webhook.attempts,
        "lastError": webhook.last_error,
        **times,
    }
