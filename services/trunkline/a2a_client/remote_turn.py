"""Runs one turn of a task on a remote agent, across broken streams and takeovers."""

import base64
import hashlib
import uuid
from datetime import UTC, datetime
from typing import Final

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.a2a_client import A2AClient
from trunkline.a2a_client.remote_files import FileReceiver, inline_files
from trunkline.a2a_client.task_mirror import TaskMirror
from trunkline.a2a_client.transport import CallOptions, RemoteEvent
from trunkline.a2a_client.turn_follower import TurnFollower
from trunkline.errors import PeerRefusedError, PeerTimeoutError
from trunkline.task_states import TERMINAL
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import message_pb2

# Refusals by a peer that doesn't know the context id.
_UNKNOWN_CONTEXT_REASONS: Final = frozenset(
    {"INVALID_PARAMS", "TASK_NOT_FOUND", "CONTEXT_NOT_FOUND"}
)
# The namespace of context ids derived from ours.
_CONTEXT_NAMESPACE: Final = uuid.UUID("6f1d7c52-9f0e-5a64-8d55-0f3f0f8d8f2b")


class RemoteTurn(TurnFollower):
    """Runs one turn of a local task on a remote agent, whose events become the local task's."""

    def __init__(self, task: TurnRuntime, peer: A2AClient) -> None:
        self._task = task
        self._mirror = TaskMirror(
            task,
            peer=peer.name,
            content_bytes=peer.settings.content_bytes,
            receive=FileReceiver(task, peer).receive,
        )
        super().__init__(
            peer,
            self._mirror,
            message_id=f"{task.id}.{task.turn}",
            may_have_arrived=task.attempt > 1,
        )
        self._sends_context_id = True

    async def run(self) -> None:
        """Run the turn to its end.

        Raises:
            TrunklineError: The remote agent can't be reached, refused the message, broke the
                protocol or sent nothing for `idle_s`. Its task is canceled with the local task.
        """
        limit_s = self._peer.settings.idle_s
        try:
            await self._follow()
        except TimeoutError:
            problem = f"nothing came for {limit_s:g} s, so its task is canceled"
            raise PeerTimeoutError(self._peer.name, problem) from None

    @property
    def _is_first_turn(self) -> bool:
        return self._task.turn == 1

    async def _apply_event(self, event: RemoteEvent, *, is_first: bool) -> None:
        await self._mirror.apply(event.response, is_first=is_first)

    async def _on_refusal(self, error: PeerRefusedError) -> None:
        if self._mirror.task_id:
            await self._apply_end(error)
        elif self._sends_context_id and error.refusal in _UNKNOWN_CONTEXT_REASONS:
            # Some agents accept only context ids that they generated.
            self._sends_context_id = False
            await self._send()
        else:
            raise error

    async def _apply_end(self, error: PeerRefusedError) -> None:
        """Apply the end of a remote task that ended before it got our message."""
        task = await self._peer.get_task(self._mirror.task_id)
        if task.status.state not in TERMINAL:
            raise error
        await self._mirror.apply_snapshot(task)

    async def _build_request(self) -> a2a_pb2.SendMessageRequest:
        """Build the remote request: the turn's message with remote ids."""
        original = self._task.message
        request = a2a_pb2.SendMessageRequest()
        message = request.message
        message.role = message_pb2.ROLE_USER
        message.message_id = self._message_id
        message.parts.extend(await inline_files(self._task, original.parts, peer=self._peer.name))
        message.extensions.extend(original.extensions)
        if original.HasField("metadata"):
            message.metadata.CopyFrom(original.metadata)
        message.task_id = self._mirror.task_id
        message.context_id = self._mirror.context_id
        if self._sends_context_id:
            message.context_id = message.context_id or self._context_id()
        request.configuration.accepted_output_modes.extend(
            self._task.snapshot.accepted_output_modes
        )
        return request

    def _context_id(self) -> str:
        """Return a remote context id, derived from the account, the agent and our context id.

        The tasks of one conversation share it. It depends on the account, because the remote agent
        sees all our accounts as one caller.
        """
        parts = (self._task.account, self._task.agent, self._task.context_id)
        # A backslash and an n: another separator would change the ids of conversations.
        digest = hashlib.sha256("\\n".join(parts).encode()).hexdigest()
        return str(uuid.uuid5(_CONTEXT_NAMESPACE, digest))

    def _tree(self) -> str:
        """Return the value of Trunkline-Tree.

        It is empty for an agent that is not served by Trunkline, so that the names of our agents
        are not sent to agents that can't use them. The ids of our tasks stay here.
        """
        if not self._peer.card.supports_resume:
            return ""
        position = self._task.tree.position_of_child("")
        for ancestor in position.ancestors:
            ancestor.ClearField("task_id")
        return base64.urlsafe_b64encode(position.SerializeToString()).decode()

    def _send_options(self) -> CallOptions:
        return self._call_options()._replace(tree=self._tree())

    def _call_options(self) -> CallOptions:
        deadline, left_s = self._task.deadline, None
        if deadline is not None:
            left_s = max(0.001, (deadline - datetime.now(UTC)).total_seconds())
        return CallOptions(resumes=self._peer.card.supports_resume, timeout_s=left_s)
