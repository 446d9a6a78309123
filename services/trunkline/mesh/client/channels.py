"""Channels to the other processes of the mesh: shared, one for each address."""

import asyncio
import contextvars
import json
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

import grpc

from trunkline.core.identity import MESH_NAME, MeshCredentials, StatementSigner
from trunkline.core.network import is_this_machine
from trunkline.core.settings import Settings
from trunkline.errors import UnauthenticatedError
from trunkline.mesh.client.breaker import DEFAULT_SETTINGS, Breaker, Breakers, BreakerSettings
from trunkline.mesh.client.methods import (
    IDEMPOTENT,
    BidirectionalMethod,
    StreamMethod,
    UnaryMethod,
    UploadMethod,
)
from trunkline.mesh.client.trunk import Trunk
from trunkline.mesh.client.trunk_connection import ConnectCall
from trunkline.mesh.trunk_wire.methods import CONNECT_METHOD
from trunkline.v1 import registry_service_pb2, trunk_service_pb2

# Snapshots grow with a task's artifacts and history, so the limit is above the servers'.
RECEIVE_BYTES = 64 * 1024 * 1024

# Shorter than a lease: a frozen host is detected before its tasks are taken over.
PING_S = 3.0
# Time for open plain calls to end after their channel is retired, in seconds.
_RETIRE_GRACE_S = 60.0
_FAILED_TO_CONNECT = grpc.ChannelConnectivity.TRANSIENT_FAILURE

# Former connections are closed after their last call, without a time limit.
_FORMER_GRACE_S = 10 * 365 * 24 * 3600.0

# gRPC adds jitter.
_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [
                {"service": service, "method": method}
                for service, methods in IDEMPOTENT.items()
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
    # It accepts new connections, too, and by default they may take 20 s to become secure.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # By default grpc waits up to two minutes before it reconnects to a restarted peer.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A new channel connects at once. With the global pool it would share the failed connection of
    # its predecessor, and its backoff.
    ("grpc.use_local_subchannel_pool", 1),
)


