"""`trunkline card` and `keys`: shows and verifies agent cards, and manages API keys."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trunkline.audit import Action
from trunkline.cli.audit import USED_SETTINGS, record_act
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import load_command_settings
from trunkline.cli.terminal import print_json, print_stderr, print_table
from trunkline.errors import ConfigurationError, InvalidArgumentError, PeerProtocolError
from trunkline.settings import Settings
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
from trunkline_bridge.edge.permissions import READ, parse_methods
from trunkline_bridge.protocol import CARD_PATH, V1_0, VERSION_HEADER
from trunkline_bridge.versions.card_json import parse_card
from trunkline_bridge.versions.v1_0.json_writer import agent_card_json

# Strict servers send the card of v0.3 to requests without a version. It has no signature.
_VERSION = {VERSION_HEADER: V1_0}
_DURATION = re.compile(r"([0-9]{1,6})([dhm])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}
# The descriptions of `Signature.form`: the bytes of the card that the signature covers.
_FORM_NAMES = {
    "specified": "in the specification's form",
    "pruned": "in the form of a2a-sdk, which doesn't cover what is empty",
    "as sent": "in the form in which it was sent",
}


async def show_card(url: str, *, as_json: bool) -> ExitCode:
    """Print a card.

    Raises:
        InvalidArgumentError: the URL is not an HTTP URL.
        PeerUnavailableError: there is no card, or no server answers.
        PeerProtocolError: the document is not a card.
    """
    address = _card_url(url)
    card = _parse_card(address, await fetch_document(address, headers=_VERSION))
    if as_json:
        print_json(agent_card_json(card))
    else:
        print("\n".join(_describe(card)))
    return ExitCode.OK


async def verify_card(url: str, trusted: str, *, as_json: bool) -> ExitCode:
    """Print whether a card has a valid signature by a trusted key, and over which form of it.

    `trusted` is the file or URL of the trusted keys. Without one, or without a valid signature, a
    line on stderr says so and the exit code is not 0.

    Raises:
        InvalidArgumentError: the trusted keys can't be parsed, or the URL is not an HTTP URL.
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
        print_stderr("error: give a trusted key by --key or --jwks; a card can't vouch for itself")
        return ExitCode.USAGE
    try:
        keys = parse_trusted_keys(await fetch_document(trusted))
    except ValueError as error:
        raise InvalidArgumentError("--key or --jwks", f"{trusted} {error}") from error
    address = _card_url(url)
    content = await fetch_document(address, headers=_VERSION)
    try:
        signature = verify_card(content, keys)
    except InvalidSignatureError as error:
        if as_json:
            print_json({"url": address, "verified": False, "problem": str(error)})
        print_stderr(f"not verified: {error}")
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
        form = _FORM_NAMES[signature.form]
        print(f"verified: signed by {signature.key_id} ({signature.algorithm}), {form}")
    return ExitCode.OK


