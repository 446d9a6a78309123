"""The delivery state of one webhook: its position, its failures and its next attempt."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from trunkline.errors import InvalidArgumentError
from trunkline.journal.journal import Journal
from trunkline.journal.store import WebhookKey
from trunkline.tasks.outbox.webhook import (
    DEAD,
    DONE,
    IDLE,
    LIVE,
    PENDING,
    WAITING,
    Webhook,
    WebhookState,
    parse_event_id,
    timestamp,
)

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 3600.0
# Beyond this many doublings every pause is the longest.
_DOUBLINGS: Final = 12
_REASON_LENGTH: Final = 500


def _chance() -> float:
    # Jitter keeps webhooks apart that one receiver refused together; nothing secret hangs on it.
    return random.random()  # noqa: S311


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retry policy of webhooks, and the clocks that it uses."""

    give_up_s: float = 24 * 3600.0
    """After failing for so long, a webhook is given up on: the last try is then."""
    now_s: Callable[[], float] = time.monotonic
    time_ns: Callable[[], int] = time.time_ns
    jitter: Callable[[], float] = _chance

    def backoff_s(self, attempts: int) -> float:
        """Return how long to wait after so many failures: 1 s doubling to an hour, less jitter."""
        doubled_s: float = _FIRST_PAUSE_S * 2 ** min(attempts - 1, _DOUBLINGS)
        return min(_LONGEST_PAUSE_S, doubled_s) * (1 - self.jitter() / 4)


@dataclass(frozen=True, slots=True)
class DeliveryClaim:
    """The right of one sender to deliver to a webhook."""

    id: str
    head: int
    """Of the task when it was claimed: whoever claims reads at least up to there."""


@dataclass(slots=True, eq=False)
class WebhookDelivery:
    """A webhook while anything may still be sent to it.

    `kept` changes with each record; that it is written is up to whoever records.
    """

    journal: Journal
    webhook: Webhook
    retry: RetryPolicy
    claim: DeliveryClaim | None = None
    lease_s: float = 0.0
    claimed_until_s: float = 0.0
    due_s: float = field(init=False, default=0.0)
    """The time of the next attempt; 0: none is scheduled."""
    _failing_since_s: float = field(init=False, default=0.0)
    _examined: int = field(init=False, default=0)
    """Up to here all was sent that there is to send."""
    listener: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        """Continue from the stored state."""
        sequence, _ = parse_event_id(self.webhook.cursor)
        # Of one event there may be more to send, unless it was said that there isn't.
        self._examined = sequence if self.webhook.state == IDLE else max(0, sequence - 1)
        now_s, time_ns = self.retry.now_s(), self.retry.time_ns()
        if self.webhook.attempts:
            since_ns = time_ns - self.webhook.failing_since.ToNanoseconds()
            self._failing_since_s = now_s - max(0, since_ns) / 1e9
        if self.webhook.state == WAITING:
            left_ns = self.webhook.next_attempt.ToNanoseconds() - time_ns
            self.due_s = now_s + min(_LONGEST_PAUSE_S, max(0.0, left_ns / 1e9))

    @property
    def key(self) -> WebhookKey:
        """The id of the task and the id of the webhook."""
        return self.webhook.config.task_id, self.webhook.config.id

    @property
    def is_over(self) -> bool:
        """Nothing more is sent, unless a replay is requested."""
        return self.webhook.state not in LIVE

    def has_events(self) -> bool:
        """Tell whether its task has events that weren't looked at for it.

        Raises:
            TaskNotFoundError, JournalUnavailableError.
        """
        return self.journal.head(self.webhook.config.task_id) > self._examined

    def current_state(self) -> WebhookState:
        """Return its state as people see it."""
        if self.is_over or self.due_s > self.retry.now_s():
            return self.webhook.state
        return PENDING if self.claim is not None or self.has_events() else IDLE

    def record_sent(self, cursor: str) -> None:
        """It was sent up to an event, and more is coming. InvalidArgumentError.

        The same event as before, or none, says that it goes on, and not that anything arrived.
        """
        if cursor not in ("", self.webhook.cursor):
            self._advance(cursor)
        self.webhook.state = PENDING

    def record_finished(self, cursor: str) -> None:
        """It was sent up to an event, or stays where it was, and nothing is left.

        Raises:
            InvalidArgumentError, TaskNotFoundError, JournalUnavailableError.
        """
        task = self.journal.row(self.webhook.config.task_id)
        self._advance(cursor)
        read_to = 0 if self.claim is None else self.claim.head
        self._examined = max(self._examined, read_to, parse_event_id(cursor)[0])
        is_done = task.is_ended and self._examined >= task.head
        self.webhook.state = DONE if is_done else IDLE

    def record_failed(self, reason: str, retry_after_s: float = 0.0) -> None:
        """An attempt failed: the next one has its time, or there is none.

        It comes no earlier than the receiver wants it, unless that is later than an hour from now
        or than the last try.
        """
        kept, pace = self.webhook, self.retry
        now_s, time_ns = pace.now_s(), pace.time_ns()
        if not kept.attempts:
            self._failing_since_s = now_s
            kept.failing_since.CopyFrom(timestamp(time_ns))
        kept.attempts += 1
        kept.last_error = reason[:_REASON_LENGTH]
        left_s = self._failing_since_s + pace.give_up_s - now_s
        if left_s <= 0:
            self._give_up()
            return
        pause_s = max(pace.backoff_s(kept.attempts), min(_LONGEST_PAUSE_S, retry_after_s))
        pause_s = min(left_s, pause_s)
        kept.state = WAITING
        kept.next_attempt.CopyFrom(timestamp(time_ns + int(pause_s * 1e9)))
        self.due_s = now_s + pause_s

    def record_gone(self, reason: str) -> None:
        """The receiver will never take anything again: no more attempts."""
        self.record_failed(reason)
        self._give_up()

    def _give_up(self) -> None:
        self.webhook.state = DEAD
        self.webhook.ClearField("next_attempt")

    def _advance(self, cursor: str) -> None:
        kept = self.webhook
        if cursor:
            if parse_event_id(cursor) < parse_event_id(kept.cursor):
                raise InvalidArgumentError("event id", f"is before {kept.cursor}, which was sent")
            kept.cursor = cursor
        clear_failures(kept)
        self.due_s = 0.0


def clear_failures(webhook: Webhook) -> None:
    """Let a webhook look as if it had never failed."""
    webhook.attempts = 0
    webhook.last_error = ""
    webhook.ClearField("failing_since")
    webhook.ClearField("next_attempt")
