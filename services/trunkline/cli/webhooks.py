"""Webhooks as commands show them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from google.protobuf import timestamp_pb2

from trunkline.errors import ConfigurationError
from trunkline.v1 import webhook_service_pb2

_PREFIX: Final = "WEBHOOK_STATE_"
STATES: Final = {
    name.removeprefix(_PREFIX).lower(): value
    for name, value in webhook_service_pb2.WebhookState.items()
    if value != webhook_service_pb2.WEBHOOK_STATE_UNSPECIFIED
}
"""The states that `--state` selects, by name."""

# The columns of the table. The page has the same words.
COLUMNS: Final[Mapping[str, Callable[[webhook_service_pb2.Webhook], str]]] = {
    "TASK": lambda webhook: webhook.config.task_id,
    "WEBHOOK": lambda webhook: webhook.config.id,
    "STATE": lambda webhook: state_name(webhook),
    "SENT": lambda webhook: webhook.cursor or "-",
    "URL": lambda webhook: webhook.config.url,
    "LAST ERROR": lambda webhook: webhook.last_error,
}


def webhook_not_found(task_id: str, config_id: str) -> ConfigurationError:
    """Return the error for a task that has no such webhook; an empty id is any webhook."""
    webhook = f"webhook {config_id!r}" if config_id else "webhook"
    problem = f"has no {webhook}; see `trunkline webhooks list`"
    return ConfigurationError(f"task {task_id!r}", problem)


def describe_webhook(webhook: webhook_service_pb2.Webhook) -> Iterator[str]:
    """Yield the lines that describe a webhook and its delivery."""
    yield f"webhook   {webhook.config.id}"
    yield f"task      {webhook.config.task_id}"
    yield f"agent     {webhook.agent}"
    yield f"account   {webhook.account}"
    yield f"url       {webhook.config.url}"
    yield f"version   {webhook.version}"
    yield f"state     {state_name(webhook)}"
    yield f"sent      {f'up to event {webhook.cursor}' if webhook.cursor else 'nothing'}"
    yield f"created   {_format_time(webhook.created)}"
    if webhook.attempts:
        since = _format_time(webhook.failing_since)
        yield f"failing   since {since}, attempts: {webhook.attempts}, last: {webhook.last_error}"
    if webhook.HasField("next_attempt"):
        yield f"next try  {_format_time(webhook.next_attempt)}"


def to_fields(webhook: webhook_service_pb2.Webhook) -> dict[str, Any]:
    """Return a webhook as JSON."""
    return {
        "task_id": webhook.config.task_id,
        "webhook_id": webhook.config.id,
        "url": webhook.config.url,
        "agent": webhook.agent,
        "account": webhook.account,
        "version": webhook.version,
        "state": state_name(webhook),
        "cursor": webhook.cursor,
        "attempts": webhook.attempts,
        "last_error": webhook.last_error,
        "failing_since": _format_time(webhook.failing_since),
        "next_attempt": _format_time(webhook.next_attempt),
        "created": _format_time(webhook.created),
    }


def state_name(webhook: webhook_service_pb2.Webhook) -> str:
    """Return the name of the state of a webhook."""
    name = webhook_service_pb2.WebhookState.Name(webhook.state)
    return name.removeprefix(_PREFIX).lower()


def _format_time(stamp: timestamp_pb2.Timestamp) -> str:
    """Return a time in ISO 8601, or "" if it is not set."""
    return stamp.ToJsonString() if stamp.ToNanoseconds() else ""
