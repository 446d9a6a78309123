"""Lets calls that need approval through only with the approval of exactly that call."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from trunkline.errors import PermissionDeniedError
from trunkline.identity import Identity, Role, StatementVerifier
from trunkline.tasks.approvals import approval_task_id, digest_call
from trunkline.users import named_account
from trunkline.v1 import tool_service_pb2

# An approval is valid for a day, as the statement of the user is.
_MAX_USED: Final = 100_000


class ApprovalGate:
    """Checks the approvals of calls, each of which allows one call.

    The digest of the approved call must be that of the call itself. The process of an agent that
    joined has to prove that a user approved it: by a statement of the user, which the bridge made
    for the message of the answer and which names the digests. A process of the mesh's owner could
    sign such a statement itself, so its word is enough.
    """

    def __init__(self, statements: StatementVerifier | None) -> None:
        """Without a verifier, only processes of the mesh's owner may call."""
        self._statements = statements
        self._used: OrderedDict[str, None] = OrderedDict()

    async def check(
        self,
        tool: tool_service_pb2.Tool,
        request: tool_service_pb2.CallToolRequest,
        arguments: Mapping[str, Any],
        peer: Identity | None,
    ) -> None:
        """Check a call just before it is made. A tool that needs no approval always passes.

        Raises:
            PermissionDeniedError: the call has no approval, or the approval is for another call, is
                not proven, or was used before.
            UserNotProvenError: the statement of the user is not valid.
        """
        if not tool.needs_approval:
            return
        label = f"{tool.server}/{tool.name}"
        if not request.approval_id:
            raise _refuse(request, label, "it needs a person's approval; request one")
        digest = digest_call(request.approval_id, label, arguments)
        is_of_task = approval_task_id(request.approval_id) == request.task_id
        if digest != request.approval_digest or not is_of_task:
            problem = "its approval is for another call; request one for exactly this call"
            raise _refuse(request, label, problem)
        if peer is not None and peer.role is not Role.MEMBER:
            await self._check_proof(request, label, digest)
        if digest in self._used and not (tool.read_only or tool.idempotent):
            raise _refuse(request, label, "its approval was used; request another one")
        self._used[digest] = None
        while len(self._used) > _MAX_USED:
            self._used.popitem(last=False)

    async def _check_proof(
        self, request: tool_service_pb2.CallToolRequest, label: str, digest: str
    ) -> None:
        user = None
        if self._statements is not None and request.approval_statement:
            user = await self._statements.verify(request.approval_statement)
        if user is None or user.account != named_account(request) or digest not in user.approved:
            problem = "no statement of the user proves the approval; let the user answer again"
            raise _refuse(request, label, problem)


def _refuse(
    request: tool_service_pb2.CallToolRequest, label: str, problem: str
) -> PermissionDeniedError:
    return PermissionDeniedError(f"agent {request.agent!r}", f"call {label}: {problem}")
