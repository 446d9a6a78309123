"""The roles of artifacts and the outcome of a task, as their metadata says them to clients."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from trunkline.json_values import find_member, update_struct
from trunkline.task_states import OUTCOME_KEY, find_outcome
from trunkline.v1 import artifact_pb2, event_pb2, task_pb2

ROLE_KEY: Final = "trunkline/role"
"""The metadata key of an artifact's role."""


class ArtifactRole(StrEnum):
    """The purpose of an artifact."""

    PLAN = "plan"
    NOTICE = "notice"
    """News of a tool call, or that the answer is complete."""
    STREAM = "stream"
    """Shown while the agent works. Text that belongs to the answer is in the answer as well."""
    ANSWER = "answer"
    """The answer of a turn. A turn has at most one."""


_ROLES: Final[Mapping[int, ArtifactRole]] = {
    event_pb2.ARTIFACT_KIND_DRAFT: ArtifactRole.STREAM,
    event_pb2.ARTIFACT_KIND_PROGRESS: ArtifactRole.STREAM,
    event_pb2.ARTIFACT_KIND_PLAN: ArtifactRole.PLAN,
    event_pb2.ARTIFACT_KIND_NOTICE: ArtifactRole.NOTICE,
}


class RoleAssigner:
    """Assigns roles to the artifacts of one task, in the order in which they began.

    The first artifact of a turn that may be its answer is the answer. The choice depends only on
    earlier artifacts, so streams and stored tasks agree.
    """

    def __init__(self) -> None:
        self._answered_turns: set[int] = set()

    def assign(
        self,
        kind: event_pb2.ArtifactKind.ValueType,
        origin: event_pb2.Origin | None,
        turn: int,
    ) -> ArtifactRole:
        """Return the role of the next artifact. `origin` is set if a child wrote it."""
        role = _ROLES.get(kind)
        if role is not None:
            return role
        if origin is not None or turn in self._answered_turns:
            return ArtifactRole.STREAM
        self._answered_turns.add(turn)
        return ArtifactRole.ANSWER


def set_role(artifact: artifact_pb2.Artifact, role: ArtifactRole) -> artifact_pb2.Artifact:
    """Write a role into an artifact's metadata; return the artifact."""
    update_struct(artifact.metadata, {ROLE_KEY: role.value})
    return artifact


def set_task_outcome(task: task_pb2.Task) -> None:
    """Write the outcome of a task that has ended into its metadata."""
    outcome = find_outcome(task.status.state, task.metadata)
    if outcome is not None:
        update_struct(task.metadata, {OUTCOME_KEY: outcome.value})


# Other agents of this wire have the same names and no roles. A whole answer replaces its stream.
_KIND_NAMES: Final[Mapping[str, event_pb2.ArtifactKind.ValueType]] = {
    "execution_plan_streaming": event_pb2.ARTIFACT_KIND_PLAN,
    "execution_plan_update": event_pb2.ARTIFACT_KIND_PLAN,
    "tool_notification_start": event_pb2.ARTIFACT_KIND_NOTICE,
    "tool_notification_complete": event_pb2.ARTIFACT_KIND_NOTICE,
    "current_result": event_pb2.ARTIFACT_KIND_NOTICE,
    "partial_result": event_pb2.ARTIFACT_KIND_SYNTHESIS,
}
_ROLE_KINDS: Final[Mapping[str, event_pb2.ArtifactKind.ValueType]] = {
    ArtifactRole.PLAN: event_pb2.ARTIFACT_KIND_PLAN,
    ArtifactRole.NOTICE: event_pb2.ARTIFACT_KIND_NOTICE,
    ArtifactRole.STREAM: event_pb2.ARTIFACT_KIND_PROGRESS,
}


def artifact_kind(artifact: artifact_pb2.Artifact) -> event_pb2.ArtifactKind.ValueType:
    """Return the kind of a remote agent's artifact, by the role in its metadata or by its name."""
    role = find_member(artifact.metadata, ROLE_KEY)
    if role is not None:
        return _ROLE_KINDS.get(role.string_value, event_pb2.ARTIFACT_KIND_UNSPECIFIED)
    return _KIND_NAMES.get(artifact.name, event_pb2.ARTIFACT_KIND_UNSPECIFIED)
