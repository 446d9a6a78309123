"""A client that reconnects after the last event that it has seen, until the task has ended."""

import asyncio
from collections.abc import Awaitable, Callable

from harness.a2a.sse_client import ClientFold, RefusedError, WireEvent, sse, user_message

# Counted from the last event. Longer than any restart and takeover takes.
GIVE_UP_S = 60.0


async def stream_with_reconnects(
    url: str,
    path: str,
    text: str,
    *,
    on_event: Callable[[ClientFold, WireEvent], Awaitable[None]] | None = None,
) -> ClientFold:
    """Send a message and follow the task to its end, reconnecting after every failure."""
    fold = ClientFold()
    loop = asyncio.get_running_loop()
    patient_until = loop.time() + GIVE_UP_S
    while not fold.has_ended:
        seen = fold.last_event_id
        try:
            async with sse(url, path, *_request(fold, text)) as answer:
                async for event in answer.events():
                    if "error" in event.response:
                        break
                    fold.apply(event)
                    if on_event is not None:
                        await on_event(fold, event)
        except (OSError, asyncio.IncompleteReadError):
            pass
        except RefusedError as refused:
            # The bridge serves already, but the agent's host does not yet.
            if refused.status < 500:
                raise
        if fold.last_event_id != seen:
            patient_until = loop.time() + GIVE_UP_S
        assert loop.time() < patient_until, f"nothing came for {GIVE_UP_S} s: {fold}"
        await asyncio.sleep(0.02)
    return fold


def _request(fold: ClientFold, text: str) -> tuple[str, dict[str, object], dict[str, str]]:
    if fold.task_id:
        return "SubscribeToTask", {"id": fold.task_id}, {"Last-Event-ID": fold.last_event_id}
    return "SendStreamingMessage", {"message": user_message(text)}, {}
