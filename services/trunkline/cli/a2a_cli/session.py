"""A session with one agent: its card, the selected interface, and the A2A client."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import Message

from trunkline.cli.a2a_cli.card import CardResolver, ResolvedCard
from trunkline.cli.a2a_cli.card_cache import CardCache
from trunkline.cli.a2a_cli.configuration import Configuration, ConfigurationSources
from trunkline.cli.a2a_cli.console import Console, DebugLog
from trunkline.cli.a2a_cli.failures import (
    CommandError,
    LocalCode,
    capability_missing,
    to_failure,
    usage,
)
from trunkline.cli.a2a_cli.oauth import OAuthClient
from trunkline.cli.a2a_cli.security_schemes import (
    Credentials,
    build_credentials,
    describe_login,
)
from trunkline.cli.a2a_cli.token_store import TokenStore
from trunkline.client.breaker import BreakerSettings
from trunkline.network import is_this_machine
from trunkline_bridge.client.a2a_client import A2AClient
from trunkline_bridge.client.http import HttpClient
from trunkline_bridge.client.interfaces import (
    Interface,
    InterfaceSelector,
    ProtocolBinding,
    parse_host,
)
from trunkline_bridge.client.operations import RemoteOperation
from trunkline_bridge.client.settings import RemoteSettings
from trunkline_bridge.client.tls import ClientTls
from trunkline_bridge.client.transport import CALL_TIMEOUT_S, CallOptions
from trunkline_bridge.protocol import EXTENSIONS_HEADER, RESUME_EXTENSION, V1_0, VERSION_HEADER
from trunkline_bridge.versions.json_values import Json

if TYPE_CHECKING:
    from trunkline_bridge.client.tls import ChannelSecurity

STREAM_IDLE_S: Final = 120.0
"""A stream without events and heartbeats for so long is taken as broken."""
_MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
# A circuit breaker that never opens: each command is one attempt.
_NO_BREAKER: Final = BreakerSettings(failures=1_000_000_000)
_OLDER_HINT: Final = "`trunkline ask` and `trunkline join` also speak 0.3"
_BINDINGS: Final[Mapping[str, ProtocolBinding]] = {
    "jsonrpc": ProtocolBinding.JSONRPC,
    "json-rpc": ProtocolBinding.JSONRPC,
    "http+json": ProtocolBinding.REST,
    "rest": ProtocolBinding.REST,
    "grpc": ProtocolBinding.GRPC,
}


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The surroundings of a command: its console, its configuration and its diagnostics."""

    console: Console
    configuration: Configuration
    sources: ConfigurationSources
    log: DebugLog

    @property
    def reference(self) -> str:
        """The agent, as the user named it."""
        return self.configuration.text("agent_card")

    def card_resolver(self, http: HttpClient, *, is_validated: bool = False) -> CardResolver:
        """Return the reader of cards, with their cache."""
        # A card whose server was not verified must not reach commands that verify it.
        is_cached = not self.configuration.get("insecure")
        cache = CardCache(self.sources.home) if is_cached else None
        return CardResolver(http, self.console.folder, cache, is_validated=is_validated)

    @property
    def observer(self) -> DebugLog | None:
        """The log of the wire, if the user wants it."""
        return self.log if self.configuration.get("debug") else None

    def note(self, text: str) -> None:
        """Log a step, if the user wants diagnostics."""
        if self.configuration.get("debug"):
            self.log.note(text)

    @property
    def tls(self) -> ClientTls:
        """TLS as the flags want it."""
        get = self.configuration.path
        return ClientTls(
            is_verified=not self.configuration.get("insecure"),
            authority=get("ca_cert"),
            certificate=get("client_cert"),
            key=get("client_key"),
        )

    async def ssl_context(self) -> ssl.SSLContext:
        """Return the context of HTTPS."""
        return await asyncio.to_thread(_build_ssl_context, self.tls)

    @asynccontextmanager
    async def anonymous_http(self) -> AsyncIterator[HttpClient]:
        """Open an HTTP client that sends no credentials."""
        url = self.reference if self.reference.startswith("https:") else ""
        context = await self.ssl_context()
        http = HttpClient(
            self.reference or "the agent",
            url,
            {},
            ssl_context=context,
            observer=self.observer,
        )
        try:
            yield http
        finally:
            await http.close()


