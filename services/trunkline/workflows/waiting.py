"""Waits for a message between agents, in the conversation of a run."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from typing import Any, Final

from pydantic import BaseModel

from trunkline.agents.calls.turn_calls import get_turn_calls
from trunkline.core.backoff import Backoff
from trunkline.errors import PeerError, UnsupportedOperationError
from trunkline.tasks.context import TaskContext
from trunkline.tasks.messages import MeshMessage

_FIRST_RETRY_S: Final = 0.2
_LAST_RETRY_S: Final = 5.0


async def wait_for_message(
    task: TaskContext[Any],
    message_type: str,
    fits: Callable[[Mapping[str, Any]], bool],
    *,
    exclude: Collection[str],
) -> dict[str, Any]:
    """Return the first message of a type, since the task began, that fits and isn't excluded.

    It is one of the task's conversation, from anybody but the agent itself. Messages that were
    accepted before the call count, so that nothing is missed over a restart.

    Raises:
        UnsupportedOperationError: the task does not run on a mesh.
    """
    calls = get_turn_calls(task)
    if calls is None:
        raise UnsupportedOperationError("a wait", "this task does not run on a mesh")
    backoff = Backoff(first_s=_FIRST_RETRY_S, limit_s=_LAST_RETRY_S)
    while True:
        try:
            async with aclosing(calls.watch_messages(message_type)) as messages:
                async for message in messages:
                    if message.sender == task.agent or message.id in exclude:
                        continue
                    values = _to_json(message)
                    if fits(values):
                        return values
        except PeerError:
            # The messaging service restarts, or its host is away.
            pass
        await asyncio.sleep(backoff.next_s())


def _to_json(message: MeshMessage) -> dict[str, Any]:
    """Return what expressions read of a message."""
    payload = message.payload
    if isinstance(payload, BaseModel):
        data: Any = payload.model_dump(mode="json")
        text = next(
            (data[name] for name in ("text", "content") if isinstance(data.get(name), str)),
            payload.model_dump_json(),
        )
    else:
        data, text = None, payload
    return {
        "id": message.id,
        "correlation_id": message.correlation_id,
        "causation_id": message.causation_id,
        "type": message.type,
        "sender": message.sender,
        "recipient": message.recipient,
        "room": message.room,
        "text": text,
        "data": data,
        "metadata": dict(message.metadata),
    }
