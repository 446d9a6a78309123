"""Asks for the addresses of names, on threads of its own: the system's call can't be ended."""

import asyncio
import socket
import threading
from collections.abc import Sequence
from typing import Final

# A name that takes longer is as good as none.
TIMEOUT_S: Final = 5.0
# Questions at a time, those included that nobody waits for any more.
_AT_ONCE: Final = 16

_free = threading.BoundedSemaphore(_AT_ONCE)


async def resolve(host: str, *, timeout_s: float = TIMEOUT_S) -> Sequence[str]:
    """Return all addresses of a host, each once.

    Raises:
        OSError: it has none, the answer takes too long, or too many are asked for already.
    """
    if not _free.acquire(blocking=False):
        raise OSError("too many names are being looked up")
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[str]] = loop.create_future()

    def ask() -> None:
        try:
            found, problem = _look_up(host), None
        except (OSError, UnicodeError) as error:
            found, problem = (), error
        finally:
            _free.release()
        try:
            loop.call_soon_threadsafe(_tell, answer, found, problem)
        except RuntimeError:
            # The loop has ended meanwhile.
            return

    # Not one of a pool's: a process that ends would wait for those.
    threading.Thread(target=ask, name="web-names", daemon=True).start()
    try:
        async with asyncio.timeout(timeout_s):
            return await answer
    except TimeoutError:
        raise OSError("looking the name up takes too long") from None


def _tell(
    answer: asyncio.Future[Sequence[str]], found: Sequence[str], problem: Exception | None
) -> None:
    if answer.done():
        return
    if problem is None:
        answer.set_result(found)
    else:
        answer.set_exception(OSError(str(problem)))


def _look_up(host: str) -> Sequence[str]:
    entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in entries))