class MeshChannel(grpc.aio.Channel):
    """A channel with a known address, below the generated stubs.

    What the methods of its stubs raise are TrunklineErrors; see `trunkline.mesh.client.methods`.
    """

    def __init__(  # noqa: PLR0913  all but the address by name
        self,
        address: str,
        *,
        target: str,
        credentials: MeshCredentials | None = None,
        server_name: str = MESH_NAME,
        signer: StatementSigner | None = None,
        breaker: Breaker | None = None,
        is_in_process: bool = False,
    ) -> None:
        """`target` is where to connect; `is_in_process` means that this process serves it.

        `server_name` is the DNS name to expect in the server's certificate: certificates of the
        mesh name identities, not addresses.

        When the credentials change, later calls use a new connection. Open calls keep theirs.
        Without credentials it connects to Unix sockets only.

        Raises:
            UnauthenticatedError: there are no credentials for the target.
        """
        self.address = address
        self.is_in_process: bool = is_in_process
        self.breaker: Breaker = breaker or Breaker(address)
        """The peer's breaker. Callers check it and report their calls to it."""
        # Peers on a Unix socket are this user's, who need no proof.
        self.signer: StatementSigner | None = None if target.startswith("unix:") else signer
        """Signs statements of the users of calls, if this process may."""
        self.is_closed: bool = False
        self.trunk: Trunk | None = None
        """Carries the calls to a host's agents and tasks, if the channel has one."""
        # Traffic to this machine must not go through a proxy of the environment.
        proxy = (("grpc.enable_http_proxy", 0),) if is_this_machine(target) else ()
        self._target = target
        self._options = (*_OPTIONS, *proxy, ("grpc.ssl_target_name_override", server_name))
        self._credentials = credentials
        self._generation = self.read_generation()
        self._inner = self._connect()
        self._former: set[asyncio.Task[None]] = set()
        self._connect_trunk = self.stream_stream(
            f"/{CONNECT_METHOD}", trunk_service_pb2.ConnectRequest.SerializeToString
        )

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
        self.is_closed = True
        for task in self._former:
            task.cancel()
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

    # gRPC's abstract class has methods of its own types, of which stubs use the calls only.
    def unary_unary(self, method: str, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        """Return a `UnaryMethod`."""
        return UnaryMethod(self, method, *args, **options)

    def unary_stream(self, method: str, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        """Return the class of the calls of a `StreamMethod`, with the method."""
        stream_method = StreamMethod(self, method, *args, **options)
        return partial(stream_method.call_class, stream_method)

    def stream_unary(self, method: str, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        """Return an `UploadMethod`."""
        return UploadMethod(self, method, *args, **options)

    def stream_stream(self, method: str, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        """Return a `BidirectionalMethod`."""
        return BidirectionalMethod(self, method, *args, **options)

    def connect_trunk(self) -> ConnectCall:
        """Start the call that is a trunk."""
        call: ConnectCall = self._connect_trunk()
        return call

    def read_generation(self) -> int:
        """Return the number of the current credentials."""
        return 0 if self._credentials is None else self._credentials.generation

    def current(self) -> grpc.aio.Channel:
        """Return the gRPC channel for new calls, which has the current credentials."""
        credentials = self._credentials
        if credentials is None or self.is_closed:
            return self._inner
        generation = credentials.generation
        if generation != self._generation:
            self._generation = generation
            self.reconnect()
        return self._inner

    def reconnect(self) -> None:
        """Use a new connection for later calls; open calls keep theirs."""
        former, self._inner = self._inner, self._connect()
        closing = asyncio.get_running_loop().create_task(
            former.close(_FORMER_GRACE_S), context=contextvars.Context()
        )
        self._former.add(closing)
        closing.add_done_callback(self._former.discard)

    def _connect(self) -> grpc.aio.Channel:
        if self._target.startswith("unix:"):
            # Only this user can reach the socket.
            local = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
            return grpc.aio.secure_channel(self._target, local, options=self._options)
        if self._credentials is None:
            raise UnauthenticatedError.for_mesh(self.address)
        credentials = self._credentials.channel_credentials()
        return grpc.aio.secure_channel(self._target, credentials, options=self._options)


class ChannelPool:
    """The channels of a process, one for each address. Leaving the block closes them all.

    `aliases` maps addresses of this process to its Unix socket. Without credentials, only Unix
    sockets can be reached. `breaker_settings` apply to the breakers of all peers. A peer that was
    pinged and sends nothing for `ping_s` seconds has failed. Channels have trunks only inside the
    block.
    """

    def __init__(
        self,
        credentials: MeshCredentials | None = None,
        *,
        aliases: Mapping[str, str] | None = None,
        breaker_settings: BreakerSettings = DEFAULT_SETTINGS,
        ping_s: float = PING_S,
    ) -> None:
        self.breakers: Breakers = Breakers(breaker_settings)
        self._credentials = credentials
        self._signer = None if credentials is None else StatementSigner(credentials)
        if self._signer is not None and not self._signer.may_sign:
            self._signer = None
        self._aliases = dict(aliases or {})
        self._ping_s = ping_s
        self._server_names: dict[str, str] = {}
        self._channels: dict[str, MeshChannel] = {}
        self._retired: dict[MeshChannel, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    @classmethod
    def from_settings(cls, settings: Settings, credentials: MeshCredentials | None) -> Self:
        """Make a pool with the breaker and ping settings of a process."""
        return cls(
            credentials,
            breaker_settings=BreakerSettings.from_settings(settings),
            ping_s=settings.ping_limit_s,
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
        self.breakers.clear()

    def add_alias(self, address: str, target: str) -> None:
        """Connect new channels for `address`, which this process serves, to `target` instead."""
        self._aliases[address] = target

    def get(self, address: str) -> MeshChannel:
        """Return the channel to `address`. It connects with its first call."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = MeshChannel(
                address,
                target=self._aliases.get(address, address),
                credentials=self._credentials,
                server_name=self._server_name(address),
                signer=self._signer,
                breaker=self.breakers.get(address),
                is_in_process=address in self._aliases,
            )
            if self._group is not None:
                channel.trunk = Trunk(
                    channel.connect_trunk,
                    peer=address,
                    group=self._group,
                    breaker=channel.breaker,
                    ping_s=self._ping_s,
                    generation=channel.read_generation,
                )
        return channel

    def retire(self, address: str) -> None:
        """Close the channel to an address that is no longer used, after its open calls."""
        channel = self._channels.pop(address, None)
        self.breakers.forget(address)
        if channel is not None and self._group is not None:
            self._retired[channel] = self._group.create_task(
                self._close_idle(channel), context=contextvars.Context()
            )

    def expect(
        self, hosts: Iterable[registry_service_pb2.Host], *, registry_addresses: Collection[str]
    ) -> set[str]:
        """Accept only the processes that registered these hosts as servers at their addresses.

        At all other addresses, and at the registries', only processes of the user who runs the mesh
        are accepted. Channels to processes that are no longer expected are closed after their open
        calls. Return their addresses.
        """
        if self._credentials is None:
            return set()
        former = self._server_names
        self._server_names = {
            host.address: self._credentials.server_name(host.identity)
            for host in hosts
            if host.address not in registry_addresses
        }
        changed = {
            address
            for address in former.keys() | self._server_names.keys()
            if self._server_name(address) != former.get(address, MESH_NAME)
        }
        for address in changed:
            self.retire(address)
        return changed

    def revoke(self, instances: Iterable[str]) -> None:
        """Replace the instances of identities that this process no longer accepts."""
        if self._credentials is not None:
            self._credentials.revoke(instances)

    def _server_name(self, address: str) -> str:
        return self._server_names.get(address, MESH_NAME)

    def reconnect_failed(self, addresses: Iterable[str]) -> None:
        """Let the next call to each of these peers connect at once, because they were seen alive.

        A channel that failed to connect waits before its next try and fails all calls until then.
        """
        for address in addresses:
            channel = self._channels.get(address)
            if channel is not None and channel.get_state() is _FAILED_TO_CONNECT:
                channel.reconnect()

    async def _close_idle(self, channel: MeshChannel) -> None:
        if channel.trunk is not None:
            await channel.trunk.wait_idle()
            channel.trunk.close()
        await channel.close(_RETIRE_GRACE_S)
        del self._retired[channel]
