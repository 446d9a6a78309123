"""The command that verifies the card of an agent."""

from pathlib import Path
from typing import Annotated

import typer

from trunkline.a2a_wire.card_signatures import InvalidSignatureError, parse_trusted_keys
from trunkline.a2a_wire.card_signatures import verify_card as find_signature
from trunkline.a2a_wire.documents import fetch_document
from trunkline.a2a_wire.protocol import CARD_PATH, V1_0, VERSION_HEADER
from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import JsonOption, argument, option
from trunkline.cli.terminal import print_json, print_stderr
from trunkline.errors import InvalidArgumentError, PeerProtocolError

group = typer.Typer()

CardUrl = Annotated[str, argument("URL", "The URL of an agent or of its card.")]

# Strict servers send the card of v0.3 to requests without a version. It has no signature.
CARD_HEADERS = {VERSION_HEADER: V1_0}
# The descriptions of `Signature.form`: the bytes of the card that the signature covers.
FORM_NAMES = {
    "specified": "in the specification's form",
    "pruned": "in the form of a2a-sdk, which doesn't cover what is empty",
    "as sent": "in the form in which it was sent",
}


@command(group, "verify")
async def verify_card(
    url: CardUrl,
    *,
    key: Annotated[Path | None, option("FILE", "Trust this public key (PEM).")] = None,
    jwks: Annotated[str, option("URL|FILE", "Trust these keys.")] = "",
    json: JsonOption = False,
) -> ExitCode:
    """Verify a card's signature by a key that you trust. Exits 0 only if one is valid."""
    trusted = str(key) if key else jwks
    if not trusted:
        print_stderr("error: give a trusted key by --key or --jwks; a card can't vouch for itself")
        return ExitCode.USAGE
    try:
        keys = parse_trusted_keys(await fetch_document(trusted))
    except ValueError as error:
        raise InvalidArgumentError("--key or --jwks", f"{trusted} {error}") from error
    address = card_url(url)
    content = await fetch_document(address, headers=CARD_HEADERS)
    try:
        signature = find_signature(content, keys)
    except InvalidSignatureError as error:
        if json:
            print_json({"url": address, "verified": False, "problem": str(error)})
        print_stderr(f"not verified: {error}")
        return ExitCode.FAILED
    except ValueError as error:
        raise PeerProtocolError(address, str(error)) from error
    if json:
        facts = {
            "key_id": signature.key_id,
            "algorithm": signature.algorithm,
            "form": signature.form,
        }
        print_json({"url": address, "verified": True, **facts})
    else:
        form = FORM_NAMES[signature.form]
        print(f"verified: signed by {signature.key_id} ({signature.algorithm}), {form}")
    return ExitCode.OK


def card_url(url: str) -> str:
    """Return the URL of an agent's card. InvalidArgumentError: it is not an HTTP URL."""
    if not url.startswith(("http://", "https://")):
        raise InvalidArgumentError("URL", f"{url!r} doesn't start with http:// or https://")
    return url if "/.well-known/" in url else url.rstrip("/") + CARD_PATH
