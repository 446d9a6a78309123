"""The connection to Redis or Valkey: its opening, its errors, and its durability."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from trunkline.errors import ConfigurationError, PeerUnavailableError

if TYPE_CHECKING:
    from redis.asyncio import Redis

logger = logging.getLogger(__name__)

PEER: Final = "Redis (messaging.url)"
"""The name of the server in errors. Its address may contain a password."""
BLOCK_MS: Final = 3_000
"""The longest wait of a read for new entries."""
_CONNECT_S: Final = 2.0
ANSWER_S: Final = 2.0 + BLOCK_MS / 1000
"""The longest wait for an answer. It exceeds the wait of a read for new entries."""
REPLICATION_MS: Final = 1_000
"""The longest wait for replicas. Connected replicas have a write within milliseconds."""
_CONNECTIONS: Final = 32
# Scripts rely on server 7.0.
_LEAST_VERSION: Final = 7


def connect(url: str) -> "Redis":
    """Return a client, which connects at its first use. Close it with `aclose`.

    Raises:
        ConfigurationError: the address is wrong, or the extra `redis` is not installed.
    """
    try:
        from redis.asyncio import BlockingConnectionPool, Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        problem = "needs the package redis; install `trunkline[redis]`"
        raise ConfigurationError("messaging.url", problem) from None
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=ANSWER_S,
            socket_connect_timeout=_CONNECT_S,
            # `translate_errors` limits the time. The library would use asyncio.wait_for, which may
            # swallow a cancellation in Python 3.11.
            socket_timeout=None,
            socket_keepalive=True,
            # The store repeats calls that may be repeated.
            retry=Retry(NoBackoff(), retries=0),
        )
    except (ValueError, TypeError):
        # The text of the error may have the password.
        problem = "is not an address of Redis; write redis://, rediss:// or unix://"
        raise ConfigurationError("messaging.url", problem) from None
    return Redis.from_pool(pool)


@asynccontextmanager
async def translate_errors() -> AsyncIterator[None]:
    """Limit the time of calls, and raise PeerUnavailableError for errors of the server."""
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import RedisError
    from redis.exceptions import TimeoutError as RedisTimeoutError

    try:
        async with asyncio.timeout(ANSWER_S):
            yield
    except (TimeoutError, RedisTimeoutError):
        raise PeerUnavailableError(PEER, "it did not answer in time") from None
    except (RedisConnectionError, OSError) as error:
        problem = f"the connection failed or was lost ({error.__class__.__name__})"
        raise PeerUnavailableError(PEER, problem) from None
    except RedisError as error:
        # Out of memory, disk full, read-only replica and the like. The text has no secrets.
        raise PeerUnavailableError(PEER, str(error)) from None


async def check_server(client: "Redis") -> None:
    """Check that the server answers and is new enough; warn if it may lose messages.

    Raises:
        PeerUnavailableError: it does not answer.
        ConfigurationError: it is too old.
    """
    async with translate_errors():
        info: dict[str, Any] = await client.info("server")
    version = str(info.get("redis_version", ""))
    if version.partition(".")[0].isdecimal() and int(version.partition(".")[0]) < _LEAST_VERSION:
        problem = f"is a server of version {version}; {_LEAST_VERSION}.0 or later is needed"
        raise ConfigurationError("messaging.url", problem)
    for problem in await _find_risks(client):
        logger.warning("messages.not_durable", extra={"problem": problem})


async def _find_risks(client: "Redis") -> list[str]:
    """Return the settings of the server by which accepted messages may be lost."""
    from redis.exceptions import ResponseError

    try:
        async with translate_errors():
            config: dict[str | None, str | None] = {}
            for name in ("appendonly", "appendfsync", "maxmemory-policy"):
                with contextlib.suppress(ResponseError):
                    config |= await client.config_get(name)
    except PeerUnavailableError:
        # Services that are hosted often refuse to tell.
        return ["the server does not tell its configuration; make sure that appendonly is on"]
    risks: list[str] = []
    if config.get("appendonly") == "no":
        risks.append("appendonly is off: a restart loses messages since the last snapshot")
    elif config.get("appendfsync") == "no":
        risks.append("appendfsync is `no`: a crash of the machine loses up to 30 s of messages")
    policy = config.get("maxmemory-policy")
    if policy not in (None, "noeviction"):
        risks.append(f"maxmemory-policy is {policy}: a full server deletes messages")
    return risks
