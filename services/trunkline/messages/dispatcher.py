"""Delivers messages. Each delivery is a task of its recipient, and ends as the task ends.

The task's id is stored before the task is submitted, so a dispatcher that continues after a crash
finds the same task. If the task completes, the message is handled. If the task fails, another
attempt follows after an exponential back-off, until the message is a dead letter. A recipient that
is away or at its limit costs no attempt. The time of a handler is not limited.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from trunkline.core.backoff import Backoff, backoff_s
from trunkline.core.redaction import redact_addresses
from trunkline.core.settings import MessagingSettings
from trunkline.core.task_states import INTERRUPTED, TERMINAL
from trunkline.errors import (
    AgentNotFoundError,
    FencedError,
    InvalidArgumentError,
    LimitExceededError,
    OverloadedError,
    PeerError,
    PeerTimeoutError,
    PeerUnavailableError,
    QueueFullError,
    RequestError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.mesh.client import Directory, allocate_task_id
from trunkline.messages.broker import (
    MessageBroker,
    Sender,
    count_sent,
    edge_attributes,
    message_attributes,
)
from trunkline.messages.conversion import complete_replies
from trunkline.messages.delivery_calls import DeliveryCalls
from trunkline.messages.middleware import Middleware, receive
from trunkline.messages.scheduler import Scheduler
from trunkline.messages.store import DeliveryState, Envelope, NewMessage, QueuedDelivery
from trunkline.observe import telemetry
from trunkline.observe.metrics import instruments
from trunkline.tasks.lifecycle import State
from trunkline.v1 import envelope_pb2, message_service_pb2

logger = logging.getLogger(__name__)

_HANDLED: Final = envelope_pb2.DELIVERY_STATE_HANDLED
_DEAD: Final = envelope_pb2.DELIVERY_STATE_DEAD
_EXPIRED: Final = envelope_pb2.DELIVERY_STATE_EXPIRED
_CANCELED: Final = envelope_pb2.DELIVERY_STATE_CANCELED
# The names of these states in metrics.
_STATES: Final = {_HANDLED: "handled", _DEAD: "dead", _EXPIRED: "expired", _CANCELED: "canceled"}
_UNWANTED_TEXT: Final = "its recipient came back without a handler for notices"
_EXPIRED_TEXT: Final = "it expired before it was handled"
# A delivery whose host is unreachable for longer than a takeover no longer counts as running.
_RELEASE_AFTER_S: Final = 30.0
# The deliveries that run at once.
_TOTAL: Final = 256
_T = TypeVar("_T")


def _begin_counts(agent: str) -> None:
    """Begin the counts of a recipient at 0."""
    instruments.DELIVERIES_RETRIED.begin(agent)
    for state in _STATES.values():
        instruments.DELIVERIES_ENDED.begin(agent, state)


class Dispatcher:
    """Makes the deliveries of a store while `run` runs."""

    def __init__(
        self,
        broker: MessageBroker,
        directory: Directory,
        settings: MessagingSettings,
        *,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        """`settings` has the limits and pauses of deliveries."""
        self._broker = broker
        self._store = broker.store
        self._directory = directory
        self._settings = settings
        self._middleware = middleware
        self._scheduler = Scheduler(per_recipient=settings.concurrency, total=_TOTAL)
        self._wake = asyncio.Event()
        self._calls = DeliveryCalls(directory)

    async def run(self) -> None:
        """Make deliveries until canceled. The next dispatcher continues the running tasks."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._calls.run())
            group.create_task(self._read_store())
            group.create_task(self._watch_mesh())
            await self._start_deliveries(group)

    async def _read_store(self) -> None:
        backoff = Backoff()
        while True:
            try:
                async for batch in self._store.deliveries():
                    backoff.reset()
                    self._scheduler.add(batch)
                    self._wake.set()
            except PeerError as error:
                logger.warning("messages.store_unavailable", extra={"problem": str(error)})
            await backoff.pause()

    async def _watch_mesh(self) -> None:
        """Look again for recipients whenever agents come or go."""
        revision = 0
        while True:
            revision = await self._directory.wait_for_change(revision)
            for agent in self._directory.list_agents():
                _begin_counts(agent)
            self._wake.set()
            try:
                await self._broker.note_agents()
            except PeerError as error:
                # The next change notes them.
                logger.warning("messages.store_unavailable", extra={"problem": str(error)})

    async def _start_deliveries(self, group: asyncio.TaskGroup) -> None:
        while True:
            self._wake.clear()
            for expired in self._scheduler.take_expired(_now()):
                group.create_task(self._expire(expired))
            agents = self._directory.list_agents()
            while delivery := self._scheduler.take(_now(), is_available=agents.__contains__):
                group.create_task(self._deliver(delivery))
            next_time = self._scheduler.next_time()
            timeout_s = None if next_time is None else max(0.0, next_time - _now())
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _expire(self, delivery: QueuedDelivery) -> None:
        """End a delivery that expired while it waited."""
        with contextlib.suppress(FencedError):
            await self._end(delivery, _EXPIRED, problem=_EXPIRED_TEXT)

    async def _deliver(self, delivery: QueuedDelivery) -> None:
        """Make one attempt, and schedule the rest of the delivery."""
        postponed = None
        # A FencedError says that another process has this delivery.
        with contextlib.suppress(FencedError):
            postponed = await self._attempt(delivery)
        if postponed is None:
            self._scheduler.end(delivery)
        else:
            self._scheduler.postpone(postponed)
        self._wake.set()

    async def _attempt(self, delivery: QueuedDelivery) -> QueuedDelivery | None:
        """Make an attempt, and store its end; return the delivery if it is postponed."""
        envelope = Envelope()
        envelope.CopyFrom(delivery.envelope)
        telemetry.continue_trace(envelope.traceparent)
        attributes = message_attributes("process", envelope, destination=delivery.key.recipient)
        attributes = {**attributes, **edge_attributes(envelope)}
        name = f"process {delivery.key.recipient}"
        with telemetry.span(name, kind=SpanKind.CONSUMER, attributes=attributes) as span:
            if delivery.attempt_count:
                span.set_attribute(telemetry.MESSAGE_RESEND_COUNT, delivery.attempt_count)
            try:
                if self._broker.is_unwanted(envelope, delivery.key.recipient):
                    await self._end(delivery, _CANCELED, problem=_UNWANTED_TEXT)
                    return None
                self._broker.check_policy(delivery.key.account, envelope, delivery.key.recipient)
                await receive(self._middleware, delivery.key, envelope)
            except TrunklineError as error:
                telemetry.mark_error(span, error)
                return await self._refuse(delivery, error)
            try:
                return await self._make(delivery, envelope, span)
            except TrunklineError:
                raise
            # A defect fails one message, and not the deliveries of all others.
            except Exception as error:
                telemetry.mark_error(span, error)
                extra = {"envelope": delivery.key.envelope_id}
                logger.exception("messages.delivery_failed", extra=extra)
                return await self._fail(delivery, "internal error of the messaging service")

    async def _refuse(
        self, delivery: QueuedDelivery, error: TrunklineError
    ) -> QueuedDelivery | None:
        """Store that a middleware or the policy refuses a message."""
        problem = str(redact_addresses(error))
        if not delivery.task_id:
            delivery = await self._begin(delivery, "")
        if isinstance(error, RequestError):
            await self._end(delivery, _DEAD, problem=problem)
            return None
        return await self._fail(delivery, problem)

    async def _begin(self, delivery: QueuedDelivery, task_id: str) -> QueuedDelivery:
        """Store an attempt, and link the current span to the span of the previous attempt."""
        traceparent = telemetry.current_traceparent()
        begun = await self._persist(
            lambda: self._store.begin_attempt(delivery, task_id, traceparent=traceparent)
        )
        previous = begun.previous_traceparent
        if previous and (link := telemetry.parse_link(previous)):
            trace.get_current_span().add_link(link.context)
        return begun

    async def _make(
        self, delivery: QueuedDelivery, envelope: Envelope, span: Span
    ) -> QueuedDelivery | None:
        begun = delivery
        try:
            if not begun.task_id:
                host = self._directory.choose_host(
                    delivery.key.recipient, context_id=envelope.correlation_id
                )
                task_id = allocate_task_id(host)
                begun = await self._begin(delivery, task_id)
            outcome = await self._run_task(begun, envelope)
        except FencedError:
            raise
        except (AgentNotFoundError, OverloadedError, LimitExceededError) as error:
            # The recipient has left the mesh, or is at its limit.
            return await self._postpone(begun, str(error), is_failure=False)
        except RequestError as error:
            telemetry.mark_error(span, error)
            await self._end(begun, _DEAD, problem=str(redact_addresses(error)))
            return None
        except PeerError as error:
            if not begun.task_id:
                return await self._postpone(begun, str(error), is_failure=False)
            telemetry.mark_error(span, error)
            return await self._fail(begun, str(redact_addresses(error)))
        return await self._settle(begun, envelope, outcome)

    async def _settle(
        self,
        delivery: QueuedDelivery,
        envelope: Envelope,
        outcome: message_service_pb2.DeliveryOutcome,
    ) -> QueuedDelivery | None:
        """Store how a task ended."""
        problem = outcome.problem
        match outcome.state:
            case State.TASK_STATE_COMPLETED:
                replies = complete_replies(outcome.replies, envelope, delivery.key)
                await self._end(delivery, _HANDLED, replies=replies)
            case State.TASK_STATE_CANCELED:
                await self._end(delivery, _CANCELED, problem=problem)
            case State.TASK_STATE_REJECTED:
                problem = problem or f"{delivery.key.recipient} rejected it"
                await self._end(delivery, _DEAD, problem=problem)
            case _:
                return await self._fail(delivery, problem or f"{delivery.key.recipient} failed")
        return None

    async def _fail(self, delivery: QueuedDelivery, problem: str) -> QueuedDelivery | None:
        """Store that an attempt failed. Another attempt follows, unless it was the last."""
        if _has_expired(delivery.envelope):
            await self._end(delivery, _EXPIRED, problem=problem)
            return None
        if delivery.attempt_count >= self._settings.attempts:
            await self._end(delivery, _DEAD, problem=problem)
            return None
        return await self._postpone(delivery, problem)

    async def _postpone(
        self, delivery: QueuedDelivery, problem: str, *, is_failure: bool = True
    ) -> QueuedDelivery:
        instruments.DELIVERIES_RETRIED.add(1, delivery.key.recipient)
        # A recipient at its limit is asked as often as after a first failure.
        failures = max(1, delivery.attempt_count) if is_failure else 1
        settings = self._settings
        not_before = _now() + backoff_s(
            failures, first_s=settings.backoff_s, limit_s=settings.max_backoff_s
        )
        return await self._persist(
            lambda: self._store.postpone(
                delivery, problem=problem, not_before=not_before, is_failure=is_failure
            )
        )

    async def _end(
        self,
        delivery: QueuedDelivery,
        state: DeliveryState,
        *,
        problem: str = "",
        replies: Sequence[Envelope] = (),
    ) -> None:
        """End a delivery with the replies of its recipient, or with the notice of a dead letter.

        Raises:
            FencedError: another process has the delivery.
        """
        prepared: list[NewMessage] = []
        for reply in replies:
            try:
                prepare = partial(self._prepare_reply, delivery, reply)
                prepared.append(await self._persist(prepare))
            except TrunklineError as error:
                # The handler has committed, so a wrong reply does not call it again.
                problem = _note_dropped(delivery, error)
        if state == _DEAD:
            prepared += await self._prepare_error(delivery, problem)
        try:
            await self._persist(
                lambda: self._store.end(delivery, state, problem=problem, replies=prepared)
            )
        except InvalidArgumentError as error:
            # The id of a reply belongs to another message.
            problem = problem or _note_dropped(delivery, error)
            await self._persist(lambda: self._store.end(delivery, state, problem=problem))
            prepared = []
        count_sent(prepared)
        instruments.DELIVERIES_ENDED.add(1, delivery.key.recipient, _STATES[state])
        if state == _DEAD:
            # The problem is in the dead letter only, because it may quote the recipient.
            key = delivery.key
            extra = {"envelope": key.envelope_id, "recipient": key.recipient}
            logger.warning("messages.dead_letter", extra=extra)

    async def _prepare_reply(self, delivery: QueuedDelivery, reply: Envelope) -> NewMessage:
        sender = Sender(delivery.key.account, delivery.caller, delivery.key.recipient)
        return await self._broker.prepare(sender, reply, cause=delivery.envelope, is_reply=True)

    async def _prepare_error(self, delivery: QueuedDelivery, problem: str) -> Sequence[NewMessage]:
        """Return the notice for the sender of a dead letter, if the sender gets a notice."""
        try:
            notice = await self._persist(lambda: self._broker.prepare_error(delivery, problem))
        except TrunklineError as error:
            _note_dropped(delivery, error)
            return ()
        return () if notice is None else (notice,)

    async def _persist(self, write: Callable[[], Awaitable[_T]]) -> _T:
        """Repeat a write until the store can be written, so that no earlier step is repeated.

        Raises:
            FencedError: another process has the delivery.
            RequestError: as the write.
        """
        backoff = Backoff(limit_s=self._settings.max_backoff_s)
        while True:
            try:
                return await write()
            except (FencedError, QueueFullError, LimitExceededError):
                raise
            except PeerError as error:
                logger.warning("messages.store_unavailable", extra={"problem": str(error)})
                await backoff.pause()

    async def _run_task(
        self, delivery: QueuedDelivery, envelope: Envelope
    ) -> message_service_pb2.DeliveryOutcome:
        """Submit the task of a delivery, or follow it; return its outcome once it has ended.

        While a host can't be reached, this waits, because its task continues, or another host takes
        the task over.

        Raises:
            RequestError: the recipient refused the message.
            OverloadedError, LimitExceededError: the recipient is at its limit.
            PeerError: the host is gone for longer than the options' patience, or the message
                expired.
        """
        request = message_service_pb2.MessageDelivery(
            task_id=delivery.task_id,
            envelope=envelope,
            traceparent=telemetry.current_traceparent(),
        )
        backoff = Backoff()
        seen_at = time.monotonic()
        while True:
            called_at = time.monotonic()
            try:
                outcome = await self._calls.deliver(
                    request,
                    agent=delivery.key.recipient,
                    account=delivery.key.account,
                    caller=delivery.caller,
                )
            except (OverloadedError, LimitExceededError):
                raise
            except (PeerError, TaskNotFoundError) as error:
                if isinstance(error, PeerTimeoutError) and _has_expired(envelope):
                    raise
                now = time.monotonic()
                if now - called_at > _RELEASE_AFTER_S:
                    # A host that can't be reached fails a call sooner.
                    seen_at = now
                away_s = now - seen_at
                if away_s > self._settings.host_patience_s:
                    problem = f"its host is gone, and no other one has its journal: {error}"
                    raise PeerUnavailableError(delivery.key.recipient, problem) from error
                if away_s > _RELEASE_AFTER_S:
                    self._release(delivery)
                extra = {"envelope": delivery.key.envelope_id, "problem": str(error)}
                logger.debug("messages.recipient_unreachable", extra=extra)
                await backoff.pause()
                continue
            seen_at = time.monotonic()
            backoff.reset()
            if outcome.state in TERMINAL:
                return outcome
            if outcome.state in INTERRUPTED:
                self._release(delivery)
                await self._wait_for_end(delivery)

    def _release(self, delivery: QueuedDelivery) -> None:
        """Let another delivery run beside a delivery that waits for a person or for its host."""
        self._scheduler.release(delivery)
        self._wake.set()

    async def _wait_for_end(self, delivery: QueuedDelivery) -> None:
        """Wait for the end of a task that waits for a person."""
        watch = self._directory.watch(delivery.task_id, account=delivery.key.account)
        try:
            async with watch as batches:
                async for _ in batches:
                    pass
        except TrunklineError as error:
            extra = {"envelope": delivery.key.envelope_id, "problem": str(error)}
            logger.debug("messages.watch_ended", extra=extra)


def _note_dropped(delivery: QueuedDelivery, error: TrunklineError) -> str:
    """Log that a reply, or the notice of a dead letter, is not sent; return the problem."""
    extra = {"envelope": delivery.key.envelope_id, "problem": str(error)}
    logger.warning("messages.reply_dropped", extra=extra)
    return f"a reply was dropped: {error}"


def _has_expired(envelope: Envelope) -> bool:
    return envelope.HasField("expire_time") and envelope.expire_time.ToDatetime(
        tzinfo=UTC
    ) <= datetime.now(UTC)


def _now() -> float:
    """Return the time in seconds since the epoch, the unit of the store."""
    return datetime.now(UTC).timestamp()
