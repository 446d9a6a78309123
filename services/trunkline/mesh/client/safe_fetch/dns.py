"""Resolves host names in daemon threads, since the system's lookup can't be cancelled."""

import asyncio
import socket
import threading
from collections.abc import Sequence
from typing import Final

# A longer lookup fails.
TIMEOUT_S: Final = 5.0
# Concurrent lookups, including those whose caller has timed out.
_MAX_LOOKUPS: Final = 16

_slots = threading.BoundedSemaphore(_MAX_LOOKUPS)


async def resolve(host: str, *, timeout_s: float = TIMEOUT_S) -> Sequence[str]:
    """Return all addresses of a host, each once.

    Raises:
        OSError: the name has no address, the lookup times out, or too many lookups are running.
    """
    if not _slots.acquire(blocking=False):
        raise OSError("too many names are being looked up")
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[str]] = loop.create_future()

    def run() -> None:
        try:
            addresses, problem = _look_up(host), None
        except (OSError, UnicodeError) as error:
            addresses, problem = (), error
        finally:
            _slots.release()
        try:
            loop.call_soon_threadsafe(_set_answer, answer, addresses, problem)
        except RuntimeError:
            # The loop has been closed.
            return

    # Not in a thread pool: a process that exits would wait for the pool's threads.
    threading.Thread(target=run, name="web-names", daemon=True).start()
    try:
        async with asyncio.timeout(timeout_s):
            return await answer
    except TimeoutError:
        raise OSError("looking the name up takes too long") from None


def _set_answer(
    answer: asyncio.Future[Sequence[str]], addresses: Sequence[str], problem: Exception | None
) -> None:
    if answer.done():
        return
    if problem is None:
        answer.set_result(addresses)
    else:
        answer.set_exception(OSError(str(problem)))


def _look_up(host: str) -> Sequence[str]:
    entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in entries))
