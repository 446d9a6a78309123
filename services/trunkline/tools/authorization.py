"""OAuth to one tool server, by the MCP SDK's client. It imports mcp: load it lazily.

The SDK's flow runs beside the requests of the session: it holds a lock while the request that it
authorizes is answered, so that a call could not be answered while another one is open.
"""

import asyncio
import re
import secrets
import ssl
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import (
    OAuthClientProvider,
    OAuthFlowError,
    OAuthRegistrationError,
    OAuthTokenError,
    TokenStorage,
)
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import extract_field_from_www_auth, union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import LATEST_PROTOCOL_VERSION
from pydantic import AnyUrl, BaseModel, ValidationError

from trunkline.core.network import is_this_machine
from trunkline.core.printable import to_plain_line
from trunkline.errors import (
    ConfigurationError,
    InvalidArgumentError,
    JournalUnavailableError,
    SignInFailedError,
    TrunklineError,
)
from trunkline.mesh.client.safe_fetch.address_guard import (
    AddressGuard,
    AddressRefusedError,
    HostUnresolvedError,
)
from trunkline.tools.authorization_errors import AuthorizationError, SignInRequiredError
from trunkline.tools.config import OAuthOverlay, expand_variables
from trunkline.tools.sign_in_files import SignInFiles

_TIMEOUT_S: Final = 30.0
_SIGN_IN_S: Final = 600.0
_LIMIT_BYTES: Final = 256 * 1024
_SHOWN_CHARS: Final = 300
_NAME: Final = "Trunkline"
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERROR: Final = 500
# Of RFC 6749, section 5.2, and RFC 7591, section 3.2.2.
_ERROR_CODE: Final = re.compile(r'"error"\s*:\s*"([a-z_]{1,60})"')
_CALLBACK_HOSTS: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class _StoredSignIn(BaseModel):
    """A stored sign-in: the data that the SDK's client needs after a restart."""

    tokens: OAuthToken | None = None
    expires_at: float | None = None
    """Unix time."""
    client: OAuthClientInformationFull | None = None
    metadata: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None
    issuer: str | None = None


@dataclass(frozen=True, slots=True)
class Challenge:
    """A refusal of the tool server that a token may resolve."""

    status: int = httpx2.codes.UNAUTHORIZED
    header: str = "Bearer"
    """The header WWW-Authenticate (RFC 9110, section 11.6.1)."""

    @property
    def is_step_up(self) -> bool:
        """The token is valid and lacks scopes."""
        return self.status == httpx2.codes.FORBIDDEN

    def respond(self, request: httpx2.Request, scopes: str | None) -> httpx2.Response:
        """Return the refusal as a response that also asks for the scopes of the entry."""
        response = httpx2.Response(
            self.status, headers={"www-authenticate": self.header}, request=request
        )
        asked = extract_field_from_www_auth(response, "scope")
        wanted = union_scopes(scopes, asked)
        if wanted and wanted != asked:
            # The SDK reads the first scope of the header.
            scheme, _, rest = self.header.partition(" ")
            response.headers["www-authenticate"] = f'{scheme} scope="{wanted}", {rest}'
        return response


def find_challenge(response: httpx2.Response) -> Challenge | None:
    """Return a refusal that a token may resolve: 401, or 403 for missing scopes (RFC 6750)."""
    header = response.headers.get("www-authenticate", "Bearer")
    match response.status_code:
        case httpx2.codes.UNAUTHORIZED:
            return Challenge(httpx2.codes.UNAUTHORIZED, header)
        case httpx2.codes.FORBIDDEN:
            if extract_field_from_www_auth(response, "error") == "insufficient_scope":
                return Challenge(httpx2.codes.FORBIDDEN, header)
    return None


