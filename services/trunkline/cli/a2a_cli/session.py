"""A session with one agent: its card, the selected interface, and the A2A client."""

import asyncio
import shlex
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import Message

from trunkline.a2a_client.a2a_client import A2AClient
from trunkline.a2a_client.http import HttpClient
from trunkline.a2a_client.interfaces import (
    ClientVersion,
    Interface,
    InterfaceSelector,
    ProtocolBinding,
    parse_host,
    parse_version,
)
from trunkline.a2a_client.settings import MAX_STREAMED_BYTES, NO_BREAKER, RemoteSettings
from trunkline.a2a_client.tls import ClientTls
from trunkline.a2a_client.transport import CALL_TIMEOUT_S, CallOptions
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.operations import Operation
from trunkline.a2a_wire.protocol import (
    EXTENSIONS_HEADER,
    LEGACY_EXTENSIONS_HEADER,
    RESUME_EXTENSION,
    V0_3,
    V1_0,
    VERSION_HEADER,
)
from trunkline.cli.a2a_cli.card import CardResolver, ResolvedCard
from trunkline.cli.a2a_cli.card_cache import CardCache
from trunkline.cli.a2a_cli.configuration import ConfigurationSources
from trunkline.cli.a2a_cli.console import Console, DebugLog
from trunkline.cli.a2a_cli.failures import (
    CommandError,
    LocalCode,
    to_failure,
    usage,
)
from trunkline.cli.a2a_cli.oauth import OAuthClient
from trunkline.cli.a2a_cli.options import StandardOptions
from trunkline.cli.a2a_cli.security_schemes import (
    Credentials,
    build_credentials,
    describe_login,
)
from trunkline.cli.a2a_cli.token_store import TokenStore
from trunkline.core.network import is_this_machine
from trunkline.errors import ConfigurationError
from trunkline.observe import telemetry

if TYPE_CHECKING:
    from trunkline.a2a_client.tls import ChannelSecurity

