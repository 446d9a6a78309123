"""`trunkline card` and `keys`: shows and verifies agent cards, and manages API keys."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from trunkline.cli.exits import ExitCode
from trunkline.cli.terminal import print_json, print_table, say
from trunkline.errors import ConfigurationError, InvalidArgumentError, PeerProtocolError
from trunkline.settings import load_settings
from trunkline.v1 import agent_card_pb2
from trunkline_bridge.documents import fetch_document
from trunkline_bridge.edge.api_keys import (
    ApiKey,
    generate_key,
    hash_key,
    is_account_name,
    is_caller_name,
    load_keys,
    save_keys,
)
from trunkline_bridge.protocol import CARD_PATH
from trunkline_bridge.versions.card_json import parse_card
from trunkline_bridge.versions.v1_0.json_writer import agent_card_json

# Notes that explain the signed forms of a card.
_FORMS = {
    "specified": "in the specification's form",
    "pruned": "in the form of a2a-sdk, which doesn't cover what is empty",
    "as sent": "in the form in which it was sent",
}


async def show_card(url: str, *, as_json: bool) -> ExitCode:
    """Print a card.

    Raises:
        PeerUnavailableError: there is no card, or no server answers.
        PeerProtocolError: the document is not a card.
    """
    address = _card_url(url)
    card = _read(address, await fetch_document(address))
    if as_json:
        print_json(agent_card_json(card))
    else:
        print("\n".join(_describe(card)))
    return ExitCode.OK


async def verify_card(url: str, trusted: str, *, as_json: bool) -> ExitCode:
    """Print whether a card is signed by a trusted key, and in which form.

    Raises:
        InvalidArgumentError: no key is trusted, or a key can't be read.
        PeerUnavailableError: there is no card, or no server answers.
        PeerProtocolError: the document is not a card.
    """
    # Imported here because cryptography is slow to load and only verification needs it.
    from trunkline_bridge.edge.card_signatures import (
        InvalidSignatureError,
        parse_trusted_keys,
        verify_card,
    )

    if not trusted:
        say("error: give a trusted key by --key or --jwks; a card can't vouch for itself")
        return ExitCode.USAGE
    try:
        keys = parse_trusted_keys(await fetch_document(trusted))
    except ValueError as error:
        raise InvalidArgumentError("--key or --jwks", f"{trusted} {error}") from error
    address = _card_url(url)
    content = await fetch_document(address)
    try:
        signature = verify_card(content, keys)
    except InvalidSignatureError as error:
        if as_json:
            print_json({"url": address, "verified": False, "problem": str(error)})
        say(f"not verified: {error}")
        return ExitCode.FAILED
    except ValueError as error:
        raise PeerProtocolError(address, str(error)) from error
    if as_json:
        facts = {
            "key_id": signature.key_id,
            "algorithm": signature.algorithm,
            "form": signature.form,
        }
        print_json({"url": address, "verified": True, **facts})
    else:
        form = _FORMS[signature.form]
        print(f"verified: signed by {signature.key_id} ({signature.algorithm}), {form}")
    return ExitCode.OK


def _card_url(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise InvalidArgumentError("URL", f"{url!r} doesn't start with http:// or https://")
    return url if "/.well-known/" in url else url.rstrip("/") + CARD_PATH


def _read(url: str, content: bytes) -> agent_card_pb2.AgentCard:
    try:
        return parse_card(content)
    except ValueError as error:
        raise PeerProtocolError(url, str(error)) from error


def _describe(card: agent_card_pb2.AgentCard) -> Iterator[str]:
    yield f"name       {card.name} {card.version}".rstrip()
    yield f"says       {' '.join(card.description.split())}"
    for place in card.supported_interfaces:
        tenant = f" as {place.tenant}" if place.tenant else ""
        yield f"answers    {place.protocol_binding} {place.protocol_version} {place.url}{tenant}"
    can = [
        name
        for name, does in (
            ("streams", card.capabilities.streaming),
            ("webhooks", card.capabilities.push_notifications),
            ("extended card", card.capabilities.extended_agent_card),
        )
        if does
    ]
    yield f"can        {', '.join(can) or 'nothing more'}"
    for requirement in card.security_requirements:
        yield f"asks for   {' and '.join(sorted(requirement.schemes)) or 'nothing'}"
    for skill in card.skills:
        yield f"skill      {skill.name}: {' '.join(skill.description.split())}".rstrip(": ")
    yield f"signed     {len(card.signatures)} times" if card.signatures else "signed     no"


def add_key(name: str, file: Path | None, *, account: str, as_json: bool) -> ExitCode:
    """Create a key, store its SHA-256, and print the key.

    Raises:
        ConfigurationError: the file is invalid.
        InvalidArgumentError: a name is taken or invalid.
    """
    path = _path(file)
    keys = _known(path)
    if not is_caller_name(name) or any(key.name == name for key in keys):
        raise InvalidArgumentError("NAME", f"{name!r} is taken or not a valid name; choose another")
    if not is_account_name(account):
        raise InvalidArgumentError(
            "--account", f"{account!r} is not a valid account; choose another"
        )
    key = generate_key()
    save_keys(path, [*keys, ApiKey(name, account, hash_key(key))])
    if as_json:
        print_json({"name": name, "account": account, "key": key, "file": str(path)})
    else:
        print(key)
        say(f"key {name!r} of account {account!r} is in {path}; it is shown only once")
    return ExitCode.OK


def list_keys(file: Path | None, *, as_json: bool) -> ExitCode:
    """Print names and accounts. Raises ConfigurationError if the file is invalid."""
    keys = load_keys(_path(file))
    if as_json:
        print_json([{"name": key.name, "account": key.account} for key in keys])
    else:
        print_table(("KEY", "ACCOUNT"), [(key.name, key.account) for key in keys])
    return ExitCode.OK


def remove_key(name: str, file: Path | None, *, as_json: bool) -> ExitCode:
    """Remove a key.

    Raises:
        ConfigurationError: the file is invalid.
        InvalidArgumentError: there is no such key.
    """
    path = _path(file)
    keys = load_keys(path)
    remaining = [key for key in keys if key.name != name]
    if len(remaining) == len(keys):
        raise InvalidArgumentError("NAME", f"there is no key {name!r}; `trunkline keys list`")
    save_keys(path, remaining)
    if as_json:
        print_json({"name": name, "removed": True})
    else:
        say(f"key {name!r} is gone")
    return ExitCode.OK


def _path(file: Path | None) -> Path:
    path = file or load_settings().api_keys_file
    if path is None:
        problem = "name the file of keys here, or in trunkline.toml as api_keys_file"
        raise ConfigurationError("--file", problem)
    return path


def _known(path: Path) -> Sequence[ApiKey]:
    return load_keys(path) if path.exists() else []