class _Storage(TokenStorage):
    """The stored sign-in of one server. Implements the SDK's protocol."""

    def __init__(self, files: SignInFiles | None, url: str, oauth: "_Client") -> None:
        """Without files, the sign-in lasts as long as the process."""
        self.record = _StoredSignIn()
        self._files = files
        self._url = url
        self._oauth = oauth
        # What was read or written last, or None before that.
        self._content: bytes | None = None

    async def load(self) -> None:
        """Read the file, once."""
        if self._content is None:
            await self.reload()

    async def reload(self) -> bool:
        """Read the file; return whether another tool adapter has changed it."""
        if self._files is None:
            return False
        content = await self._files.load(self._url, self._oauth.client_id)
        if content == self._content:
            return False
        try:
            self.record = _StoredSignIn.model_validate_json(content) if content else _StoredSignIn()
        except ValidationError:
            # A later version may have written it. The next sign-in replaces it.
            self.record = _StoredSignIn()
        self._content = content
        return True

    @asynccontextmanager
    async def refreshing(self) -> AsyncIterator[bool]:
        """Keep other tool adapters from a refresh for the length of a block.

        Yields whether another one has changed the sign-in meanwhile.

        Raises:
            AuthorizationError: the stored sign-in can't be used.
        """
        try:
            await self.load()
            tokens = self.record.tokens
            if self._files is None or tokens is None or not tokens.refresh_token:
                yield False
                return
            async with self._files.claim_refresh(self._url, self._oauth.client_id):
                yield await self.reload()
        except (ConfigurationError, JournalUnavailableError) as error:
            # It names the place of the sign-in and the remedy.
            raise AuthorizationError(str(error)) from error

    async def store(self, tokens: OAuthToken, context: OAuthContext) -> None:
        """Store tokens with what the context discovered."""
        record = self.record
        record.tokens = tokens
        expires_in = tokens.expires_in
        now = datetime.now(UTC).timestamp()
        record.expires_at = None if expires_in is None else now + expires_in
        record.metadata = context.oauth_metadata
        record.resource = context.protected_resource_metadata
        record.issuer = context.auth_server_url
        await self._save()

    async def get_tokens(self) -> OAuthToken | None:
        await self.load()
        return self.record.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        raise NotImplementedError

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        await self.load()
        if self._oauth.client_id:
            return self._oauth.registration()
        return self.record.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self.load()
        if client_info.client_secret and not client_info.token_endpoint_auth_method:
            # RFC 7591, section 2. The SDK would send no secret.
            client_info.token_endpoint_auth_method = "client_secret_basic"  # noqa: S105
        self.record.client = client_info
        await self._save()

    async def _save(self) -> None:
        if self._files is not None:
            content = self.record.model_dump_json(exclude_none=True).encode()
            await self._files.save(self._url, self._oauth.client_id, content)
            self._content = content


class _ContextStorage(TokenStorage):
    """Stores the tokens of one run of the SDK's client, with the context of the client."""

    def __init__(self, storage: _Storage, redirect_uri: str = "") -> None:
        """`redirect_uri` is the address of a sign-in. Requests, which need no person, have none."""
        self.context: OAuthContext | None = None
        self.storage = storage
        self._redirect_uri = redirect_uri

    async def get_tokens(self) -> OAuthToken | None:
        tokens = await self.storage.get_tokens()
        if self._redirect_uri and tokens is not None:
            # A person signs in, so the old tokens only show the scopes that were granted.
            return tokens.model_copy(update={"refresh_token": None})
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        if self.context is not None:
            await self.storage.store(tokens, self.context)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        client = await self.storage.get_client_info()
        is_registered = client is not None and client is self.storage.record.client
        if client is None or not (self._redirect_uri and is_registered):
            return client
        # Servers compare the address of a registration exactly; it may also be a URL document.
        addresses = [str(uri) for uri in client.redirect_uris or ()]
        return client if self._redirect_uri in addresses else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self.storage.set_client_info(client_info)


class _StoredProvider(OAuthClientProvider):
    """The SDK's client, which also restores the expiry of its tokens and the discovered metadata.

    The SDK restores only the tokens. It would regard them as valid, and send a refresh token to the
    tool server's own host.
    """

    async def _initialize(self) -> None:
        await super()._initialize()
        context = self.context
        own = cast("_ContextStorage", context.storage)
        own.context, record = context, own.storage.record
        context.oauth_metadata = record.metadata
        context.protected_resource_metadata = record.resource
        context.auth_server_url = record.issuer
        if context.current_tokens is not None:
            context.token_expiry_time = record.expires_at


class _SecretProvider(_StoredProvider, ClientCredentialsOAuthProvider):
    """Client credentials with a secret."""


class _KeyProvider(_StoredProvider, PrivateKeyJWTOAuthProvider):
    """Client credentials with a signed assertion (RFC 7523)."""


@dataclass(frozen=True, slots=True)
class _Client:
    """The `oauth` member of an entry, with the values of its variables."""

    overlay: OAuthOverlay
    client_id: str
    client_secret: str = field(repr=False)
    private_key: str = field(repr=False)

    @property
    def scopes(self) -> str | None:
        return " ".join(self.overlay.scopes) or None

    @property
    def method(self) -> str:
        return "client_secret_basic" if self.client_secret else "none"

    def registration(self) -> OAuthClientInformationFull:
        """Return the client that the operator registered."""
        return OAuthClientInformationFull(
            client_id=self.client_id,
            client_secret=self.client_secret or None,
            token_endpoint_auth_method=self.method,
            issuer=self.overlay.issuer or None,
        )


