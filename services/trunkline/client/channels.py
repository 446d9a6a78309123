"""gRPC channels to the other processes of the mesh: shared, one for each address, and traced."""

import asyncio
import contextvars
import json
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar, cast

import grpc

from trunkline.client.breaker import DEFAULT_SETTINGS, Breaker, Breakers, BreakerSettings
from trunkline.client.tracing import MethodTracer, TracedMethod
from trunkline.client.trunk import Trunk
from trunkline.network import is_this_machine
from trunkline.settings import Settings

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_Serializer: TypeAlias = Callable[[_Request], bytes] | None
_Deserializer: TypeAlias = Callable[[bytes], _Response] | None

# Snapshots grow with a task's artifacts and history, so the limit is above the servers'.
RECEIVE_BYTES = 64 * 1024 * 1024

# Shorter than a lease: a frozen host is detected before its tasks are taken over.
PING_S = 3.0
# Time for open plain calls to end after their channel is retired, in seconds.
_RETIRE_GRACE_S = 60.0
_FAILED_TO_CONNECT = grpc.ChannelConnectivity.TRANSIENT_FAILURE

# Idempotent methods, which gRPC may retry.
_IDEMPOTENT = {
    "trunkline.v1.TaskService": ("GetTask", "ListTasks"),
    "trunkline.v1.RegistryService": ("Register", "KeepAlive", "Deregister", "ListAgents"),
    "trunkline.v1.ToolService": ("ListTools",),
    "trunkline.v1.TraceService": ("GetTrace", "ListTraces"),
}
# gRPC adds jitter.
_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [
                {"service": service, "method": method}
                for service, methods in _IDEMPOTENT.items()
                for method in methods
            ],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}
