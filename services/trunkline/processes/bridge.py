"""The bridge: A2A over HTTP and over gRPC."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from trunkline.core.identity import open_credentials
from trunkline.core.runtime import ServiceStatus
from trunkline.core.settings import HostPort, Settings, check_exposure
from trunkline.core.small_files import SmallFiles
from trunkline.errors import ConfigurationError
from trunkline.mesh.client import ChannelPool, Directory, run_in_background
from trunkline.observe.audit import AuditLog, open_audit_log
from trunkline.observe.metrics.prometheus import open_prometheus_metrics
from trunkline.observe.signal_exports import export_signals
from trunkline.observe.traces import MeshTarget, configure_tracing
from trunkline.processes.database import find_small_files, open_database
from trunkline.processes.webhook_secret import load_secret
from trunkline_bridge.a2a.bindings.grpc_server import serve_grpc
from trunkline_bridge.api.workflows.catalog import WorkflowCatalog
from trunkline_bridge.app import Bridge
from trunkline_bridge.http.connection_limits import ConnectionLimits
from trunkline_bridge.http.server import raise_open_file_limit, serve_http
from trunkline_bridge.http.server_certificate import CertificateFiles, ServerCertificate

logger = logging.getLogger(__name__)

# The time for requests in flight when the bridge stops.
_GRACE_S = 2


@asynccontextmanager
async def serve_bridge(settings: Settings) -> AsyncIterator[ServiceStatus]:
    """Serve the bridge in this process, and nothing else.

    Raises:
        ConfigurationError: the address can't be listened on, or the database refuses the settings.
    """
    check_addresses(settings)
    async with AsyncExitStack() as stack:
        metrics = await stack.enter_async_context(export_signals(settings, "bridge"))
        credentials = await stack.enter_async_context(open_credentials(settings))
        target = MeshTarget(settings.mesh.addresses, credentials)
        stack.callback(configure_tracing("bridge", mesh=target).shutdown)
        channels = ChannelPool.from_settings(settings, credentials)
        await stack.enter_async_context(channels)
        directory = await stack.enter_async_context(Directory(channels, *settings.mesh.addresses))
        # Without a secret of its own, the bridge needs the stored one before its first webhook.
        database = await stack.enter_async_context(
            open_database(settings, waits=not settings.webhook_secret)
        )
        files = find_small_files(settings, database)
        secret = settings.webhook_secret or await load_secret(settings, files)
        if not secret:
            problem = "webhook deliveries are not signed; set webhook_secret"
            logger.warning("webhooks.unsigned", extra={"problem": problem})
        audit = await stack.enter_async_context(
            open_audit_log(settings, database, process="bridge")
        )
        bridge = open_bridge(
            directory, settings, files, webhook_secret=secret, audit=audit, service="bridge"
        )
        addresses = await stack.enter_async_context(bridge)
        serving = ServiceStatus([{**addresses, **metrics}])

        async def join() -> None:
            await directory.wait_for_change(0)
            serving.joined.set()

        await stack.enter_async_context(run_in_background(join()))
        yield serving


def check_addresses(settings: Settings) -> None:
    """Check that the addresses and origins may be public, and that signed cards have a URL.

    Raises:
        ConfigurationError: an address is not loopback and the settings don't allow that, pages of
            any origin may call without credentials, cards are signed and the URL to put into them
            is unknown, or `[tls]` lacks a file.
    """
    CertificateFiles.from_settings(settings.tls)
    is_allowed = settings.insecure or settings.requires_credentials
    check_exposure("http", settings.http, is_allowed=is_allowed)
    for address in _grpc_addresses(settings).values():
        check_exposure("a2a-grpc", address, is_allowed=is_allowed)
    if "*" in settings.allowed_origins and not settings.requires_credentials:
        problem = "any page could call the mesh: list origins, or authenticate all callers"
        raise ConfigurationError("allowed_origins", problem)
    if settings.card_key and settings.http.is_wildcard and not settings.public_url:
        problem = "a signed card contains the URL of the bridge: set public_url, too"
        raise ConfigurationError("card_key", problem)


@asynccontextmanager
async def open_bridge(
    directory: Directory,
    settings: Settings,
    files: SmallFiles,
    *,
    webhook_secret: str,
    audit: AuditLog | None,
    service: str,
) -> AsyncIterator[Mapping[str, str]]:
    """Serve A2A for the agents of a directory. Yield the addresses, by `http` and `a2a-grpc`.

    `service` names this process in its metrics at `/metrics`.

    With TLS, the addresses start with https:// and grpcs://.

    The versions of workflows are in `files`. Webhooks are delivered in the background. They are
    signed unless the secret is empty. Acts are recorded if there is an audit log.
    """
    bridge = Bridge(
        directory,
        replace(settings, webhook_secret=webhook_secret),
        audit=audit,
        catalog=_find_catalog(settings, files),
        metrics=open_prometheus_metrics(service),
    )
    limits = ConnectionLimits(
        max_connections=settings.connection_limit, request_timeout_s=settings.request_timeout_s
    )
    raise_open_file_limit(2 * settings.connection_limit)
    tls_files = CertificateFiles.from_settings(settings.tls)
    certificate = ServerCertificate(tls_files) if tls_files else None
    async with serve_http(
        bridge.http,
        host=settings.http.host,
        port=settings.http.port,
        grace_s=_GRACE_S,
        abort_requests=bridge.abort_requests,
        limits=limits,
        certificate=certificate,
    ) as url:
        # Before the first request: its Host is compared with this address.
        bridge.addresses.http = url
        async with (
            serve_grpc(
                bridge.grpc,
                _grpc_addresses(settings),
                grace_s=_GRACE_S,
                connection_limit=settings.connection_limit,
                certificate=certificate,
            ) as bound,
            run_in_background(bridge.deliver_webhooks()),
        ):
            bridge.addresses.grpc = settings.public_grpc or bound[""]
            bridge.addresses.agent_grpc |= {name: bound[name] for name in bound if name}
            bridge.addresses.agent_grpc |= {
                name: agent.public_grpc
                for name, agent in settings.agent_options.items()
                if agent.public_grpc
            }
            scheme = "grpcs://" if certificate else ""
            yield {"http": url, "a2a-grpc": f"{scheme}{bound['']}"}


def _find_catalog(settings: Settings, files: SmallFiles) -> WorkflowCatalog | None:
    """Return the published workflows, for GraphQL and the page."""
    if not (settings.graphql.enabled or settings.page.enabled):
        return None
    from trunkline.processes.workflow_catalog import StoredWorkflows

    return StoredWorkflows(files)


def _grpc_addresses(settings: Settings) -> dict[str, HostPort]:
    """Return the addresses to serve A2A over gRPC at, by agent; the empty name is for all."""
    own = {name: agent.a2a_grpc for name, agent in settings.agent_options.items()}
    return {"": settings.a2a_grpc} | {name: address for name, address in own.items() if address}