@dataclass(slots=True)
class _SignIn:
    """A sign-in that waits for a person."""

    url: "asyncio.Future[str]"
    answer: "asyncio.Future[AuthorizationCodeResult]"
    done: "asyncio.Future[None]"
    state: str = ""
    task: "asyncio.Task[None] | None" = None
    check: Callable[[str], Awaitable[None]] | None = None
    """Checks the address of the page where the person signs in."""

    async def redirect(self, url: str) -> None:
        if self.check is not None:
            await self.check(url)
        self.state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        self.url.set_result(url)

    async def wait(self) -> AuthorizationCodeResult:
        return await self.answer

    def fail(self, problem: str) -> None:
        for future in (self.url, self.done):
            if not future.done():
                future.set_exception(SignInFailedError("", problem))
                # Nothing may wait for it.
                future.exception()

    def cancel(self, problem: str) -> None:
        self.fail(problem)
        if self.task is not None:
            self.task.cancel()


class ServerAuthorization:
    """The tokens for one tool server. They come from a sign-in, are stored, and are refreshed."""

    def __init__(
        self,
        name: str,
        url: str,
        oauth: OAuthOverlay,
        *,
        ca_file: Path | None,
        files: SignInFiles | None,
    ) -> None:
        """Nothing is sent or read yet.

        Raises:
            ToolServerUnavailableError: the entry needs a missing variable.
        """
        self.needs_sign_in = False
        """The server refuses our tokens, and a person has to sign in."""
        self._name = name
        self._url = url
        self._ca_file = ca_file
        self._client = _Client(
            oauth,
            expand_variables(name, oauth.client_id),
            expand_variables(name, oauth.client_secret),
            expand_variables(name, oauth.private_key),
        )
        self._storage = _Storage(files, url, self._client)
        self._provider: OAuthClientProvider | None = None
        self._lock = asyncio.Lock()
        self._challenge = Challenge()
        self._sign_in: _SignIn | None = None

    @property
    def _needs_person(self) -> bool:
        return self._client.overlay.grant == "authorization_code"

    async def header(self) -> str:
        """Return the header Authorization for a request, or "" without a token.

        Tokens that have expired are refreshed.

        Raises:
            AuthorizationError: the authorization server does not answer, or can't be used.
        """
        provider = self._provider
        if provider is not None and provider.context.is_token_valid():
            tokens = provider.context.current_tokens
            return f"Bearer {tokens.access_token}" if tokens is not None else ""
        async with self._lock, self._storage.refreshing() as is_changed:
            return await self._run(self._open_provider(anew=is_changed), None)

    async def renew(self, challenge: Challenge, used: str) -> str:
        """Return the header for a request that was refused with the header `used`, or without it.

        Raises:
            SignInRequiredError: a person has to sign in.
            AuthorizationError: the authorization server does not answer, refuses, or can't be used.
        """
        async with self._lock:
            provider = self._open_provider()
            context = provider.context
            current = context.current_tokens
            if current is not None and used and f"Bearer {current.access_token}" != used:
                # Another request has renewed the token meanwhile.
                return f"Bearer {current.access_token}"
            if not self._needs_person:
                return await self._run(provider, challenge)
            if not challenge.is_step_up and context.can_refresh_token():
                async with self._storage.refreshing() as is_changed:
                    provider = self._open_provider(anew=is_changed)
                    if not is_changed:
                        # The token may have been revoked before it expired.
                        context.token_expiry_time = 1.0
                    renewed = await self._run(provider, None)
                if renewed and renewed != used:
                    return renewed
            self._challenge = challenge
            self.needs_sign_in = self.needs_sign_in or not challenge.is_step_up
            remedy = f"run `trunkline tools login {self._name}`"
            if challenge.is_step_up:
                problem = f"the call needs more rights than the sign-in gave; {remedy}"
            else:
                problem = f"it needs a sign-in; {remedy}"
            raise SignInRequiredError(problem, is_step_up=challenge.is_step_up)

    async def start_sign_in(self, redirect_uri: str, group: asyncio.TaskGroup) -> str:
        """Begin a sign-in, in place of an open one; return the URL that a person opens.

        The sign-in waits ten minutes, in `group`, for the redirect to `redirect_uri`.

        Raises:
            InvalidArgumentError: the entry needs no person, or the address is not of this machine.
            SignInFailedError: the server does not say where to sign in, or can't be used.
        """
        if not self._needs_person:
            problem = f"{self._name} signs in by client credentials, without a person"
            raise InvalidArgumentError("SERVER", problem)
        host = urlsplit(redirect_uri).hostname
        if host not in _CALLBACK_HOSTS and not redirect_uri.startswith("https://"):
            raise InvalidArgumentError("redirect_uri", "must be https, or of this machine")
        if self._sign_in is not None:
            self._sign_in.cancel("another sign-in has begun")
        loop = asyncio.get_running_loop()
        sign_in = _SignIn(loop.create_future(), loop.create_future(), loop.create_future())
        self._sign_in = sign_in
        sign_in.task = group.create_task(self._run_sign_in(sign_in, redirect_uri))
        try:
            return await sign_in.url
        except SignInFailedError as error:
            raise SignInFailedError(self._name, error.problem) from None

    def cancel_sign_in(self) -> None:
        """End a sign-in that waits for a person."""
        if self._sign_in is not None:
            self._sign_in.cancel("it was ended")
            self._sign_in = None

    async def complete_sign_in(self, answer: Mapping[str, str]) -> None:
        """End a sign-in by the parameters of the redirect (RFC 6749, section 4.1.2).

        Raises:
            SignInFailedError: no sign-in has this `state`, or it is refused.
        """
        sign_in = self._sign_in
        state = answer.get("state", "")
        if (
            sign_in is None
            or not sign_in.state
            or sign_in.answer.done()
            or not secrets.compare_digest(sign_in.state.encode(), state.encode())
        ):
            raise SignInFailedError(self._name, "no sign-in waits for this answer; begin again")
        code = answer.get("code", "")
        if not code:
            refusal = to_plain_line(answer.get("error", "") or "no code", _SHOWN_CHARS)
            sign_in.cancel("it was refused")
            raise SignInFailedError(self._name, f"the authorization server says: {refusal}")
        result = AuthorizationCodeResult(code=code, state=state, iss=answer.get("iss"))
        sign_in.answer.set_result(result)
        try:
            await asyncio.shield(sign_in.done)
        except SignInFailedError as error:
            raise SignInFailedError(self._name, error.problem) from None

    async def _run_sign_in(self, sign_in: _SignIn, redirect_uri: str) -> None:
        """Run the SDK's flow. An error ends only the sign-in."""
        try:
            async with asyncio.timeout(_SIGN_IN_S):
                sign_in.check = self._check_address
                provider = self._build_code_provider(redirect_uri, sign_in)
                await self._run(provider, self._challenge)
        except TimeoutError:
            sign_in.fail("nobody has signed in within ten minutes")
        except AuthorizationError as error:
            sign_in.fail(error.problem)
        except asyncio.CancelledError:
            sign_in.fail("the tool adapter stops")
            raise
        else:
            async with self._lock:
                # The next request reads the new tokens.
                self._provider = None
                self.needs_sign_in = False
                self._challenge = Challenge()
            sign_in.done.set_result(None)

    def _open_provider(self, *, anew: bool = False) -> OAuthClientProvider:
        if self._provider is None or anew:
            self._provider = self._build_provider()
        return self._provider

    def _build_provider(self) -> OAuthClientProvider:
        client, storage = self._client, _ContextStorage(self._storage)
        if self._needs_person:
            return self._build_code_provider("http://127.0.0.1/", None)
        issuer = client.overlay.issuer or None
        with warnings.catch_warnings():
            # The operator need not name the issuer.
            warnings.simplefilter("ignore")
            if client.private_key:
                parameters = SignedJWTParameters(
                    issuer=client.client_id,
                    subject=client.client_id,
                    signing_key=client.private_key,
                    signing_algorithm=client.overlay.algorithm,
                )
                return _KeyProvider(
                    self._url,
                    storage,
                    client.client_id,
                    parameters.create_assertion_provider(),
                    scope=client.scopes,
                    issuer=issuer,
                )
            return _SecretProvider(
                self._url,
                storage,
                client.client_id,
                client.client_secret,
                scope=client.scopes,
                issuer=issuer,
            )

    def _build_code_provider(
        self, redirect_uri: str, sign_in: _SignIn | None
    ) -> OAuthClientProvider:
        client = self._client
        metadata = OAuthClientMetadata(
            client_name=_NAME, redirect_uris=[AnyUrl(redirect_uri)], scope=client.scopes
        )
        storage = _ContextStorage(self._storage, redirect_uri if sign_in else "")
        return _StoredProvider(
            self._url,
            metadata,
            storage,
            redirect_handler=sign_in.redirect if sign_in else None,
            callback_handler=sign_in.wait if sign_in else None,
            client_metadata_url=client.overlay.client_metadata_url or None,
        )

    async def _run(self, provider: OAuthClientProvider, challenge: Challenge | None) -> str:
        """Run the SDK's flow for a request that is not sent; return its header Authorization.

        Raises:
            AuthorizationError: the authorization server does not answer, refuses, or can't be used.
        """
        headers = {MCP_PROTOCOL_VERSION_HEADER: LATEST_PROTOCOL_VERSION}
        probe = httpx2.Request("POST", self._url, headers=headers)
        flow = provider.async_auth_flow(probe)
        try:
            async with self._open_http() as http:
                request = await anext(flow)
                while True:
                    if request is not probe:
                        response = await self._send(http, request)
                    elif challenge is None:
                        break
                    else:
                        response = challenge.respond(probe, self._client.scopes)
                        challenge = None
                    request = await flow.asend(response)
        except TrunklineError as error:
            # Of the stored sign-in. It names a file and the remedy.
            raise AuthorizationError(str(error)) from error
        except AuthorizationError:
            raise
        # A bulkhead, as for the client of a session: answers of servers may lead to any error.
        except Exception as error:  # noqa: BLE001
            raise AuthorizationError(_describe(error)) from None
        finally:
            await flow.aclose()
        return str(probe.headers.get("authorization", ""))

    def _open_http(self) -> httpx2.AsyncClient:
        ca_file = self._ca_file
        try:
            verify = ssl.create_default_context(cafile=ca_file) if ca_file else True
        except (OSError, ValueError):
            raise AuthorizationError("its ca_file can't be used") from None
        return httpx2.AsyncClient(
            timeout=_TIMEOUT_S, verify=verify, trust_env=not is_this_machine(self._url)
        )

    async def _check_address(self, url: str) -> None:
        """Check an address that the server or its authorization server named.

        Raises:
            AuthorizationError: it is not encrypted although the tool server's is, or it is neither
                public nor on the host of the tool server or of the `issuer` of the entry.
        """
        host = urlsplit(url).hostname or ""
        if not url.startswith("https:") and self._url.startswith("https:"):
            raise AuthorizationError(f"its authorization server {host} does not use https")
        known = {urlsplit(each).hostname for each in (self._url, self._client.overlay.issuer)}
        if is_this_machine(self._url):
            known |= _CALLBACK_HOSTS
        guard = AddressGuard(f"[{each}]" if ":" in each else each for each in known if each)
        try:
            await guard.check(url)
        except HostUnresolvedError:
            # A proxy may know the host. Otherwise the request fails.
            return
        except AddressRefusedError:
            problem = f"its authorization server {host} is not public; name it as `issuer`"
            raise AuthorizationError(problem) from None

    async def _send(self, http: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
        """Send a request of the flow, and read its response up to a limit.

        Raises:
            AuthorizationError: there is no answer, or it is too large, or the request would not be
                encrypted although the tool server's are.
        """
        host = request.url.host
        await self._check_address(str(request.url))
        request.headers["accept-encoding"] = "identity"
        request.headers["user-agent"] = _NAME
        content = bytearray()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                response = await http.send(request, stream=True, auth=None, follow_redirects=False)
                try:
                    async for chunk in response.aiter_raw():
                        content += chunk
                        if len(content) > _LIMIT_BYTES:
                            raise AuthorizationError(f"{host} answers with too much")
                finally:
                    await response.aclose()
        except (TimeoutError, httpx2.TransportError) as error:
            problem = f"its authorization server {host} can't be reached ({type(error).__name__})"
            raise AuthorizationError(problem) from None
        status = response.status_code
        if request.method == "POST" and (status >= _SERVER_ERROR or status == _TOO_MANY_REQUESTS):
            # Not a refusal: the token may be refreshed later.
            raise AuthorizationError(f"its authorization server {host} answers with HTTP {status}")
        headers = httpx2.Headers(response.headers)
        headers.pop("transfer-encoding", None)
        read = httpx2.Response(status, headers=headers, content=bytes(content), request=request)
        read.next_request = response.next_request
        return read


def _describe(error: Exception) -> str:
    """Describe an error of the SDK's client without texts that may be secret."""
    text = str(error)
    if isinstance(error, OAuthRegistrationError | OAuthTokenError):
        what = "registration" if isinstance(error, OAuthRegistrationError) else "token"
        code = _ERROR_CODE.search(text)
        reason = f": {code[1]}" if code else ""
        return f"the authorization server gives no {what}{reason}"
    if isinstance(error, OAuthFlowError):
        return to_plain_line(f"OAuth is refused: {text}", _SHOWN_CHARS)
    return f"its authorization can't be used ({type(error).__name__})"
