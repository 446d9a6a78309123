"""The delivery state of one webhook: its position, its failures and its next attempt."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from trunkline.core.backoff import backoff_s
from trunkline.errors import InvalidArgumentError
from trunkline.journal.journal import Journal
from trunkline.journal.store import LIVE_WEBHOOKS, TaskRow, WebhookKey
from trunkline.tasks.outbox.webhook import (
    DEAD,
    DONE,
    IDLE,
    PENDING,
    WAITING,
    Webhook,
    WebhookStateValue,
    parse_event_id,
    timestamp,
)

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 3600.0
_REASON_LENGTH: Final = 500


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retry policy of webhooks, and the clocks that it uses."""

    give_up_s: float
    """The duration of failures after which a webhook is dead; the last attempt is at its end."""
    now_s: Callable[[], float] = time.monotonic
    time_ns: Callable[[], int] = time.time_ns

    def pause_s(self, attempts: int) -> float:
        """Return the pause after so many failed attempts: from a second up to an hour."""
        return backoff_s(attempts, first_s=_FIRST_PAUSE_S, limit_s=_LONGEST_PAUSE_S)


@dataclass(frozen=True, slots=True)
class DeliveryClaim:
    """The exclusive right of a sender to deliver the events of a webhook."""

    id: str
    head: int
    """The task's last sequence at the time of the claim; the claimant reads at least up to it."""


@dataclass(slots=True, eq=False)
class WebhookDelivery:
    """A webhook that may still have events to send.

    The `record_…` methods change `webhook`; the caller writes it to the journal.
    """

    journal: Journal
    webhook: Webhook
    retry: RetryPolicy
    claim: DeliveryClaim | None = None
    lease_s: float = 0.0
    claimed_until_s: float = 0.0
    due_s: float = field(init=False, default=0.0)
    """The time of the next attempt, or 0 if no attempt is scheduled."""
    _failing_since_s: float = field(init=False, default=0.0)
    _examined_sequence: int = field(init=False, default=0)
    """The sequence up to which nothing is left to send."""
    listener: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        """Continue from the stored state."""
        sequence, _ = parse_event_id(self.webhook.cursor)
        # The cursor may be within an event, unless the webhook is idle.
        self._examined_sequence = sequence if self.webhook.state == IDLE else max(0, sequence - 1)
        now_s, time_ns = self.retry.now_s(), self.retry.time_ns()
        if self.webhook.attempts:
            since_ns = time_ns - self.webhook.failing_since.ToNanoseconds()
            self._failing_since_s = now_s - max(0, since_ns) / 1e9
        if self.webhook.state == WAITING:
            remaining_ns = self.webhook.next_attempt.ToNanoseconds() - time_ns
            self.due_s = now_s + min(_LONGEST_PAUSE_S, max(0.0, remaining_ns / 1e9))

    @property
    def key(self) -> WebhookKey:
        """The id of the task and the id of the webhook."""
        return self.webhook.config.task_id, self.webhook.config.id

    @property
    def is_over(self) -> bool:
        """True if the webhook is done or dead: only a replay sends more."""
        return self.webhook.state not in LIVE_WEBHOOKS

    def may_have_events(self) -> bool:
        """Return True unless it is certain that deliveries have examined all events of the task.

        The rows of some ended tasks are not in memory. Claims of their webhooks read them.
        """
        latest = self.journal.latest(self.webhook.config.task_id)
        return latest is None or latest[0] > self._examined_sequence

    def current_state(self) -> WebhookStateValue:
        """Return the state now: the stored one lags behind new events and claims."""
        if self.is_over or self.due_s > self.retry.now_s():
            return self.webhook.state
        return PENDING if self.claim is not None or self.may_have_events() else IDLE

    def record_sent(self, cursor: str) -> None:
        """Record progress: events up to the cursor are sent, and more follow.

        An empty or unchanged cursor only renews the claim: it confirms no delivery.

        Raises:
            InvalidArgumentError: the cursor is malformed, or before the last one.
        """
        if cursor not in ("", self.webhook.cursor):
            self._advance(cursor)
        self.webhook.state = PENDING

    def record_finished(self, cursor: str, task: TaskRow) -> None:
        """Record that nothing is left to send after the cursor. "" is a cursor that has not moved.

        `task` is the current row of the task.

        Raises:
            InvalidArgumentError: the cursor is malformed, or before the last one.
        """
        self._advance(cursor)
        read_to = 0 if self.claim is None else self.claim.head
        self._examined_sequence = max(self._examined_sequence, read_to, parse_event_id(cursor)[0])
        is_done = task.is_ended and self._examined_sequence >= task.head
        self.webhook.state = DONE if is_done else IDLE

    def record_failed(self, reason: str, retry_after_s: float = 0.0) -> None:
        """Record a failed attempt and schedule the next one, or give up.

        The next attempt is not before the receiver's `Retry-After`, which is limited to an hour
        and to the time of the last attempt.
        """
        webhook, retry = self.webhook, self.retry
        now_s, time_ns = retry.now_s(), retry.time_ns()
        if not webhook.attempts:
            self._failing_since_s = now_s
            webhook.failing_since.CopyFrom(timestamp(time_ns))
        webhook.attempts += 1
        webhook.last_error = reason[:_REASON_LENGTH]
        remaining_s = self._failing_since_s + retry.give_up_s - now_s
        if remaining_s <= 0:
            self._give_up()
            return
        pause_s = max(retry.pause_s(webhook.attempts), min(_LONGEST_PAUSE_S, retry_after_s))
        pause_s = min(remaining_s, pause_s)
        webhook.state = WAITING
        webhook.next_attempt.CopyFrom(timestamp(time_ns + int(pause_s * 1e9)))
        self.due_s = now_s + pause_s

    def record_gone(self, reason: str) -> None:
        """Record that the receiver is gone permanently, and give up."""
        self.record_failed(reason)
        self._give_up()

    def _give_up(self) -> None:
        self.webhook.state = DEAD
        self.webhook.ClearField("next_attempt")

    def _advance(self, cursor: str) -> None:
        webhook = self.webhook
        if cursor:
            if parse_event_id(cursor) < parse_event_id(webhook.cursor):
                problem = f"is before {webhook.cursor}, which was sent"
                raise InvalidArgumentError("event id", problem)
            webhook.cursor = cursor
        clear_failures(webhook)
        self.due_s = 0.0


def clear_failures(webhook: Webhook) -> None:
    """Reset the failure state of a webhook."""
    webhook.attempts = 0
    webhook.last_error = ""
    webhook.ClearField("failing_since")
    webhook.ClearField("next_attempt")