STREAM_IDLE_S: Final = 120.0
"""A stream without events and heartbeats for so long is taken as broken."""
_OLDER_HINT: Final = f"it offers an older version; if you want that, add --a2a-version {V0_3}"
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
    options: StandardOptions
    sources: ConfigurationSources
    log: DebugLog
    option_order: Sequence[str] = ()
    """The options on the command line, in their order."""

    @property
    def reference(self) -> str:
        """The agent, as the user named it."""
        return self.options.agent_card

    @property
    def target(self) -> str:
        """The flags that name the agent, and an older version of A2A, in a command for a shell.

        Empty if no agent is named, as for a command that only listens.
        """
        if not self.reference:
            return ""
        flags = f"--agent-card {shlex.quote(self.reference)}"
        version = self.options.a2a_version
        return f"{flags} --a2a-version {version}" if version.startswith(V0_3) else flags

    def card_resolver(self, http: HttpClient, *, is_validated: bool = False) -> CardResolver:
        """Return the reader of cards, with their cache."""
        # A card whose server was not verified must not reach commands that verify it.
        is_cached = not self.options.insecure
        cache = CardCache(self.sources.home) if is_cached else None
        return CardResolver(
            http,
            self.console.folder,
            cache,
            is_validated=is_validated,
            version=select_version(self.options),
        )

    @property
    def observer(self) -> DebugLog | None:
        """The log of the wire, if the user wants it."""
        return self.log if self.options.debug else None

    def note(self, text: str) -> None:
        """Log a step, if the user wants diagnostics."""
        if self.options.debug:
            self.log.note(text)

    @property
    def tls(self) -> ClientTls:
        """TLS as the flags want it."""
        options = self.options
        return ClientTls(
            is_verified=not options.insecure,
            authority=_expand(options.ca_cert),
            certificate=_expand(options.client_cert),
            key=_expand(options.client_key),
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
            raise CommandError(
                error,
                f"the agent's card does not declare {description}",
                "`card get` shows what it declares",
            )

    async def call(
        self, operation: Operation, request: Message, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> Json:
        """Call an operation and return the JSON of its response.

        Operations that only read make no spans: traces are about the agents' work.
        """
        is_read = operation.http_methods[0] == "GET"
        with telemetry.suppress_spans() if is_read else nullcontext():
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
    options = context.options
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(context.anonymous_http())
        card = await context.card_resolver(http).resolve(context.reference)
        interface = select_interface(card, options)
        context.note(f"selected {interface.binding} {interface.version} at {interface.url}")
        token = await find_token(context, card, http)
        credentials = build_credentials(options, card.schemes, stored_token=token)
        _announce(context, card, interface, credentials)
        client = await stack.enter_async_context(
            A2AClient(
                RemoteSettings(
                    url=interface.url,
                    headers=credentials.headers,
                    breaker=NO_BREAKER,
                    idle_s=options.timeout,
                ),
                interface=interface,
                ssl_context=await context.ssl_context(),
                stream_idle_s=STREAM_IDLE_S,
                max_event_bytes=MAX_STREAMED_BYTES,
                query=credentials.query,
                channel_security=await _channel_security(context, interface),
                observer=context.observer,
            )
        )
        session = AgentSession(
            context, card, interface, client, credentials, _call_options(options, card)
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


def _expand(path: Path | None) -> Path | None:
    return None if path is None else path.expanduser()


def select_version(options: StandardOptions) -> ClientVersion:
    """Return the version of the interface to call: 1.0, or 0.3 if the user asks for it.

    Raises:
        CommandError: the user asks for another version.
    """
    wanted = options.a2a_version or V1_0
    if wanted.startswith("1."):
        return V1_0
    # Cards of v0.3 also have a patch number.
    if wanted == V0_3 or wanted.startswith(f"{V0_3}."):
        return V0_3
    raise CommandError(
        "VersionNotSupportedError",
        f"version {wanted} is not supported; 1.x is, and {V0_3} if it is asked for",
    )


def select_interface(card: ResolvedCard, options: StandardOptions) -> Interface:
    """Return the first preferred interface of the wanted version, else the card's first of it.

    Raises:
        CommandError: none is supported, or a name is no binding.
    """
    version = select_version(options)
    names = []
    for text in options.transport or ():
        binding = _BINDINGS.get(text.lower())
        if binding is None:
            raise usage(f"--transport: {text!r} is none of JSONRPC, HTTP+JSON, GRPC")
        names.append(binding)
    offered = card.interfaces
    hosts = {parse_host(interface.url) for interface in offered}
    choices: list[tuple[ProtocolBinding, ...]] = [*((name,) for name in names), ()]
    for bindings in choices:
        selector = InterfaceSelector(card.url, hosts, bindings, (version,))
        try:
            return selector.select(offered)
        except (ValueError, ConfigurationError) as error:
            # The second: the agent has interfaces, but not of this binding and version.
            problem = str(error)
    versions = [interface.protocol_version for interface in offered] or ["none is declared"]
    parsed = {parse_version(text) for text in versions}
    if version not in parsed:
        is_older = V0_3 in parsed
        name = "1.x" if version == V1_0 else version
        raise CommandError(
            "VersionNotSupportedError",
            f"the agent offers no version {name} of A2A: {', '.join(dict.fromkeys(versions))}",
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
        renewed = await OAuthClient(http, context.console, context.options).renew(token)
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
    console.add_secrets((bearer, *context.options.secrets))
    names = (*credentials.headers, *context.options.service_params())
    console.secret_headers.update(name.lower() for name in names)
    for warning in credentials.warnings:
        console.warn(warning)
    has_secret = not credentials.is_empty or bool(context.options.service_params())
    if has_secret and not interface.is_secure and not is_this_machine(interface.url):
        console.warn("SECURITY WARNING: credentials are sent without TLS")
    host = parse_host(interface.url)
    is_same_host = host == parse_host(card.url) or (
        is_this_machine(host) and is_this_machine(card.url)
    )
    if card.url and not credentials.is_empty and not is_same_host:
        console.warn(f"warning: the card sends your credentials to another host, {host}")


def _call_options(options: StandardOptions, card: ResolvedCard) -> CallOptions:
    """Return the version, the extensions and the service parameters of each request.

    Raises:
        CommandError: the version is not supported, or a required extension is not declared.
    """
    headers: dict[str, str] = dict(options.service_params())
    version = select_version(options)
    is_older = version == V0_3
    headers[VERSION_HEADER] = V0_3 if is_older else options.a2a_version or version
    declared: list[str] = [*(options.extension or ())]
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
        name = LEGACY_EXTENSIONS_HEADER if is_older else EXTENSIONS_HEADER
        headers[name] = ",".join(dict.fromkeys(declared))
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