_OPTIONS: tuple[tuple[str, str | int], ...] = (
    ("grpc.max_receive_message_length", RECEIVE_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    # A frozen process keeps its connections open. Only unanswered pings detect it.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # By default grpc waits up to two minutes before it reconnects to a restarted peer.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A new channel connects at once. With the global pool it would share the failed connection of
    # its predecessor, and its backoff.
    ("grpc.use_local_subchannel_pool", 1),
)


class MeshChannel(grpc.aio.Channel):
    """A channel with a known address, whose calls are CLIENT spans."""

    def __init__(
        self,
        address: str,
        *,
        target: str,
        breaker: Breaker | None = None,
        is_in_process: bool = False,
    ) -> None:
        """`target` is where to connect; `is_in_process` means that this process serves it."""
        self.address = address
        self._is_in_process = is_in_process
        self.breaker: Breaker = breaker or Breaker(address)
        """The peer's breaker. Callers check it and report their calls to it."""
        self._is_closed = False
        self.trunk: Trunk | None = None
        """Carries the calls to a host's agents and tasks, if the channel has one."""
        # Traffic to this machine must not go through a proxy of the environment.
        proxy = (("grpc.enable_http_proxy", 0),) if is_this_machine(target) else ()
        self._inner = grpc.aio.insecure_channel(target, options=(*_OPTIONS, *proxy))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Close the channel; open calls end after `grace` seconds, or at once."""
        self._is_closed = True
        await self._inner.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: FBT001, FBT002
        """Return the state of the connection."""
        return self._inner.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the state differs from `last_observed_state`."""
        await self._inner.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Wait until the peer is connected."""
        await self._inner.channel_ready()

    def unary_unary(
        self,
        method: str,
        request_serializer: _Serializer[_Request] = None,
        response_deserializer: _Deserializer[_Response] = None,
        **options: bool,
    ) -> grpc.aio.UnaryUnaryMultiCallable[_Request, _Response]:
        """Return the traced method."""
        call = self._inner.unary_unary(
            method, request_serializer, response_deserializer, **self._filter_options(options)
        )
        return cast(
            "grpc.aio.UnaryUnaryMultiCallable[_Request, _Response]",
            self._trace_method(call, method, is_stream=False),
        )

    def unary_stream(
        self,
        method: str,
        request_serializer: _Serializer[_Request] = None,
        response_deserializer: _Deserializer[_Response] = None,
        **options: bool,
    ) -> grpc.aio.UnaryStreamMultiCallable[_Request, _Response]:
        """Return the traced method."""
        call = self._inner.unary_stream(
            method, request_serializer, response_deserializer, **self._filter_options(options)
        )
        return cast(
            "grpc.aio.UnaryStreamMultiCallable[_Request, _Response]",
            self._trace_method(call, method, is_stream=True),
        )

    def stream_unary(
        self,
        method: str,
        request_serializer: _Serializer[_Request] = None,
        response_deserializer: _Deserializer[_Response] = None,
        **options: bool,
    ) -> grpc.aio.StreamUnaryMultiCallable[_Request, _Response]:
        """Return the traced method."""
        call = self._inner.stream_unary(
            method, request_serializer, response_deserializer, **self._filter_options(options)
        )
        return cast(
            "grpc.aio.StreamUnaryMultiCallable[_Request, _Response]",
            self._trace_method(call, method, is_stream=False),
        )

    def stream_stream(
        self,
        method: str,
        request_serializer: _Serializer[_Request] = None,
        response_deserializer: _Deserializer[_Response] = None,
        **options: bool,
    ) -> grpc.aio.StreamStreamMultiCallable[_Request, _Response]:
        """Return the traced method."""
        call = self._inner.stream_stream(
            method, request_serializer, response_deserializer, **self._filter_options(options)
        )
        return cast(
            "grpc.aio.StreamStreamMultiCallable[_Request, _Response]",
            self._trace_method(call, method, is_stream=True),
        )

    def _filter_options(self, options: dict[str, bool]) -> dict[str, bool]:
        # Stubs register their methods, which on a closed channel would use freed memory of grpc.
        return {} if self._is_closed else options

    def _trace_method(
        self, call: Callable[..., Any], method: str, *, is_stream: bool
    ) -> TracedMethod:
        tracer = MethodTracer(
            method.removeprefix("/"), self.address, is_in_process=self._is_in_process
        )
        return TracedMethod(call, tracer, is_stream=is_stream)


class ChannelPool:
    """The channels of a process, one for each address. Leaving the block closes them all.

    `aliases` maps addresses of this process to its Unix socket. `breaker_settings` apply to
    the breakers of all peers. A peer that was pinged and sends nothing for `ping_s` seconds has
    failed. Channels have trunks only inside the block.
    """

    def __init__(
        self,
        *,
        aliases: Mapping[str, str] | None = None,
        breaker_settings: BreakerSettings = DEFAULT_SETTINGS,
        ping_s: float = PING_S,
    ) -> None:
        self.breakers: Breakers = Breakers(breaker_settings)
        self._aliases = dict(aliases or {})
        self._ping_s = ping_s
        self._channels: dict[str, MeshChannel] = {}
        self._retired: dict[MeshChannel, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Make a pool with the breaker and ping settings of a process."""
        return cls(
            breaker_settings=BreakerSettings.from_settings(settings), ping_s=settings.ping_limit_s
        )

    async def __aenter__(self) -> Self:
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        group, self._group = self._group, None
        channels = (*self._channels.values(), *self._retired)
        self._channels = {}
        for task in self._retired.values():
            task.cancel()
        for channel in channels:
            if channel.trunk is not None:
                channel.trunk.close()
        if group is not None:
            await group.__aexit__(None, None, None)
        for channel in channels:
            await channel.close()

    def add_alias(self, address: str, target: str) -> None:
        """Connect new channels for `address`, which this process serves, to `target` instead."""
        self._aliases[address] = target

    def get(self, address: str) -> MeshChannel:
        """Return the channel to `address`. It connects with its first call."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._make_channel(address, None)
        return channel

    def retire(self, address: str) -> None:
        """Close the channel to an address that is no longer used, after its open calls."""
        channel = self._channels.pop(address, None)
        self.breakers.forget(address)
        if channel is not None:
            self._retire(channel)

    def replace_failed(self, addresses: Iterable[str]) -> set[str]:
        """Replace the channels to these peers that failed to connect; return their addresses.

        Such a channel waits before its next try and fails all calls until then. Trunks continue on
        the new channels.
        """
        failed = {
            address: self._channels.pop(address)
            for address in addresses
            if address in self._channels
            and self._channels[address].get_state() is _FAILED_TO_CONNECT
        }
        for address, channel in failed.items():
            trunk, channel.trunk = channel.trunk, None
            self._channels[address] = self._make_channel(address, trunk)
            self._retire(channel)
        return set(failed)

    def _make_channel(self, address: str, trunk: Trunk | None) -> MeshChannel:
        """Return a new channel, which carries `trunk` from now on, or a new one."""
        is_in_process = address in self._aliases
        channel = MeshChannel(
            address,
            target=self._aliases.get(address, address),
            breaker=self.breakers.get(address),
            is_in_process=is_in_process,
        )
        if trunk is not None:
            trunk.use(channel)
        elif self._group is not None:
            trunk = Trunk(
                channel,
                peer=address,
                group=self._group,
                breaker=channel.breaker,
                ping_s=self._ping_s,
                is_in_process=is_in_process,
            )
        channel.trunk = trunk
        return channel

    def _retire(self, channel: MeshChannel) -> None:
        if self._group is not None:
            self._retired[channel] = self._group.create_task(
                self._close_idle(channel), context=contextvars.Context()
            )

    async def _close_idle(self, channel: MeshChannel) -> None:
        if channel.trunk is not None:
            await channel.trunk.wait_idle()
            channel.trunk.close()
        await channel.close(_RETIRE_GRACE_S)
        del self._retired[channel]


def peer_address(channel: grpc.aio.Channel) -> str:
    """Return the address of a channel, for error texts."""
    return channel.address if isinstance(channel, MeshChannel) else "the peer"


def channel_breaker(channel: grpc.aio.Channel) -> Breaker:
    """Return the breaker of a channel's peer."""
    return channel.breaker if isinstance(channel, MeshChannel) else Breaker(peer_address(channel))
