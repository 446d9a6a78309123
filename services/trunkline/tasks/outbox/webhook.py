"""A webhook as it is kept beside its task: made, checked, shown without its secrets."""

import re
from typing import TYPE_CHECKING, Final, TypeAlias

from google.protobuf import timestamp_pb2

from trunkline.errors import InvalidArgumentError
from trunkline.journal.store import WebhookRow
from trunkline.v1 import push_notification_pb2, webhook_service_pb2

Config = push_notification_pb2.TaskPushNotificationConfig
Webhook = webhook_service_pb2.Webhook

if TYPE_CHECKING:
    WebhookState: TypeAlias = webhook_service_pb2.WebhookState.ValueType
else:
    # The generated type exists for checkers only; at run time a state is its number.
    WebhookState = int

ANY: Final = webhook_service_pb2.WEBHOOK_STATE_UNSPECIFIED
IDLE: Final = webhook_service_pb2.WEBHOOK_STATE_IDLE
PENDING: Final = webhook_service_pb2.WEBHOOK_STATE_PENDING
WAITING: Final = webhook_service_pb2.WEBHOOK_STATE_WAITING
DEAD: Final = webhook_service_pb2.WEBHOOK_STATE_DEAD
DONE: Final = webhook_service_pb2.WEBHOOK_STATE_DONE
# Those to which something may still be sent.
LIVE: Final = (IDLE, PENDING, WAITING)

_CONFIG_BYTES: Final = 32 * 1024
_ID_BYTES: Final = 512
# An event id of the wire: the sequence, which of its wire events, and any epoch but the first.
_EVENT_ID: Final = re.compile(r"(\d{1,19})\.(\d{1,9})(?:-\d{1,19})?", re.ASCII)


def parse_event_id(event_id: str) -> tuple[int, int]:
    """Return where in a task's events an event id is; none is before all.

    Raises:
        InvalidArgumentError: it is no event id.
    """
    if not event_id:
        return (0, 0)
    found = _EVENT_ID.fullmatch(event_id)
    if found is None:
        raise InvalidArgumentError("event id", "is not of the form SEQUENCE.NUMBER[-EPOCH]")
    return int(found[1]), int(found[2])


def check_config(config: Config) -> None:
    """Refuse what can't be kept; whether it leads anywhere good is asked at the edge.

    Raises:
        InvalidArgumentError: it has no URL, or is too long.
    """
    if not config.url:
        raise InvalidArgumentError("config.url", "is missing")
    if len(config.id.encode()) > _ID_BYTES:
        raise InvalidArgumentError("config.id", f"is longer than {_ID_BYTES} bytes")
    if config.ByteSize() > _CONFIG_BYTES:
        raise InvalidArgumentError("config", f"is longer than {_CONFIG_BYTES} bytes")


def normalize_config(config: Config, task_id: str) -> Config:
    """Return a webhook's configuration with its ids: without one of its own, it has the task's."""
    kept = Config()
    kept.CopyFrom(config)
    kept.ClearField("tenant")
    kept.task_id = task_id
    kept.id = config.id or task_id
    return kept


def redact_config(config: Config) -> Config:
    """Return what anybody may see of a configuration."""
    shown = Config(id=config.id, task_id=config.task_id, url=config.url)
    if config.authentication.scheme:
        shown.authentication.scheme = config.authentication.scheme
    return shown


def redact_webhook(webhook: Webhook) -> Webhook:
    """Return what people may see of a webhook."""
    copy = Webhook()
    copy.CopyFrom(webhook)
    copy.config.CopyFrom(redact_config(webhook.config))
    return copy


def to_row(webhook: Webhook) -> WebhookRow:
    """Return a webhook as the journal keeps it."""
    config = webhook.config
    return WebhookRow(config.task_id, config.id, webhook.state, webhook.SerializeToString())


def from_row(row: WebhookRow) -> Webhook:
    """Return a webhook that the journal has kept."""
    return Webhook.FromString(row.content)


def timestamp(time_ns: int) -> timestamp_pb2.Timestamp:
    """Return a time as messages have it."""
    stamp = timestamp_pb2.Timestamp()
    stamp.FromNanoseconds(time_ns)
    return stamp
