"""Repeats what failed because the database is away."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import asyncpg

from trunkline.core.backoff import RetryWindow
from trunkline.errors import JournalUnavailableError

_Result = TypeVar("_Result")

PATIENCE_S: Final = 30.0
"""The time for which callers wait for a database that is away. A restart, or a failover, takes
seconds."""
# The classes of errors that say that the server is going away, is not the primary any more, has no
# connection left, or that another transaction was in the way.
_PASSING: Final = ("08", "25006", "25P03", "40", "53", "55P03", "57P")


class FinalError(Exception):
    """The cause of a JournalUnavailableError that no wait ends."""


async def retry_while_away(work: Callable[[], Awaitable[_Result]]) -> _Result:
    """Repeat work, which may run several times, while the database is away.

    Raises:
        JournalUnavailableError: it was away for `PATIENCE_S` seconds, or refuses the work.
    """
    retries = RetryWindow(PATIENCE_S)
    while True:
        try:
            return await work()
        except JournalUnavailableError as error:
            if not is_passing(error):
                raise
            await asyncio.sleep(retries.next_pause_s(error))


def is_passing(error: JournalUnavailableError) -> bool:
    """Return whether a later try may succeed without a change of the settings or the statement."""
    cause = error.__cause__
    if isinstance(cause, asyncpg.PostgresError):
        return (cause.sqlstate or "").startswith(_PASSING)
    final = (
        FinalError,
        asyncpg.ClientConfigurationError,
        FileNotFoundError,
        PermissionError,
        ssl.SSLError,
    )
    # Without a cause, the write does not wait for the synchronous standby, and is repeated.
    return not isinstance(cause, final) and not refuses_tls(cause)


def refuses_tls(error: BaseException | None) -> bool:
    """Return whether a server without TLS is the cause. asyncpg has no class for this error."""
    return isinstance(error, ConnectionError) and "rejected SSL upgrade" in str(error)
