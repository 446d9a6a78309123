"""`auth login`: gets a token from the authorization server that the agent's card names."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

from trunkline.cli.a2a_cli.failures import CommandError, LocalCode
from trunkline.cli.a2a_cli.oauth import LoginFlow, OAuthClient
from trunkline.cli.a2a_cli.output import ResultPrinter
from trunkline.cli.a2a_cli.security_schemes import describe_login
from trunkline.cli.a2a_cli.session import CommandContext, token_key
from trunkline.cli.a2a_cli.token_store import TokenStore
from trunkline.cli.options import option


async def log_in(
    context: CommandContext,
    *,
    scheme: Annotated[str, option("NAME", "The scheme of the card. [the first of them]")] = "",
    flow: Annotated[
        LoginFlow | None, option("FLOW", "device-code or client-credentials. [what is possible]")
    ] = None,
    scope: Annotated[str, option("SCOPES", "Separated by spaces. [what the card declares]")] = "",
) -> None:
    """Log in with OAuth or OpenID Connect, and store the token.

    Later commands for the same card send the token.

    Raises:
        CommandError: the card has no such scheme, or the login fails or takes too long.
    """
    console, options = context.console, context.options
    console.add_secrets(options.secrets)
    async with context.anonymous_http() as http:
        card = await context.card_resolver(http).resolve(context.reference)
        schemes = [
            declared
            for declared in card.schemes
            if declared.kind in ("oauth2", "openid") and scheme in ("", declared.name)
        ]
        if not schemes:
            hint = describe_login(card.schemes, context.reference) or None
            raise CommandError(
                LocalCode.AUTH_FAILED, "the card declares no OAuth or OpenID Connect login", hint
            )
        try:
            async with asyncio.timeout(options.timeout):
                client = OAuthClient(http, console, options)
                token = await client.log_in(schemes[0], flow, scope)
        except TimeoutError:
            raise CommandError(
                LocalCode.TIMEOUT, "nobody has confirmed the login in time"
            ) from None
    store = TokenStore(context.sources.home)
    await asyncio.to_thread(store.save, token_key(card), token)
    expiry = "never"
    if token.expires_at:
        expiry = datetime.fromtimestamp(token.expires_at, UTC).isoformat(timespec="seconds")
    fields: list[tuple[str, object]] = [
        ("Agent", token_key(card)),
        ("Scheme", token.scheme),
        ("Expires", expiry),
        ("Stored in", store.path),
    ]
    value = {"agent": token_key(card), "scheme": token.scheme, "expires": expiry}
    ResultPrinter(context).fields({**value, "file": str(store.path)}, fields)
