"""The errors of the database: which of them pass."""

import ssl
from typing import Final

import asyncpg

from trunkline.errors import JournalUnavailableError, JournalUnusableError

# The classes of errors that say that the server is going away, is not the primary any more, has no
# connection left, that another transaction was in the way, or that a statement took too long.
_PASSING: Final = ("08", "25006", "25P03", "25P04", "40", "53", "55006", "55P03", "57", "58")
_FINAL: Final = (
    asyncpg.UnsupportedClientFeatureError,
    FileNotFoundError,
    PermissionError,
    ssl.SSLError,
    # The settings, or values of a statement, are wrong.
    ValueError,
)


def build_error(name: str, error: Exception) -> JournalUnavailableError:
    """Return the error for a failure of asyncpg at the database `name`.

    It is a JournalUnusableError if no later try can succeed before the settings, the rights or the
    statement change.
    """
    problem = str(error) or type(error).__name__
    if isinstance(error, asyncpg.PostgresError):
        is_final = not (error.sqlstate or "").startswith(_PASSING)
    else:
        # The peer may have ended during the handshake.
        is_final = isinstance(error, _FINAL) and not isinstance(error, ssl.SSLEOFError)
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        problem = "none of its hosts accepts writes; name the primary, or all that may become it"
    elif isinstance(error, ConnectionError) and "rejected SSL upgrade" in problem:
        # asyncpg has no class for this.
        is_final = True
        problem += "; let it use TLS (`ssl = on`), or connect with another `sslmode`"
    return (JournalUnusableError if is_final else JournalUnavailableError)(name, problem)
