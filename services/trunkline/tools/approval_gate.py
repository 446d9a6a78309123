"""Refuses calls that need approval unless exactly this call was approved."""

import hashlib

from trunkline.core.identity import Role, StatementVerifier
from trunkline.core.users import named_account
from trunkline.errors import PermissionDeniedError
from trunkline.tasks.approvals import approval_task_id, digest_call
from trunkline.tools.tool_call import ToolCall
from trunkline.tools.used_approvals import UsedApprovals
from trunkline.v1 import tool_service_pb2


class ApprovalGate:
    """Checks the approvals of calls, each of which allows one call.

    The digest of the call must be the digest of the approved call. A process that joined the mesh
    has to prove the approval by a statement of the user. The bridge signs this statement for the
    message with the answer, and the statement names the digests. A process of the mesh's owner
    could sign such a statement, so it needs no proof.
    """

    def __init__(self, statements: StatementVerifier | None, used: UsedApprovals) -> None:
        """Without a verifier, only processes of the mesh's owner may call."""
        self._statements = statements
        self._used = used

    async def check(
        self,
        tool: tool_service_pb2.Tool,
        call: ToolCall,
    ) -> None:
        """Check a call just before it is made. `tool` is the current declaration of its tool.

        A tool that needs no approval always passes.

        Raises:
            PermissionDeniedError: the call has no approval, or the approval is for another call, is
                not proven, or was used before.
            UserNotProvenError: the statement of the user is not valid.
            ConfigurationError, JournalUnavailableError: the use of the approval can't be stored.
        """
        request, caller = call.request, call.caller
        if not tool.needs_approval or request.continuation.task_handle:
            # Following a task calls nothing.
            return
        label = f"{tool.server}/{tool.name}"
        if not request.approval_id:
            raise _refuse(request, label, "it needs a person's approval; request one")
        digest = digest_call(request.approval_id, label, call.arguments)
        is_of_task = approval_task_id(request.approval_id) == request.task_id
        if digest != request.approval_digest or not is_of_task:
            problem = "its approval is for another call; request one for exactly this call"
            raise _refuse(request, label, problem)
        if caller is not None and caller.role is not Role.MEMBER:
            await self._check_proof(request, label, digest)
        if tool.read_only or tool.idempotent:
            return
        use, sealed = self._used.use, digest
        if request.HasField("continuation"):
            # The approved call asked a question, and this call has the answer.
            use, sealed = self._used.use_continuation, _seal(digest, request.continuation)
        if not await use(sealed):
            raise _refuse(request, label, "its approval was used; request another one")

    async def expect_answer(
        self, request: tool_service_pb2.CallToolRequest, question: tool_service_pb2.ToolQuestion
    ) -> None:
        """Allow an approved call to be made once more, with the answer to its question.

        Raises:
            ConfigurationError, JournalUnavailableError: the permission can't be stored.
        """
        if request.approval_id and not question.task_handle:
            sealed = _seal(request.approval_digest, question)
            await self._used.allow_continuation(sealed)

    async def _check_proof(
        self, request: tool_service_pb2.CallToolRequest, label: str, digest: str
    ) -> None:
        user = None
        if self._statements is not None and request.approval_statement:
            user = await self._statements.verify(request.approval_statement)
        if user is None or user.account != named_account(request) or digest not in user.approved:
            problem = "no statement of the user proves the approval; let the user answer again"
            raise _refuse(request, label, problem)


def _seal(
    digest: str, question: tool_service_pb2.ToolQuestion | tool_service_pb2.ToolContinuation
) -> str:
    """Return the digest of an approved call together with the state of its question."""
    state = question.request_state if question.HasField("request_state") else b"none"
    return hashlib.sha256(b"\0".join([digest.encode(), state])).hexdigest()


def _refuse(
    request: tool_service_pb2.CallToolRequest, label: str, problem: str
) -> PermissionDeniedError:
    return PermissionDeniedError(f"agent {request.agent!r}", f"call {label}: {problem}")
