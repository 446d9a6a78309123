"""The commands for API keys and agent cards."""

from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import JsonOption, argument, flag, option
from trunkline.cli.terminal import print_json, print_list, print_stderr
from trunkline.errors import InvalidArgumentError, PeerProtocolError

keys = typer.Typer(help="Manage the API keys of callers.", rich_markup_mode=None)
card = typer.Typer(
    help="Verify agent cards. `trunkline a2a card get` shows one.", rich_markup_mode=None
)

KeyFile = Annotated[Path | None, option("FILE", "The keys. [api_keys_file]", "--file")]
Name = Annotated[str, argument("NAME", "Of the key.")]
ExpiresOption = Annotated[str, option("TIME", "Reject it from then on: 90d, a time. [never]")]
CardUrl = Annotated[str, argument("URL", "The URL of an agent or of its card.")]


@command(keys, "add")
def add_key(
    name: Name,
    file: KeyFile = None,
    *,
    account: Annotated[str, option("NAME", "The account of its tasks. [NAME]")] = "",
    expires: ExpiresOption = "",
    agent: Annotated[
        list[str] | None, option("NAME", "Only for this agent; may be repeated. * is a wildcard.")
    ] = None,
    method: Annotated[
        list[str] | None, option("NAME", "Only for this method of A2A 1.0; may be repeated.")
    ] = None,
    read_only: Annotated[
        bool, flag("Only for methods that change nothing.", "--read-only")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Create a key and print it. It is shown only once: the file has its SHA-256."""
    from trunkline.cli import identity
    from trunkline.cli.audit import record_act
    from trunkline.observe.audit import Action
    from trunkline_bridge.callers.api_keys import (
        ApiKey,
        generate_key,
        hash_key,
        is_account_name,
        is_caller_name,
        load_keys,
        save_keys,
    )
    from trunkline_bridge.callers.permissions import READ

    account = account or name
    settings = identity.load_key_settings()
    path = identity.keys_file(file, settings)
    keys = load_keys(path) if path.exists() else []
    if not is_caller_name(name) or any(key.name == name for key in keys):
        problem = f"{name!r} is taken or not a valid name; choose another"
        raise InvalidArgumentError("NAME", f"{problem}, or `trunkline keys rotate`")
    if not is_account_name(account):
        raise InvalidArgumentError(
            "--account", f"{account!r} is not a valid account; choose another"
        )
    secret = generate_key()
    entry = ApiKey(
        name,
        account,
        hash_key(secret),
        identity.parse_expiry("--expires", expires) if expires else None,
        identity.check_agents(tuple(agent or ())),
        identity.check_methods((READ, *(method or ())) if read_only else tuple(method or ())),
    )
    save_keys(path, [*keys, entry])
    record_act(settings, Action.KEY_ADD, key=name, key_id=entry.key_id, account=account)
    if json:
        print_json({**identity.key_fields(entry), "key": secret, "file": str(path)})
    else:
        print(secret)
        print_stderr(f"key {name!r} of account {account!r} is in {path}; it is shown only once")


@command(keys, "rotate")
def rotate_key(
    name: Name,
    file: KeyFile = None,
    *,
    until: Annotated[
        str, option("TIME", "The old key works until then: 12h, 7d or a time.", show_default=True)
    ] = "1d",
    expires: ExpiresOption = "",
    json: JsonOption = False,
) -> None:
    """Create another key of a name and print it. The old one works for a while."""
    from dataclasses import replace
    from datetime import UTC, datetime

    from trunkline.cli import identity
    from trunkline.cli.audit import record_act
    from trunkline.observe.audit import Action
    from trunkline_bridge.callers.api_keys import generate_key, hash_key, load_keys, save_keys

    settings = identity.load_key_settings()
    path = identity.keys_file(file, settings)
    keys = load_keys(path)
    now = datetime.now(UTC)
    same = [key for key in keys if key.name == name]
    if not same:
        raise identity.unknown_key(name)
    end = identity.parse_expiry("--until", until)
    secret = generate_key()
    entry = replace(
        same[-1],
        sha256=hash_key(secret),
        expires=identity.parse_expiry("--expires", expires) if expires else None,
    )
    # Expired keys are of no more use.
    old = [identity.expire_key(key, end) for key in same if not key.is_expired(now)]
    others = [key for key in keys if key.name != name]
    save_keys(path, [*others, *old, entry])
    record_act(settings, Action.KEY_ROTATE, key=name, key_id=entry.key_id, account=entry.account)
    if json:
        facts = {**identity.key_fields(entry), "key": secret, "file": str(path)}
        print_json({**facts, "old_until": end.isoformat()})
    else:
        print(secret)
        print_stderr(f"the old key {name!r} works until {end.isoformat()}; this is shown only once")


@command(keys, "list")
def list_keys(file: KeyFile = None, *, json: JsonOption = False) -> None:
    """List the keys: names, accounts and limits."""
    from trunkline.cli import identity
    from trunkline_bridge.callers.api_keys import load_keys

    entries = load_keys(identity.keys_file(file, identity.load_key_settings()))
    print_list(entries, identity.KEY_COLUMNS, identity.key_fields, as_json=json)


@command(keys, "remove")
def remove_key(name: Name, file: KeyFile = None, *, json: JsonOption = False) -> None:
    """Remove the keys of a name. A running mesh rejects them within a second."""
    from trunkline.cli import identity
    from trunkline.cli.audit import record_act
    from trunkline.observe.audit import Action
    from trunkline_bridge.callers.api_keys import load_keys, save_keys

    settings = identity.load_key_settings()
    path = identity.keys_file(file, settings)
    keys = load_keys(path)
    remaining = [key for key in keys if key.name != name]
    if len(remaining) == len(keys):
        raise identity.unknown_key(name)
    save_keys(path, remaining)
    record_act(settings, Action.KEY_REMOVE, key=name)
    if json:
        print_json({"name": name, "removed": True})
    else:
        print_stderr(f"key {name!r} is gone")


@card.callback()
def _group() -> None:
    """Verify agent cards."""


@command(card, "verify")
async def verify_card(
    url: CardUrl,
    *,
    key: Annotated[Path | None, option("FILE", "Trust this public key (PEM).")] = None,
    jwks: Annotated[str, option("URL|FILE", "Trust these keys.")] = "",
    json: JsonOption = False,
) -> ExitCode:
    """Verify a card's signature by a key that you trust. Exits 0 only if one is valid."""
    from trunkline.a2a_wire.card_signatures import (
        InvalidSignatureError,
        parse_trusted_keys,
    )
    from trunkline.a2a_wire.card_signatures import (
        verify_card as find_signature,
    )
    from trunkline.a2a_wire.documents import fetch_document
    from trunkline.cli.identity import CARD_HEADERS, FORM_NAMES, card_url

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
