"""Makes the deliveries of one moment to one agent and account in one call."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from trunkline.errors import PeerUnavailableError, TrunklineError
from trunkline.mesh.client import Directory
from trunkline.mesh.client.host import DeliveryOutcome, HostClient
from trunkline.mesh.client.methods import canceling
from trunkline.mesh.client.status import from_trunk_end
from trunkline.observe import telemetry
from trunkline.v1 import message_service_pb2

# The limits of one call. A larger request is not sent over the trunk.
_CALL_LIMIT: Final = 100
_CALL_BYTES: Final = 128 * 1024

MessageDelivery: TypeAlias = message_service_pb2.MessageDelivery


class _Target(NamedTuple):
    """The host, the agent and the user of the deliveries of one call."""

    client: HostClient
    agent: str
    account: str
    caller: str


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A delivery whose outcome is awaited."""

    delivery: MessageDelivery
    outcome: asyncio.Future[DeliveryOutcome]


class DeliveryCalls:
    """The calls that deliver messages to the hosts of their recipients."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._waiting: defaultdict[_Target, list[_Waiting]] = defaultdict(list)
        self._has_waiting = asyncio.Event()

    async def run(self) -> None:
        """Make the calls of `deliver` until canceled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._has_waiting.wait()
                self._has_waiting.clear()
                waiting, self._waiting = self._waiting, defaultdict(list)
                for target, deliveries in waiting.items():
                    for part in _split(deliveries):
                        group.create_task(self._call(target, part))

    async def deliver(
        self, delivery: MessageDelivery, *, agent: str, account: str, caller: str
    ) -> DeliveryOutcome:
        """Make a delivery, in one call with the other deliveries of this iteration of the loop.

        Returns once the turn of the delivery's task is over. Cancellation does not end the task.

        Raises:
            TrunklineError: the delivery could not be made, or its task could not be followed.
        """
        client = self._directory.client_for_task(delivery.task_id)
        waiting = _Waiting(delivery, asyncio.get_running_loop().create_future())
        self._has_waiting.set()
        self._waiting[_Target(client, agent, account, caller)].append(waiting)
        outcome = await waiting.outcome
        if outcome.HasField("error"):
            raise from_trunk_end(outcome.error, peer=client.peer)
        return outcome

    async def _call(self, target: _Target, deliveries: list[_Waiting]) -> None:
        request = message_service_pb2.DeliverMessagesRequest(
            agent=target.agent,
            account=target.account,
            caller=target.caller,
            deliveries=[each.delivery for each in deliveries],
        )
        futures = {each.delivery.task_id: each.outcome for each in deliveries}
        error: TrunklineError = PeerUnavailableError(target.client.peer, "it ended the call")
        try:
            # The call serves many traces, and is part of none.
            with (
                telemetry.suppress_spans(),
                canceling(target.client.messages.DeliverMessages(request)) as responses,
            ):
                async for response in responses:
                    for outcome in response.outcomes:
                        _resolve(futures.pop(outcome.task_id, None), outcome)
        except TrunklineError as raised:
            error = raised
        finally:
            for future in futures.values():
                if not future.done():
                    future.set_exception(error)


def _resolve(future: asyncio.Future[DeliveryOutcome] | None, outcome: DeliveryOutcome) -> None:
    if future is not None and not future.done():
        future.set_result(outcome)


def _split(deliveries: list[_Waiting]) -> Iterator[list[_Waiting]]:
    """Yield the deliveries in parts of one call each."""
    part: list[_Waiting] = []
    size_bytes = 0
    for each in deliveries:
        added_bytes = each.delivery.ByteSize()
        if part and (len(part) == _CALL_LIMIT or size_bytes + added_bytes > _CALL_BYTES):
            yield part
            part, size_bytes = [], 0
        part.append(each)
        size_bytes += added_bytes
    if part:
        yield part