def _card_url(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise InvalidArgumentError("URL", f"{url!r} doesn't start with http:// or https://")
    return url if "/.well-known/" in url else url.rstrip("/") + CARD_PATH


def _parse_card(url: str, content: bytes) -> agent_card_pb2.AgentCard:
    try:
        return parse_card(content)
    except ValueError as error:
        raise PeerProtocolError(url, str(error)) from error


def _describe(card: agent_card_pb2.AgentCard) -> Iterator[str]:
    yield f"name       {card.name} {card.version}".rstrip()
    yield f"says       {' '.join(card.description.split())}"
    for interface in card.supported_interfaces:
        tenant = f" as {interface.tenant}" if interface.tenant else ""
        protocol = f"{interface.protocol_binding} {interface.protocol_version}"
        yield f"answers    {protocol} {interface.url}{tenant}"
    capabilities = [
        name
        for name, is_supported in (
            ("streams", card.capabilities.streaming),
            ("webhooks", card.capabilities.push_notifications),
            ("extended card", card.capabilities.extended_agent_card),
        )
        if is_supported
    ]
    yield f"can        {', '.join(capabilities) or 'nothing more'}"
    for requirement in card.security_requirements:
        yield f"asks for   {' and '.join(sorted(requirement.schemes)) or 'nothing'}"
    for skill in card.skills:
        yield f"skill      {skill.name}: {' '.join(skill.description.split())}".rstrip(": ")
    yield f"signed     {len(card.signatures)} times" if card.signatures else "signed     no"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyLimits:
    """The limits of a key, as words of the command line."""

    expires: str = ""
    """A time or a duration. Empty: it does not expire."""
    agents: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    read_only: bool = False


_NO_LIMITS = KeyLimits()


def add_key(
    name: str,
    file: Path | None,
    *,
    account: str,
    as_json: bool,
    limits: KeyLimits = _NO_LIMITS,
) -> ExitCode:
    """Create a key, store its SHA-256 in the keys file, and print the key.

    The default of `file` is in the settings.

    Raises:
        ConfigurationError: no file is named, or it is invalid.
        InvalidArgumentError: the name is taken, or a name, method or time is invalid.
    """
    settings = _load_settings()
    path = _keys_file(file, settings)
    keys = load_keys(path) if path.exists() else []
    if not is_caller_name(name) or any(key.name == name for key in keys):
        problem = f"{name!r} is taken or not a valid name; choose another"
        raise InvalidArgumentError("NAME", f"{problem}, or `trunkline keys rotate`")
    if not is_account_name(account):
        raise InvalidArgumentError(
            "--account", f"{account!r} is not a valid account; choose another"
        )
    key = generate_key()
    entry = ApiKey(
        name,
        account,
        hash_key(key),
        _parse_time("--expires", limits.expires) if limits.expires else None,
        _check_agents(limits.agents),
        _check_methods((READ, *limits.methods) if limits.read_only else limits.methods),
    )
    save_keys(path, [*keys, entry])
    record_act(settings, Action.KEY_ADD, key=name, key_id=entry.key_id, account=account)
    if as_json:
        print_json({**_describe_key(entry), "key": key, "file": str(path)})
    else:
        print(key)
        print_stderr(f"key {name!r} of account {account!r} is in {path}; it is shown only once")
    return ExitCode.OK


def rotate_key(
    name: str, file: Path | None, *, until: str, expires: str, as_json: bool
) -> ExitCode:
    """Create another key of a name and print it. The old keys of the name work `until` a time.

    The new key has the account, agents and methods of the newest old one.

    Raises:
        ConfigurationError: no file is named, or it is invalid.
        InvalidArgumentError: there is no such key, or a time is invalid.
    """
    settings = _load_settings()
    path = _keys_file(file, settings)
    keys = load_keys(path)
    now = datetime.now(UTC)
    same = [key for key in keys if key.name == name]
    if not same:
        raise _unknown_key(name)
    end = _parse_time("--until", until)
    secret = generate_key()
    entry = replace(
        same[-1],
        sha256=hash_key(secret),
        expires=_parse_time("--expires", expires) if expires else None,
    )
    # Expired keys are of no more use.
    old = [_expire(key, end) for key in same if not key.is_expired(now)]
    others = [key for key in keys if key.name != name]
    save_keys(path, [*others, *old, entry])
    record_act(settings, Action.KEY_ROTATE, key=name, key_id=entry.key_id, account=entry.account)
    if as_json:
        facts = {**_describe_key(entry), "key": secret, "file": str(path)}
        print_json({**facts, "old_until": end.isoformat()})
    else:
        print(secret)
        print_stderr(f"the old key {name!r} works until {end.isoformat()}; this is shown only once")
    return ExitCode.OK


def list_keys(file: Path | None, *, as_json: bool) -> ExitCode:
    """Print the keys: their names, accounts and limits.

    Raises:
        ConfigurationError: no file is named, or it is invalid.
    """
    keys = load_keys(_keys_file(file, _load_settings()))
    if as_json:
        print_json([_describe_key(key) for key in keys])
    else:
        rows = [
            (
                key.name,
                key.account,
                _format_expiry(key),
                ", ".join(key.agents) or "all",
                ", ".join(key.methods) or "all",
            )
            for key in keys
        ]
        print_table(("KEY", "ACCOUNT", "EXPIRES", "AGENTS", "METHODS"), rows)
    return ExitCode.OK


def remove_key(name: str, file: Path | None, *, as_json: bool) -> ExitCode:
    """Remove all keys of a name from the keys file.

    Raises:
        ConfigurationError: no file is named, or it is invalid.
        InvalidArgumentError: there is no such key.
    """
    settings = _load_settings()
    path = _keys_file(file, settings)
    keys = load_keys(path)
    remaining = [key for key in keys if key.name != name]
    if len(remaining) == len(keys):
        raise _unknown_key(name)
    save_keys(path, remaining)
    record_act(settings, Action.KEY_REMOVE, key=name)
    if as_json:
        print_json({"name": name, "removed": True})
    else:
        print_stderr(f"key {name!r} is gone")
    return ExitCode.OK


def _unknown_key(name: str) -> InvalidArgumentError:
    return InvalidArgumentError("NAME", f"there is no key {name!r}; `trunkline keys list`")


def _expire(key: ApiKey, end: datetime) -> ApiKey:
    return replace(key, expires=min(end, key.expires or end))


def _describe_key(key: ApiKey) -> dict[str, object]:
    return {
        "name": key.name,
        "account": key.account,
        "expires": key.expires.isoformat() if key.expires else None,
        "agents": list(key.agents),
        "methods": list(key.methods),
    }


def _format_expiry(key: ApiKey) -> str:
    if key.expires is None:
        return "never"
    text = key.expires.isoformat(timespec="seconds")
    return f"{text} (expired)" if key.is_expired(datetime.now(UTC)) else text


def _check_agents(agents: tuple[str, ...]) -> tuple[str, ...]:
    for agent in agents:
        if not is_caller_name(agent):
            raise InvalidArgumentError("--agent", f"{agent!r} is not a valid name")
    return agents


def _check_methods(methods: tuple[str, ...]) -> tuple[str, ...]:
    try:
        parse_methods(methods)
    except ValueError as error:
        raise InvalidArgumentError("--method", str(error)) from error
    return methods


def _parse_time(option: str, text: str) -> datetime:
    """Return the time of an ISO 8601 date or time, or of a duration from now such as 90d or 12h."""
    now = datetime.now(UTC).replace(microsecond=0)
    match = _DURATION.fullmatch(text)
    try:
        if match:
            return now + timedelta(**{_UNITS[match[2]]: int(match[1])})
        time = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        problem = f"{text!r} is no time; give a date, a time or a duration like 90d, 12h or 30m"
        raise InvalidArgumentError(option, problem) from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _load_settings() -> Settings:
    return load_command_settings(uses={"api_keys_file", *USED_SETTINGS})


def _keys_file(file: Path | None, settings: Settings) -> Path:
    path = file or settings.api_keys_file
    if path is None:
        problem = "name the file of keys here, or in trunkline.toml as api_keys_file"
        raise ConfigurationError("--file", problem)
    return path