@dataclass(frozen=True, slots=True)
class AgentSession:
    """An open session with an agent."""

    context: CommandContext
    card: ResolvedCard
    interface: Interface
    client: A2AClient
    credentials: Credentials
    options: CallOptions

    def require(self, capability: str, error: str, description: str) -> None:
        """Check that the card declares a capability. CommandError: it does not."""
        if not self.card.declares(capability):
            raise capability_missing(error, description)

    async def call(
        self, operation: RemoteOperation, request: Message, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> Json:
        """Call an operation and return the JSON of its response."""
        return await self.client.call(operation, request, self.options, timeout_s=timeout_s)

    def failure(self, error: Exception) -> CommandError:
        """Convert an error, with a hint from the card's security schemes."""
        login = describe_login(self.card.schemes, self.context.reference)
        return to_failure(error, has_credentials=not self.credentials.is_empty, login=login)


@asynccontextmanager
async def open_session(context: CommandContext) -> AsyncIterator[AgentSession]:
    """Read the agent's card, select an interface and open a client.

    Errors of the client in the block become CommandErrors.

    Raises:
        CommandError: the card or the interface can't be used.
    """
    configuration = context.configuration
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(context.anonymous_http())
        card = await context.card_resolver(http).resolve(context.reference)
        interface = select_interface(card, configuration.get("transport"))
        context.note(f"selected {interface.binding} {interface.version} at {interface.url}")
        token = await find_token(context, card, http)
        credentials = build_credentials(configuration, card.schemes, stored_token=token)
        _announce(context, card, interface, credentials)
        client = await stack.enter_async_context(
            A2AClient(
                RemoteSettings(
                    url=interface.url,
                    headers=credentials.headers,
                    breaker=_NO_BREAKER,
                    idle_s=configuration.get("timeout"),
                ),
                interface=interface,
                ssl_context=await context.ssl_context(),
                stream_idle_s=STREAM_IDLE_S,
                max_event_bytes=_MAX_EVENT_BYTES,
                query=credentials.query,
                channel_security=await _channel_security(context, interface),
                observer=context.observer,
            )
        )
        session = AgentSession(
            context, card, interface, client, credentials, _call_options(configuration, card)
        )
        try:
            yield session
        except (CommandError, TimeoutError, BrokenPipeError):
            raise
        except Exception as error:
            raise session.failure(error) from error


@lru_cache(maxsize=1)
def _build_ssl_context(tls: ClientTls) -> ssl.SSLContext:
    """Return the context, which several clients share: reading the system's roots is slow."""
    return tls.ssl_context()


def select_interface(card: ResolvedCard, preferred: list[str]) -> Interface:
    """Return the first preferred interface that the card has, else the card's first.

    Raises:
        CommandError: none is supported, or a name is no binding.
    """
    names = []
    for text in preferred:
        binding = _BINDINGS.get(text.lower())
        if binding is None:
            raise usage(f"--transport: {text!r} is none of JSONRPC, HTTP+JSON, GRPC")
        names.append(binding)
    offered = card.parsed.supported_interfaces
    hosts = {parse_host(interface.url) for interface in offered}
    choices: list[tuple[ProtocolBinding, ...]] = [*((name,) for name in names), ()]
    for bindings in choices:
        selector = InterfaceSelector(card.url, hosts, bindings, (V1_0,))
        try:
            return selector.select(offered)
        except ValueError as error:
            problem = str(error)
    versions = [interface.protocol_version for interface in offered]
    # Cards of v0.3 have one version for all interfaces.
    versions = versions or [str(card.value.get("protocolVersion", "none is declared"))]
    if not any(version.partition(".")[0] == "1" for version in versions):
        is_older = any(version.startswith("0.") for version in versions)
        raise CommandError(
            "VersionNotSupportedError",
            f"the agent offers no version 1.x of A2A: {', '.join(dict.fromkeys(versions))}",
            _OLDER_HINT if is_older else "`card get` shows what it declares",
        )
    raise CommandError(LocalCode.CARD_INVALID, problem)


async def find_token(context: CommandContext, card: ResolvedCard, http: HttpClient) -> str:
    """Return the stored token for a card, renewed if it has expired; empty if there is none.

    It is used only if the card still declares the scheme that it was issued for.
    """
    store = TokenStore(context.sources.home)
    token = await asyncio.to_thread(store.find, token_key(card))
    if token is None or token.scheme not in {scheme.name for scheme in card.schemes}:
        return ""
    context.console.add_secrets((token.access_token, token.refresh_token))
    if token.is_expired:
        renewed = await OAuthClient(http, context.console, context.configuration).renew(token)
        if renewed is None:
            context.console.warn("warning: the stored login has expired; run `auth login` again")
            return ""
        await asyncio.to_thread(store.save, token_key(card), renewed)
        token = renewed
        context.console.add_secrets((token.access_token,))
    return token.access_token


def token_key(card: ResolvedCard) -> str:
    """Return the key of a card's token in the store: its address."""
    return card.url or card.reference


def _announce(
    context: CommandContext, card: ResolvedCard, interface: Interface, credentials: Credentials
) -> None:
    """Keep the credentials out of diagnostics, and warn of what exposes them."""
    console = context.console
    console.add_secrets((*credentials.headers.values(), *credentials.query.values()))
    bearer = credentials.headers.get("authorization", "").removeprefix("Bearer ")
    console.add_secrets((bearer, *context.configuration.secrets))
    names = (*credentials.headers, *context.configuration.service_params())
    console.secret_headers.update(name.lower() for name in names)
    for warning in credentials.warnings:
        console.warn(warning)
    has_secret = not credentials.is_empty or bool(context.configuration.service_params())
    if has_secret and not interface.is_secure and not is_this_machine(interface.url):
        console.warn("SECURITY WARNING: credentials are sent without TLS")
    host = parse_host(interface.url)
    is_same_host = host == parse_host(card.url) or (
        is_this_machine(host) and is_this_machine(card.url)
    )
    if card.url and not credentials.is_empty and not is_same_host:
        console.warn(f"warning: the card sends your credentials to another host, {host}")


def _call_options(configuration: Configuration, card: ResolvedCard) -> CallOptions:
    """Return the version, the extensions and the service parameters of each request.

    Raises:
        CommandError: a version below 1.0 is wanted, or a required extension is not declared.
    """
    headers: dict[str, str] = dict(configuration.service_params())
    version = configuration.text("a2a_version") or V1_0
    if not version.startswith("1."):
        raise CommandError(
            "VersionNotSupportedError", f"version {version} is not supported; 1.0 is the lowest"
        )
    headers[VERSION_HEADER] = version
    declared: list[str] = [*configuration.get("extension")]
    required = card.required_extensions
    if RESUME_EXTENSION in required:
        declared.append(RESUME_EXTENSION)
    if missing := [uri for uri in required if uri not in declared]:
        raise CommandError(
            "ExtensionSupportRequiredError",
            f"the agent requires extensions: {', '.join(missing)}",
            f"if you follow it, declare it: --extension {missing[0]}",
        )
    if declared:
        headers[EXTENSIONS_HEADER] = ",".join(dict.fromkeys(declared))
    return CallOptions(headers=tuple(headers.items()))


async def _channel_security(
    context: CommandContext, interface: Interface
) -> "ChannelSecurity | None":
    tls: Any = context.tls
    if interface.binding is not ProtocolBinding.GRPC or not interface.is_secure:
        return None
    try:
        return await asyncio.to_thread(tls.channel_security, interface.url)
    except OSError as error:
        raise CommandError(
            LocalCode.UNREACHABLE, f"{interface.url} can't be reached: {error.strerror or error}"
        ) from error
