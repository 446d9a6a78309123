"""The bridge: A2A over HTTP."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from trunkline.client import Channels, Directory, running
from trunkline.runtime import Serving
from trunkline.settings import Settings, check_exposure
from trunkline.traces import configure
from trunkline_bridge import Bridge, BridgeSettings
from trunkline_bridge.serving import serve_http

_GRACE_S = 2


@asynccontextmanager
async def serve_bridge(settings: Settings) -> AsyncIterator[Serving]:
    """Serve the bridge as a process of its own.

    Raises:
        ConfigurationError: the address can't be listened on.
    """
    check_exposure("http", settings.http, is_allowed=settings.insecure)
    mesh = str(settings.mesh)
    async with AsyncExitStack() as stack:
        stack.callback(configure("bridge", mesh_address=mesh).shutdown)
        channels = await stack.enter_async_context(Channels.of(settings))
        directory = await stack.enter_async_context(Directory(channels, mesh))
        url = await stack.enter_async_context(open_bridge(directory, settings))
        serving = Serving([{"http": url}])

        async def join() -> None:
            await directory.changed(0)
            serving.joined.set()

        await stack.enter_async_context(running(join()))
        yield serving


@asynccontextmanager
async def open_bridge(directory: Directory, settings: Settings) -> AsyncIterator[str]:
    """Serve HTTP for the agents of a directory; yield where."""
    bridge = Bridge(
        directory,
        BridgeSettings(
            default_agent=settings.default_agent,
            public_url=settings.public_url,
            body_limit_bytes=settings.body_limit_bytes,
            heartbeat_s=settings.heartbeat_s,
            patience_s=settings.patience_s,
        ),
    )
    async with serve_http(
        bridge.app,
        host=settings.http.host,
        port=settings.http.port,
        grace_s=_GRACE_S,
        cut=bridge.cut,
    ) as url:
        bridge.endpoints.http = url
        yield url
