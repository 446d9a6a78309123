"""The commands for API keys and agent cards."""

from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.exits import finish, run
from trunkline.cli.options import JsonOption

keys = typer.Typer(help="Manage the API keys of callers.", rich_markup_mode=None)
card = typer.Typer(help="Show and verify agent cards.", rich_markup_mode=None)

KeyFile = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="The keys. [api_keys_file]")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the key.", show_default=False)]
ExpiresOption = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="Reject it from then on: 90d, a time. [never]",
        show_default=False,
    ),
]
CardUrl = Annotated[
    str,
    typer.Argument(metavar="URL", help="The URL of an agent or of its card.", show_default=False),
]


@keys.command("add")
def add_key(
    name: Name,
    file: KeyFile = None,
    *,
    account: Annotated[
        str,
        typer.Option(metavar="NAME", help="The account of its tasks. [NAME]", show_default=False),
    ] = "",
    expires: ExpiresOption = "",
    agent: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only for this agent; may be repeated. * is a wildcard."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only for this method of A2A 1.0; may be repeated."),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Only for methods that change nothing.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Create a key and print it. It is shown only once: the file has its SHA-256."""
    from trunkline.cli import identity as command

    limits = command.KeyLimits(
        expires=expires,
        agents=tuple(agent or ()),
        methods=tuple(method or ()),
        read_only=read_only,
    )
    finish(
        lambda: command.add_key(name, file, account=account or name, as_json=json, limits=limits)
    )


@keys.command("rotate")
def rotate_key(
    name: Name,
    file: KeyFile = None,
    *,
    until: Annotated[
        str, typer.Option(metavar="TIME", help="The old key works until then: 12h, 7d or a time.")
    ] = "1d",
    expires: ExpiresOption = "",
    json: JsonOption = False,
) -> None:
    """Create another key of a name and print it. The old one works for a while."""
    from trunkline.cli import identity as command

    finish(lambda: command.rotate_key(name, file, until=until, expires=expires, as_json=json))


@keys.command("list")
def list_keys(file: KeyFile = None, *, json: JsonOption = False) -> None:
    """List the keys: names, accounts and limits."""
    from trunkline.cli import identity as command

    finish(lambda: command.list_keys(file, as_json=json))


@keys.command("remove")
def remove_key(name: Name, file: KeyFile = None, *, json: JsonOption = False) -> None:
    """Remove the keys of a name. A running mesh rejects them within a second."""
    from trunkline.cli import identity as command

    finish(lambda: command.remove_key(name, file, as_json=json))


@card.command("show")
def show_card(url: CardUrl, *, json: JsonOption = False) -> None:
    """Show an agent's card."""
    from trunkline.cli import identity as command

    run(command.show_card(url, as_json=json))


@card.command("verify")
def verify_card(
    url: CardUrl,
    *,
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Trust this public key (PEM).", show_default=False),
    ] = None,
    jwks: Annotated[
        str, typer.Option(metavar="URL|FILE", help="Trust these keys.", show_default=False)
    ] = "",
    json: JsonOption = False,
) -> None:
    """Verify a card's signature by a key that you trust. Exits 0 only if one is valid."""
    from trunkline.cli import identity as command

    run(command.verify_card(url, str(key) if key else jwks, as_json=json))
