"""Names the user of an outgoing call by a signed statement."""

from dataclasses import replace

from google.protobuf.message import Message

from trunkline.core.identity import Role, StatementSigner, has_ended
from trunkline.core.users import (
    User,
    current_user,
    named_account,
    named_user,
    starts_work,
)


async def find_statement(signer: StatementSigner | None, request: object) -> str:
    """Return the statement to send with a request; empty if the request needs none.

    The methods of third parties may have any requests, which need none.

    A statement that this process works by is passed on. If it has ended, a process with a `signer`
    makes a new one. A bridge signs for each account that it calls for, and a member only for calls
    that start work: the word of a member is enough for the others.

    Raises:
        ConfigurationError: the key of this process can't sign.
    """
    if not isinstance(request, Message):
        return ""
    user = current_user.get()
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
