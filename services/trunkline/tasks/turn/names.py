"""Gives out the ids of what a turn writes: the same ones when the turn runs again."""

from collections.abc import Iterable

from trunkline.v1 import snapshot_pb2


class Names:
    """Counts artifacts and plans from where they stood at the start of a turn, calls from now."""

    def __init__(self, latest: snapshot_pb2.TaskSnapshot, turn_start: int) -> None:
        """`latest` is the task as it stands, `turn_start` the sequence that opened the turn."""
        self._artifacts = self._plans = 0
        # The task's own artifacts of earlier turns, and whether each is closed.
        self._closed: dict[str, bool] = {}
        if latest.artifacts or latest.plans:
            self._go_on_from(latest, turn_start)
        self._revisions = {plan.plan_id: plan.revision for plan in latest.plans}
        self._calls = len(latest.tool_calls)

    def _go_on_from(self, latest: snapshot_pb2.TaskSnapshot, turn_start: int) -> None:
        self._closed = {
            info.artifact_id: info.closed
            for info in latest.artifacts
            if info.first_sequence <= turn_start and not info.HasField("origin")
        }
        plans = (plan.plan_id for plan in latest.plans if plan.first_sequence <= turn_start)
        self._artifacts = _highest("artifact-", self._closed)
        self._plans = _highest("plan-", plans)

    def artifact(self, name: str = "") -> str:
        """Return the id of the next artifact; its own if it has one, which counts, too."""
        self._artifacts += 1
        return name or f"artifact-{self._artifacts}"

    def is_closed_before(self, artifact_id: str) -> bool | None:
        """Whether an artifact of an earlier turn is closed; None: there is none of this id."""
        return self._closed.get(artifact_id)

    def plan(self) -> tuple[str, int]:
        """Return the id of the next plan, and the revision that it begins with."""
        self._plans += 1
        plan_id = f"plan-{self._plans}"
        return plan_id, self._revisions.get(plan_id, 0) + 1

    def call(self) -> str:
        """Return the id of the next tool call."""
        self._calls += 1
        return f"call-{self._calls}"


def _highest(prefix: str, ids: Iterable[str]) -> int:
    """The highest number that was given out: a writer that never wrote left a gap."""
    numbers = (one.removeprefix(prefix) for one in ids if one.startswith(prefix))
    # Longer ones are somebody's own.
    return max((int(one) for one in numbers if one.isdecimal() and len(one) < 10), default=0)
