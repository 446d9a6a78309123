"""`card get`: prints an agent's card, the extended one too, and checks it."""

import json
from typing import Annotated

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.operations import GET_EXTENDED_CARD
from trunkline.cli.a2a_cli.card import (
    ResolvedCard,
    describe_signature,
    find_schema_problems,
    parse_card,
)
from trunkline.cli.a2a_cli.failures import CommandError, LocalCode
from trunkline.cli.a2a_cli.output import ResultPrinter
from trunkline.cli.a2a_cli.security_schemes import check_declared
from trunkline.cli.a2a_cli.session import CommandContext, open_session, select_interface
from trunkline.cli.options import flag


async def get(
    context: CommandContext,
    *,
    extended: Annotated[bool, flag("The card for authenticated callers.", "--extended")] = False,
    validate: Annotated[bool, flag("Check it against A2A's schema.", "--validate")] = False,
) -> None:
    """Show an agent's card.

    Prints the card, the interface that would be used, and the result of its signature.

    Raises:
        CommandError: there is no card, or with `validate` it breaks the schema.
    """
    async with context.anonymous_http() as http:
        resolver = context.card_resolver(http, is_validated=True)
        if extended:
            card = await _read_extended(context)
        else:
            card = await resolver.resolve(context.reference)
        notes = {"Signature": await describe_signature(card, resolver)}
    try:
        interface = select_interface(card, context.options)
        notes["Selected"] = f"{interface.binding} {interface.version} {interface.url}"
    except CommandError as error:
        notes["Selected"] = f"none ({error.message})"
    if validate:
        problems = find_schema_problems(card)
        if problems:
            raise CommandError(
                LocalCode.CARD_INVALID, f"the card breaks the schema: {'; '.join(problems)}"
            )
        notes["Schema"] = "valid"
    ResultPrinter(context).card(card, notes)


async def _read_extended(context: CommandContext) -> ResolvedCard:
    """Return the extended card, fetched with a credential that the public card declares."""
    async with open_session(context) as session:
        session.require(
            "extendedAgentCard", "ExtendedAgentCardNotConfiguredError", "an extended card"
        )
        check_declared(session.card.schemes, session.credentials, context.reference)
        value = await session.call(GET_EXTENDED_CARD, a2a_pb2.GetExtendedAgentCardRequest())
        return parse_card(context.reference, session.card.url, json.dumps(value).encode())
