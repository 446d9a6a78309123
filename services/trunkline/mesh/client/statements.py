"""Names the user of an outgoing call by a signed statement."""

from dataclasses import replace
from typing import TypeAlias

import grpc
from google.protobuf.message import Message

from trunkline.core.identity import Role, has_ended
from trunkline.core.users import (
    USER_METADATA,
    User,
    current_user,
    named_account,
    named_user,
    starts_work,
)
from trunkline.mesh.client.channels import MeshChannel

StatementMetadata: TypeAlias = tuple[tuple[str, str], ...]


async def find_statement(channel: grpc.aio.Channel, request: Message) -> str:
    """Return the statement to send with a request; empty: none is needed.

    A statement that this process works by is passed on; if it has ended, a process that may sign
    makes a new one. A bridge signs for each account that it
    calls for, and a member only for calls that start work: its own word is enough for the others.

    Raises:
        ConfigurationError: the key of this process can't sign.
    """
    user = current_user.get()
    signer = channel.signer if isinstance(channel, MeshChannel) else None
    if user is not None and user.statement:
        if signer is None or not has_ended(user.statement):
            return user.statement
        # The work outlasts the statement, or its host did not run for a day.
        user = replace(user, statement="", approved=frozenset())
    account = named_account(request)
    if signer is None or account is None:
        return ""
    if user is None or user.account != account:
        if signer.role is Role.MEMBER and not starts_work(request):
            return ""
        user = User(account, named_user(request))
    return await signer.sign(user)


def statement_metadata(statement: str) -> StatementMetadata:
    """Return the metadata of a plain gRPC call with a statement."""
    return ((USER_METADATA, statement),) if statement else ()
