"""The record of a webhook: validation, storage format, and the form without secrets."""

import re
from typing import TYPE_CHECKING, Final, TypeAlias

from google.protobuf import timestamp_pb2

from trunkline.errors import InvalidArgumentError
from trunkline.journal.store import WebhookRow
from trunkline.v1 import push_notification_pb2, webhook_service_pb2

Config = push_notification_pb2.TaskPushNotificationConfig
Webhook = webhook_service_pb2.Webhook

if TYPE_CHECKING:
    WebhookStateValue: TypeAlias = webhook_service_pb2.WebhookState.ValueType
else:
    # The generated type exists for checkers only; at run time a state is its number.
    WebhookStateValue = int

ANY: Final = webhook_service_pb2.WEBHOOK_STATE_UNSPECIFIED
IDLE: Final = webhook_service_pb2.WEBHOOK_STATE_IDLE
PENDING: Final = webhook_service_pb2.WEBHOOK_STATE_PENDING
WAITING: Final = webhook_service_pb2.WEBHOOK_STATE_WAITING
DEAD: Final = webhook_service_pb2.WEBHOOK_STATE_DEAD
DONE: Final = webhook_service_pb2.WEBHOOK_STATE_DONE

_CONFIG_BYTES: Final = 32 * 1024
_ID_BYTES: Final = 512
# An event id on the wire: SEQUENCE.NUMBER, followed by the epoch unless that is the first one.
_EVENT_ID: Final = re.compile(r"(\d{1,19})\.(\d{1,9})(?:-\d{1,19})?", re.ASCII)


def parse_event_id(event_id: str) -> tuple[int, int]:
    """Return the position of an event id in a task's events; an empty id is before all events.

    Raises:
        InvalidArgumentError: the id is malformed.
    """
    if not event_id:
        return (0, 0)
    match = _EVENT_ID.fullmatch(event_id)
    if match is None:
        raise InvalidArgumentError("event id", "is not of the form SEQUENCE.NUMBER[-EPOCH]")
    return int(match[1]), int(match[2])


def check_config(config: Config) -> None:
    """Check that a configuration can be stored. The bridge checks that its URL is allowed.

    Raises:
        InvalidArgumentError: the configuration has no URL, or is too long.
    """
    if not config.url:
        raise InvalidArgumentError("config.url", "is missing")
    if len(config.id.encode()) > _ID_BYTES:
        raise InvalidArgumentError("config.id", f"is longer than {_ID_BYTES} bytes")
    if config.ByteSize() > _CONFIG_BYTES:
        raise InvalidArgumentError("config", f"is longer than {_CONFIG_BYTES} bytes")


def normalize_config(config: Config, *, task_id: str, config_id: str) -> Config:
    """Return a configuration with its ids set."""
    normalized = Config()
    normalized.CopyFrom(config)
    normalized.ClearField("tenant")
    normalized.task_id = task_id
    normalized.id = config_id
    return normalized


def redact_config(config: Config) -> Config:
    """Return a configuration without its secrets."""
    redacted = Config(id=config.id, task_id=config.task_id, url=config.url)
    if config.authentication.scheme:
        redacted.authentication.scheme = config.authentication.scheme
    return redacted


def redact_webhook(webhook: Webhook) -> Webhook:
    """Return a webhook without its secrets."""
    copy = Webhook()
    copy.CopyFrom(webhook)
    copy.config.CopyFrom(redact_config(webhook.config))
    return copy


def to_row(webhook: Webhook) -> WebhookRow:
    """Return a webhook as a row of the journal."""
    config = webhook.config
    return WebhookRow(config.task_id, config.id, webhook.state, webhook.SerializeToString())


def from_row(row: WebhookRow) -> Webhook:
    """Return the webhook of a journal row."""
    return Webhook.FromString(row.content)


def timestamp(time_ns: int) -> timestamp_pb2.Timestamp:
    """Return a Unix time in nanoseconds as a protobuf timestamp."""
    stamp = timestamp_pb2.Timestamp()
    stamp.FromNanoseconds(time_ns)
    return stamp
