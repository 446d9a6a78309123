"""Delivers messages: each delivery is a task of its recipient, and ends as that task does.

The task's id is stored before the task is submitted, so a dispatcher that continues after a crash
finds the same task. A completed task is a handled message. A failed one is tried again with
exponential back-off, until the message is a dead letter.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from opentelemetry.trace import SpanKind

from trunkline import telemetry
from trunkline.client import Directory, allocate_task_id
from trunkline.client.backoff import Backoff
from trunkline.errors import (
    AgentNotFoundError,
    FencedError,
    InvalidArgumentError,
    OverloadedError,
    PeerError,
    RequestError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.messaging.broker import MessageBroker, Sender
from trunkline.messaging.middleware import Middleware
from trunkline.messaging.replies import build_request, read_problem, read_replies
from trunkline.messaging.scheduler import Scheduler
from trunkline.messaging.store import DeliveryState, Envelope, NewMessage, QueuedDelivery
from trunkline.redaction import redact_addresses
from trunkline.task_states import INTERRUPTED, TERMINAL
from trunkline.tasks.lifecycle import State
from trunkline.v1 import envelope_pb2, message_pb2, message_service_pb2, snapshot_pb2

logger = logging.getLogger(__name__)

_HANDLED: Final = envelope_pb2.DELIVERY_STATE_HANDLED
_DEAD: Final = envelope_pb2.DELIVERY_STATE_DEAD
_EXPIRED: Final = envelope_pb2.DELIVERY_STATE_EXPIRED
_CANCELED: Final = envelope_pb2.DELIVERY_STATE_CANCELED
# A call that follows a task is repeated after this time.
_CALL_S: Final = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DispatchOptions:
    """How deliveries are made."""

    attempts: int = 5
    """A message is a dead letter after so many failed attempts."""
    first_backoff_s: float = 1.0
    """The wait before the second attempt. Each further one doubles it."""
    max_backoff_s: float = 30.0
    per_recipient: int = 16
    """The deliveries that one agent handles at once."""
    total: int = 256
    """The deliveries that run at once."""


class Dispatcher:
    """Makes the deliveries of a store, for as long as its `run` runs."""

    def __init__(
        self,
        broker: MessageBroker,
        directory: Directory,
        options: DispatchOptions | None = None,
        *,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self._broker = broker
        self._store = broker.store
        self._directory = directory
        self._options = options or DispatchOptions()
        self._middleware = middleware
        self._scheduler = Scheduler(
            per_recipient=self._options.per_recipient, total=self._options.total
        )
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Make deliveries; never returns. Canceled, it leaves running tasks to the next one."""
        async with asyncio.TaskGroup() as group:
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
            self._wake.set()

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
        backoff = Backoff()
        while True:
            try:
                await self._end(delivery, _EXPIRED, problem="it expired before it was handled")
            except FencedError:
                return
            except PeerError as error:
                logger.warning("messages.store_unavailable", extra={"problem": str(error)})
                await backoff.pause()
            else:
                return

    async def _deliver(self, delivery: QueuedDelivery) -> None:
        """Make one attempt, and note how the delivery continues."""
        try:
            postponed = await self._attempt(delivery)
        except FencedError:
            # Another process has this delivery.
            postponed = None
        if postponed is None:
            self._scheduler.end(delivery)
        else:
            self._scheduler.postpone(postponed)
        self._wake.set()

    async def _attempt(self, delivery: QueuedDelivery) -> QueuedDelivery | None:
        """Make an attempt, and store how it ended; return the delivery if it is postponed."""
        telemetry.continue_trace(delivery.envelope.traceparent)
        attributes = {
            telemetry.MESSAGING_SYSTEM: telemetry.TRUNKLINE,
            telemetry.MESSAGING_OPERATION_NAME: "process",
            telemetry.MESSAGING_DESTINATION_NAME: delivery.key.recipient,
            telemetry.MESSAGING_MESSAGE_ID: delivery.key.envelope_id,
            telemetry.MESSAGING_CONVERSATION_ID: delivery.envelope.correlation_id,
        }
        name = f"process {delivery.key.recipient}"
        with telemetry.span(name, kind=SpanKind.CONSUMER, attributes=attributes) as span:
            while True:
                try:
                    return await self._attempt_once(delivery)
                except FencedError:
                    raise
                except PeerError as error:
                    # The store can't be written. Nothing else leaves `_attempt_once`.
                    telemetry.mark_error(span, error)
                    logger.warning("messages.store_unavailable", extra={"problem": str(error)})
                    await asyncio.sleep(self._options.first_backoff_s)

    async def _attempt_once(self, delivery: QueuedDelivery) -> QueuedDelivery | None:
        envelope = Envelope()
        envelope.CopyFrom(delivery.envelope)
        try:
            for middleware in self._middleware:
                await middleware.on_receive(delivery.key.account, delivery.key.recipient, envelope)
            if not delivery.task_id:
                host = self._directory.get_agent_host(delivery.key.recipient)
                delivery = await self._store.begin_attempt(delivery, allocate_task_id(host))
            outcome = await self._run_task(delivery, envelope)
        except (AgentNotFoundError, OverloadedError) as error:
            # The recipient left meanwhile, or has enough to do: that is no failed attempt.
            return await self._postpone(delivery, str(error), counts=False)
        except RequestError as error:
            await self._end(delivery, _DEAD, problem=str(redact_addresses(error)))
            return None
        if isinstance(outcome, message_pb2.Message):
            reply = Envelope(type="answer", text=" ".join(part.text for part in outcome.parts))
            await self._end(delivery, _HANDLED, replies=[reply])
            return None
        return await self._settle(delivery, envelope, outcome)

    async def _settle(
        self, delivery: QueuedDelivery, envelope: Envelope, snapshot: snapshot_pb2.TaskSnapshot
    ) -> QueuedDelivery | None:
        """Store how a task ended."""
        match snapshot.task.status.state:
            case State.TASK_STATE_COMPLETED:
                replies = read_replies(snapshot, envelope, key=delivery.key)
                await self._end(delivery, _HANDLED, replies=replies)
                return None
            case State.TASK_STATE_CANCELED:
                await self._end(delivery, _CANCELED, problem=read_problem(snapshot))
                return None
            case State.TASK_STATE_REJECTED:
                problem = read_problem(snapshot) or f"{delivery.key.recipient} rejected it"
                await self._end(delivery, _DEAD, problem=problem)
                return None
        problem = read_problem(snapshot) or f"{delivery.key.recipient} failed"
        if delivery.attempt_count >= self._options.attempts:
            await self._end(delivery, _DEAD, problem=problem)
            return None
        return await self._postpone(delivery, problem)

    async def _postpone(
        self, delivery: QueuedDelivery, problem: str, *, counts: bool = True
    ) -> QueuedDelivery:
        doublings = max(0, delivery.attempt_count - 1) if counts else 0
        backoff_s = min(self._options.max_backoff_s, self._options.first_backoff_s * 2**doublings)
        backoff = Backoff(first_s=backoff_s, limit_s=backoff_s)
        return await self._store.postpone(
            delivery, problem=problem, not_before=_now() + backoff.next_s()
        )

    async def _end(
        self,
        delivery: QueuedDelivery,
        state: DeliveryState,
        *,
        problem: str = "",
        replies: Sequence[Envelope] = (),
    ) -> None:
        """End a delivery with the replies of its recipient."""
        sender = Sender(delivery.key.account, delivery.caller, delivery.key.recipient)
        prepared: list[NewMessage] = []
        for reply in replies:
            try:
                prepared.append(await self._broker.prepare(sender, reply, cause=delivery.envelope))
            except InvalidArgumentError as error:
                # The handler committed, so it is not called again for a wrong reply.
                problem = f"a reply was dropped: {error}"
                extra = {"envelope": delivery.key.envelope_id, "problem": str(error)}
                logger.warning("messages.reply_dropped", extra=extra)
        await self._store.end(delivery, state, problem=problem, replies=prepared)
        if state == _DEAD:
            extra = {
                "envelope": delivery.key.envelope_id,
                "recipient": delivery.key.recipient,
                "problem": problem,
            }
            logger.warning("messages.dead_letter", extra=extra)

    async def _run_task(
        self, delivery: QueuedDelivery, envelope: Envelope
    ) -> snapshot_pb2.TaskSnapshot | message_pb2.Message:
        """Submit the task of a delivery, or follow it; return it once it has ended.

        A host that can't be reached is awaited: its task goes on, or another host takes it over.

        Raises:
            RequestError: the recipient refused the message.
            OverloadedError: it has enough to do.
        """
        message = build_request(envelope, key=delivery.key, attempt=delivery.attempt_count)
        submission = message_service_pb2.Submission(
            account=delivery.key.account,
            caller=delivery.caller,
            task_id=delivery.task_id,
            idempotent=True,
            envelope=envelope,
            accepted_output_modes=(),
        )
        if envelope.HasField("expire_time"):
            submission.deadline.CopyFrom(envelope.expire_time)
        backoff = Backoff()
        while True:
            try:
                client = self._directory.client_for_task(delivery.task_id)
                result = await client.send_message(
                    agent=delivery.key.recipient,
                    message=message,
                    submission=submission,
                    timeout_s=_CALL_S,
                )
            except (OverloadedError, FencedError):
                raise
            except (PeerError, TaskNotFoundError) as error:
                extra = {"envelope": delivery.key.envelope_id, "problem": str(error)}
                logger.debug("messages.recipient_unreachable", extra=extra)
                await backoff.pause()
                continue
            if isinstance(result, message_pb2.Message):
                return result
            state = result.task.status.state
            if state in TERMINAL:
                return result
            if state in INTERRUPTED:
                await self._wait_for_end(delivery)
            backoff.reset()

    async def _wait_for_end(self, delivery: QueuedDelivery) -> None:
        """Wait until a task ends that waits for a person."""
        watch = self._directory.watch(delivery.task_id, account=delivery.key.account)
        try:
            async with watch as batches:
                async for _ in batches:
                    pass
        except TrunklineError as error:
            extra = {"envelope": delivery.key.envelope_id, "problem": str(error)}
            logger.debug("messages.watch_ended", extra=extra)


def _now() -> float:
    """Return the time in seconds since the epoch, as the store has it."""
    return datetime.now(UTC).timestamp()
