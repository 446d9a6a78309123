"""Repeats what failed because the database is away."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import asyncpg

from trunkline.core.backoff import RetryWindow
from trunkline.errors import JournalUnavailableError, JournalUnusableError

_Result = TypeVar("_Result")

PATIENCE_S: Final = 30.0
"""The time for which callers wait for a database that is away. A restart, or a failover, takes
seconds."""
# The classes of errors that say that the server is going away, is not the primary any more, has no
# connection left, or that another transaction was in the way.
_PASSING: Final = ("08", "25006", "25P03", "40", "53", "55P03", "57P")
_FINAL: Final = (
    asyncpg.ClientConfigurationError,
    FileNotFoundError,
    PermissionError,
    ssl.SSLError,
)


async def retry_while_away(
    work: Callable[[], Awaitable[_Result]], *, limit_s: float = PATIENCE_S
) -> _Result:
    """Repeat work, which may run several times, while the database is away.

    Raises:
        JournalUnavailableError: it was away for `limit_s` seconds.
        JournalUnusableError: it refuses the work.
    """
    retries = RetryWindow(limit_s)
    while True:
        try:
            return await work()
        except JournalUnusableError:
            raise
        except JournalUnavailableError as error:
            await asyncio.sleep(retries.next_pause_s(error))


def build_error(name: str, error: Exception) -> JournalUnavailableError:
    """Return the error for a failure of asyncpg at the database `name`.

    It is a JournalUnusableError if no later try can succeed before the settings, the rights or the
    statement change.
    """
    problem = str(error) or type(error).__name__
    if isinstance(error, asyncpg.PostgresError):
        is_final = not (error.sqlstate or "").startswith(_PASSING)
    else:
        is_final = isinstance(error, _FINAL)
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        problem = "none of its hosts accepts writes; name the primary, or all that may become it"
    elif isinstance(error, ConnectionError) and "rejected SSL upgrade" in problem:
        # asyncpg has no class for this.
        is_final = True
        problem += "; let it use TLS (`ssl = on`), or connect with another `sslmode`"
    return (JournalUnusableError if is_final else JournalUnavailableError)(name, problem)
