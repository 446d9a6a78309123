"""The results of `trunkline.Client`: answers, and the events of a stream."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from trunkline.a2a_wire.named_artifacts import STEP_KEY
from trunkline.a2a_wire.roles import ROLE_KEY, ArtifactRole, artifact_kind
from trunkline.core.json_values import find_member, has_member, read_text, struct_json, value_json
from trunkline.core.parts import join_texts
from trunkline.core.task_states import TaskOutcome, TaskState, find_outcome
from trunkline.errors import PeerProtocolError
from trunkline.v1 import artifact_pb2, event_pb2, message_pb2, part_pb2, task_pb2

_APPROVALS_KEY: Final = "trunkline/approvals"
# Artifacts that report progress.
_PROGRESS_ROLES: Final = frozenset({ArtifactRole.PLAN, ArtifactRole.NOTICE})
# Of agents whose artifacts have our names and no roles.
_ROLES: Final[Mapping[int, str]] = {
    event_pb2.ARTIFACT_KIND_PLAN: ArtifactRole.PLAN,
    event_pb2.ARTIFACT_KIND_NOTICE: ArtifactRole.NOTICE,
    event_pb2.ARTIFACT_KIND_SYNTHESIS: ArtifactRole.ANSWER,
}


@dataclass(frozen=True, slots=True)
class RequestedApproval:
    """A call that waits for approval. Answer it by `Client.approve` or `Client.reject`."""

    approval_id: str
    tool: str
    arguments: Mapping[str, Any]
    path: Sequence[str]
    """The chain of agents from the asked agent to the agent that makes the call."""


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """The state of a task at the end of a turn, or when it was read; or a direct reply."""

    task: task_pb2.Task
    """The task with the artifacts of this turn, or all of them if it was read. A direct reply is
    the status message of a task without an id."""
    trace_id: str = ""
    """The trace of the request; empty if the agent does not send it."""

    @property
    def state(self) -> TaskState:
        """The state of the task. A direct reply counts as completed."""
        return TaskState.from_proto(self.task.status.state)

    @property
    def outcome(self) -> TaskOutcome | None:
        """`complete`, `partial` or `failed`; None while the task has not ended.

        A task that completed is complete unless its agent says that a part is missing.
        """
        return find_outcome(self.task.status.state, self.task.metadata)

    @property
    def text(self) -> str:
        """The text of the answer; without any, the text of the status."""
        return join_lines(join_texts(each.parts) for each in self._answer()) or self.status_text

    @property
    def status_text(self) -> str:
        """The text of the status, for example a question or a reason; or of the direct reply."""
        return join_texts(self.task.status.message.parts)

    @property
    def artifacts(self) -> Sequence[artifact_pb2.Artifact]:
        """The artifacts of the turn, including artifacts with files and with progress."""
        return self.task.artifacts

    @property
    def parts(self) -> Sequence[part_pb2.Part]:
        """The parts of the answer. If the answer has no parts, the parts of the status."""
        parts = [part for artifact in self._answer() for part in artifact.parts]
        return parts or list(self.task.status.message.parts)

    @property
    def data(self) -> list[Any]:
        """The data parts among `parts`, as JSON values."""
        return [value_json(part.data) for part in self.parts if part.HasField("data")]

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The task's metadata, as JSON values."""
        return struct_json(self.task.metadata)

    @property
    def approvals(self) -> list[RequestedApproval]:
        """The calls that wait for approval."""
        return list(_find_approvals(self.task.status.message))

    @property
    def task_id(self) -> str:
        """The task's id; empty for a direct reply."""
        return self.task.id

    @property
    def context_id(self) -> str:
        """The conversation's id."""
        return self.task.context_id

    def _answer(self) -> Sequence[artifact_pb2.Artifact]:
        return answer_artifacts(self.task.artifacts)


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A piece of the answer's text.

    All chunks of a turn, joined, are the answer's `text`.
    """

    text: str
    artifact_id: str
    replaces: bool = False
    """All text before this chunk is void. This is rare: the agent wrote something else after a
    restart, or its answer is not what it streamed."""
    cursor: str = ""
    """Pass it to `Client.resume` to continue after this event. If empty, use the previous event's
    cursor."""


@dataclass(frozen=True, slots=True)
class StatusChange:
    """A new status of the task."""

    state: TaskState
    text: str
    task_id: str
    context_id: str
    cursor: str = ""
    """As in `TextChunk`."""


@dataclass(frozen=True, slots=True)
class ArtifactChange:
    """A new, replaced or complete artifact, or one with more than text added to it."""

    artifact: artifact_pb2.Artifact
    """All of the artifact so far."""
    is_complete: bool
    """The agent said that this is all of it."""
    cursor: str = ""
    """As in `TextChunk`."""

    @property
    def role(self) -> str:
        """`answer`, `stream`, `plan` or `notice`; empty without roles."""
        return artifact_role(self.artifact)


ClientEvent: TypeAlias = TextChunk | StatusChange | ArtifactChange | ClientAnswer
"""An event of a stream. The last one is the answer."""


def reply_answer(reply: message_pb2.Message, trace_id: str) -> ClientAnswer:
    """Return the answer that is a direct reply."""
    status = task_pb2.TaskStatus(state=task_pb2.TASK_STATE_COMPLETED, message=reply)
    return ClientAnswer(task_pb2.Task(context_id=reply.context_id, status=status), trace_id)


def read_answer(task: task_pb2.Task, *, peer: str, trace_id: str = "") -> ClientAnswer:
    """Return the answer that a task holds. PeerProtocolError: its state is unknown."""
    if task.status.state == task_pb2.TASK_STATE_UNSPECIFIED:
        raise PeerProtocolError(peer, "its task is in a state that A2A doesn't have")
    return ClientAnswer(task, trace_id)


def artifact_role(artifact: artifact_pb2.Artifact) -> str:
    """Return the role of an artifact, declared or by its name; empty without one."""
    role = find_member(artifact.metadata, ROLE_KEY)
    if role is not None:
        return role.string_value
    return _ROLES.get(artifact_kind(artifact), "")


def artifact_step(artifact: artifact_pb2.Artifact) -> int:
    """Return the number of the plan's step that an artifact belongs to; 0 without one."""
    number = read_text(artifact.metadata, STEP_KEY).rpartition("-")[2]
    return int(number) if number.isascii() and number.isdecimal() else 0


