"""Posts to webhooks: to checked addresses alone, within bounds, and never further than that."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, NamedTuple, Self

import httpcore2

from trunkline.v1 import push_notification_pb2
from trunkline_bridge.webhooks.addresses import AddressGuard, AddressRefusedError
from trunkline_bridge.webhooks.signatures import Signer

# Posts at a time, of this process and to one host.
AT_ONCE: Final = 32
AT_ONCE_A_HOST: Final = 4
# Of posts to one host under way and waiting: whoever is behind that comes again later.
WAITING_A_HOST: Final = 32

_CONNECT_S: Final = 5.0
_KEPT_S: Final = 5.0
# What is read of an answer. Nobody looks at it, but a connection can be used again behind it.
_ANSWER_BYTES: Final = 64 * 1024
_GONE: Final = 410


class Post(NamedTuple):
    """One notification."""

    id: str
    """The event's id within its task."""
    body: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a post."""

    problem: str = ""
    """Empty: it was taken. Else why not, for operators; without content and secrets."""
    is_gone: bool = False
    """The receiver says that it will never take one again."""


class Poster:
    """Posts notifications. Only 2xx is success, and no redirect is followed.

    What it connects to are the addresses that the guard has just checked. A connection that is
    kept open for the next post was checked when it was made.
    """

    def __init__(
        self,
        guard: AddressGuard,
        signer: Signer | None,
        *,
        limit_s: float = 15.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._guard = guard
        self._signer = signer
        self._limit_s = limit_s
        # No proxy, and nothing else from the environment: the pool asks for none.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context or ssl.create_default_context(),
            max_connections=AT_ONCE,
            max_keepalive_connections=AT_ONCE,
            keepalive_expiry=_KEPT_S,
            network_backend=_GuardedNetwork(guard),
        )
        self._places = _Places()

    async def __aenter__(self) -> Self:
        await self._pool.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self._pool.__aexit__(exc_type, exc_val, exc_tb)

    async def post(
        self, config: push_notification_pb2.TaskPushNotificationConfig, post: Post, version: str
    ) -> Outcome:
        """Post a notification once, and say what became of it."""
        try:
            endpoint = self._guard.endpoint(config.url)
            url = httpcore2.URL(
                scheme=endpoint.scheme.encode("ascii"),
                host=endpoint.host.encode("ascii"),
                port=endpoint.port,
                target=endpoint.target.encode("ascii"),
            )
            async with self._places.one(endpoint.host):
                headers = {
                    "host": endpoint.authority,
                    "a2a-version": version,
                    **self._headers(config, post),
                }
                async with asyncio.timeout(self._limit_s):
                    status = await self._exchange(url, headers, post.body)
        except AddressRefusedError as error:
            return Outcome(f"the URL {error}")
        except TimeoutError:
            return Outcome(f"no answer within {self._limit_s:g} s")
        except _TooManyError:
            return Outcome("too many posts wait for this host already")
        except _FAILURES as error:
            return Outcome(_problem(error))
        return _judge(status)

    async def _exchange(self, url: httpcore2.URL, headers: Mapping[str, str], body: bytes) -> int:
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        extensions = {"timeout": {"connect": _CONNECT_S}}
        async with self._pool.stream(
            "POST", url, headers=fields, content=body, extensions=extensions
        ) as response:
            size_bytes = 0
            async for chunk in response.aiter_stream():
                size_bytes += len(chunk)
                if size_bytes > _ANSWER_BYTES:
                    break
            status: int = response.status
            return status

    def _headers(
        self, config: push_notification_pb2.TaskPushNotificationConfig, post: Post
    ) -> dict[str, str]:
        message_id = f"{config.task_id}.{post.id}"
        timestamp_s = int(datetime.now(UTC).timestamp())
        headers = {
            "content-type": post.content_type,
            "content-length": str(len(post.body)),
            "user-agent": "Trunkline",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp_s),
        }
        if self._signer is not None:
            headers |= self._signer.headers(message_id, timestamp_s, post.body)
        if config.token:
            headers["x-a2a-notification-token"] = config.token
        given = config.authentication
        if given.scheme and given.credentials:
            headers["authorization"] = f"{given.scheme} {given.credentials}"
        return headers


class _GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to a host by the addresses that were checked for this connection."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._plain = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  the base class has it
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        problem: Exception = httpcore2.ConnectError()
        for address in await self._guard.addresses(host, port):
            try:
                return await self._plain.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
        raise problem


class _TooManyError(Exception):
    """So many posts wait for one host that another one would wait too long."""


class _Places:
    """Bounds posts under way: a host that is slow has only its own posts wait."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(AT_ONCE)
        self._of_host: dict[str, asyncio.Semaphore] = {}
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def one(self, host: str) -> AsyncIterator[None]:
        """Wait for a place for a post to a host. _TooManyError: there won't be one soon."""
        if self._waiting[host] >= WAITING_A_HOST:
            raise _TooManyError
        self._waiting[host] += 1
        async with AsyncExitStack() as stack:
            stack.callback(self._leave, host)
            places = self._of_host.setdefault(host, asyncio.Semaphore(AT_ONCE_A_HOST))
            await stack.enter_async_context(places)
            await stack.enter_async_context(self._all)
            yield

    def _leave(self, host: str) -> None:
        self._waiting[host] -= 1
        if not self._waiting[host]:
            del self._waiting[host], self._of_host[host]


_FAILURES = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    OSError,
    ssl.SSLError,
)


def _problem(error: BaseException) -> str:
    """Why there was no answer, in words that name no address."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not accepted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return "TLS with it failed"
        cause = cause.__cause__
    if isinstance(error, httpcore2.TimeoutException | httpcore2.ConnectError):
        return "it can't be connected to"
    if isinstance(error, httpcore2.ProtocolError):
        return "it closed the connection, or its answer is not HTTP"
    return "the connection broke"


def _judge(status: int) -> Outcome:
    if 200 <= status < 300:
        return Outcome()
    if 300 <= status < 400:
        return Outcome(f"it answered {status}; redirects are not followed")
    return Outcome(f"it answered {status}", is_gone=status == _GONE)