def is_progress_role(role: str) -> bool:
    """Return whether artifacts of a role never belong to an answer."""
    return role in _PROGRESS_ROLES


def answer_artifacts(
    artifacts: Iterable[artifact_pb2.Artifact],
) -> Sequence[artifact_pb2.Artifact]:
    """Return the answer among the artifacts of a task.

    It is the last artifact with the role of an answer, because each turn has one answer. If the
    agent assigns no roles, the answer is all artifacts except artifacts that report progress.
    """
    roles = [(each, artifact_role(each)) for each in artifacts]
    declared = [each for each, role in roles if role == ArtifactRole.ANSWER]
    candidates = [each for each, role in roles if not is_progress_role(role)]
    return declared[-1:] or candidates


def join_lines(texts: Iterable[str]) -> str:
    """Join texts that are not empty, each on a separate line."""
    joined = ""
    for text in texts:
        joined += line_break(joined, text) + text
    return joined


def line_break(before: str, after: str) -> str:
    """Return the separator of two texts."""
    return "\n" if before and after and not before.endswith("\n") else ""


def _find_approvals(message: message_pb2.Message) -> Iterable[RequestedApproval]:
    for part in message.parts:
        if not part.HasField("data") or not has_member(part.metadata, _APPROVALS_KEY):
            continue
        content = value_json(part.data)
        requests = content.get("approvals") if isinstance(content, dict) else None
        for request in requests if isinstance(requests, list) else ():
            match request:
                case {"approvalId": str(approval_id), "tool": str(tool), "arguments": dict(values)}:
                    path = request.get("path")
                    agents = tuple(map(str, path)) if isinstance(path, list) else ()
                    yield RequestedApproval(approval_id, tool, values, agents)
