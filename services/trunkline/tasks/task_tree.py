"""Limits per tree of calls: depth, circles, children, tasks, tokens, cost and time.

A root gets the limits of its host's settings. A task divides what remains among the children that
it is about to call and passes each its share, with the chain of tasks above it. A child reports
what it used with its end, or with its question, and the rest of its share is free again. So no
process counts for the whole tree, and each host checks the chain and the share by itself.

What this does not count: the tokens of a child whose end its parent never learns, of an attempt
whose host died, of a direct reply, and of a remote agent. A task checks before each call of
a model, so that it may exceed its share by one reply. A child that waits holds no reservation. Its
next turn may use the rest of its own share once more.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from trunkline.core.settings import TreeSettings
from trunkline.errors import InvalidArgumentError, TreeLimitError
from trunkline.v1 import event_pb2, message_service_pb2, snapshot_pb2, tree_pb2

MAX_ANCESTORS: Final = 64
_FIELD: Final = "submission.tree"
_NAME: Final = re.compile(r"[A-Za-z0-9._\-]{1,200}")
_TASK_ID: Final = re.compile(r"[\x21-\x7e]{0,200}")
_MICROS: Final = 1_000_000


def admit_task(
    agent: str, submission: message_service_pb2.Submission, limits: TreeSettings
) -> tree_pb2.TreePosition | None:
    """Return the position of a new task, within the limits of its caller and of this host.

    Returns None for a root, which has the limits of the settings.

    Raises:
        TreeLimitError: the task is over a limit.
        InvalidArgumentError: the chain is malformed, or does not end with the parent.
    """
    has_parent = submission.HasField("parent")
    if not has_parent and not submission.HasField("tree"):
        return None
    ancestors = _read_ancestors(submission)
    chain = [*(ancestor.agent for ancestor in ancestors), agent]
    if chain.count(agent) > limits.circles + 1:
        problem = f"agent {agent!r} may occur {limits.circles + 1} times; raise circles"
        raise TreeLimitError("circles", render_chain(chain), problem)
    budget = _limit_budget(submission.tree.budget, _own_budget(limits, len(ancestors)))
    _check_budget(budget, chain)
    if has_parent and submission.HasField("deadline"):
        deadline = submission.deadline.ToDatetime(tzinfo=UTC)
        if deadline <= datetime.now(UTC):
            problem = "the deadline of the first task has passed; allow more time"
            raise TreeLimitError("time", render_chain(chain), problem)
    return tree_pb2.TreePosition(ancestors=ancestors, budget=budget)


def render_chain(agents: Sequence[str]) -> str:
    """Return the chain as text, from the root down."""
    return " > ".join(agents)


class TaskTree:
    """The part of a tree that a task answers for: itself and the tasks below it."""

    def __init__(
        self,
        start: snapshot_pb2.TaskSnapshot,
        latest: snapshot_pb2.TaskSnapshot,
        limits: TreeSettings,
    ) -> None:
        """`start` is the task at the start of its turn, `latest` at the start of the attempt."""
        self._agent = start.agent
        self._ancestors = [
            *start.tree.ancestors,
            tree_pb2.Ancestor(agent=start.agent, task_id=start.task.id),
        ]
        is_root = not start.HasField("tree")
        self._budget = _own_budget(limits, 0) if is_root else start.tree.budget
        self._max_children = limits.children
        reported = [child.finished.usage for child in start.children if child.HasField("finished")]
        self._tokens = start.usage.tokens - sum(usage.tokens for usage in reported)
        self._cost_micros = start.usage.cost_micros - sum(usage.cost_micros for usage in reported)
        self._reserved: dict[str, tree_pb2.TreeBudget] = {}
        self._reported: dict[str, tree_pb2.TreeUsage] = {}
        for child in latest.children:
            self.apply(event_pb2.Event(child_started=child.started))
            if child.HasField("finished"):
                self.apply(event_pb2.Event(child_finished=child.finished))

    @property
    def usage(self) -> tree_pb2.TreeUsage:
        """The usage of the task and of the tasks below it that have reported theirs."""
        reported = self._reported.values()
        return tree_pb2.TreeUsage(
            tasks=sum(usage.tasks + 1 for usage in reported) + len(self._reserved),
            tokens=self._tokens + sum(usage.tokens for usage in reported),
            cost_micros=self._cost_micros + sum(usage.cost_micros for usage in reported),
        )

    def remaining(self) -> tree_pb2.TreeBudget:
        """Return what is neither used nor reserved for children that run."""
        usage, reserved = self.usage, self._reserved.values()
        remaining = tree_pb2.TreeBudget()
        remaining.CopyFrom(self._budget)
        if self._budget.HasField("levels"):
            remaining.levels = max(0, self._budget.levels - 1)
        if self._budget.HasField("tasks"):
            # `usage` counts a running child as one task.
            further = sum(max(1, budget.tasks) - 1 for budget in reserved)
            remaining.tasks = max(0, self._budget.tasks - 1 - usage.tasks - further)
        if self._budget.HasField("tokens"):
            used = usage.tokens + sum(budget.tokens for budget in reserved)
            remaining.tokens = max(0, self._budget.tokens - used)
        if self._budget.HasField("cost_micros"):
            used = usage.cost_micros + sum(budget.cost_micros for budget in reserved)
            remaining.cost_micros = max(0, self._budget.cost_micros - used)
        return remaining

    def reserve(self, task_id: str, agent: str, *, shares: int = 1) -> tree_pb2.TreeBudget:
        """Reserve the share of a new child, for the event that journals its start.

        What remains is divided by `shares`, the number of children that the task is about to call,
        this task included.

        Raises:
            TreeLimitError: nothing remains.
        """
        chain = [*(ancestor.agent for ancestor in self._ancestors), agent]
        if len(self._reserved.keys() | self._reported.keys()) >= self._max_children:
            problem = f"agent {self._agent!r} has called {self._max_children} others in its task"
            raise TreeLimitError("children", render_chain(chain), f"{problem}; raise children")
        budget = self.remaining()
        _check_budget(budget, chain)
        if budget.HasField("tasks"):
            budget.tasks = max(1, budget.tasks // shares)
        if budget.HasField("tokens"):
            budget.tokens = max(1, budget.tokens // shares)
        if budget.HasField("cost_micros"):
            budget.cost_micros = max(1, budget.cost_micros // shares)
        self._reserved[task_id] = budget
        return budget

    def position_of_child(self, task_id: str) -> tree_pb2.TreePosition:
        """Return the position of a child, with its share."""
        budget = self._reserved.get(task_id) or self.remaining()
        return tree_pb2.TreePosition(ancestors=self._ancestors, budget=budget)

    def apply(self, event: event_pb2.Event) -> None:
        """Apply a recorded event; events that do not concern children are ignored."""
        if event.HasField("child_started"):
            self._reserved.setdefault(event.child_started.task_id, event.child_started.budget)
        elif event.HasField("child_finished"):
            finished = event.child_finished
            self._reserved.pop(finished.task_id, None)
            self._reported[finished.task_id] = finished.usage

    @property
    def limits_models(self) -> bool:
        """True if there is a limit of tokens or cost."""
        return self._budget.HasField("tokens") or self._budget.HasField("cost_micros")

    def check_model_call(self) -> None:
        """Check that a model may be called.

        Raises:
            TreeLimitError: no tokens remain, or no money.
        """
        remaining = self.remaining()
        chain = [ancestor.agent for ancestor in self._ancestors]
        if remaining.HasField("tokens") and not remaining.tokens:
            raise _spent("tokens", chain)
        if remaining.HasField("cost_micros") and not remaining.cost_micros:
            raise _spent("cost_micros", chain)

    def add_model_call(self, *, tokens: int, cost_micros: int) -> None:
        """Count a reply of a model for this task."""
        self._tokens += tokens
        self._cost_micros += cost_micros


_Field: TypeAlias = Literal["levels", "tasks", "tokens", "cost_micros"]
_PROBLEMS: Final[Mapping[_Field, tuple[str, str]]] = {
    "levels": ("depth", "the chain is as long as it may be; raise depth"),
    "tasks": ("tasks", "the request has started as many tasks as it may; raise tasks"),
    "tokens": ("tokens", "the request has used its tokens; raise tokens"),
    "cost_micros": ("cost", "the request has used its money; raise cost"),
}


def _spent(field: _Field, chain: Sequence[str]) -> TreeLimitError:
    limit, problem = _PROBLEMS[field]
    return TreeLimitError(limit, render_chain(chain), problem)


def _check_budget(budget: tree_pb2.TreeBudget, chain: Sequence[str]) -> None:
    for field in _PROBLEMS:
        if budget.HasField(field) and not getattr(budget, field):
            raise _spent(field, chain)


def _own_budget(limits: TreeSettings, level: int) -> tree_pb2.TreeBudget:
    """Return the limits of this host for a task below `level` others."""
    budget = tree_pb2.TreeBudget(levels=max(0, limits.depth - level), tasks=limits.tasks)
    if limits.tokens is not None:
        budget.tokens = limits.tokens
    if limits.cost is not None:
        budget.cost_micros = round(limits.cost * _MICROS)
    return budget


def _limit_budget(budget: tree_pb2.TreeBudget, limit: tree_pb2.TreeBudget) -> tree_pb2.TreeBudget:
    """Return the smaller of two budgets, by field."""
    limited = tree_pb2.TreeBudget()
    for field in _PROBLEMS:
        values = [getattr(each, field) for each in (budget, limit) if each.HasField(field)]
        if values:
            setattr(limited, field, min(values))
    return limited


def _read_ancestors(
    submission: message_service_pb2.Submission,
) -> Sequence[tree_pb2.Ancestor]:
    """Return the chain of a submission. Without it, the path of the parent is the chain."""
    parent = submission.parent
    ancestors = list(submission.tree.ancestors)
    if not ancestors:
        ancestors = [tree_pb2.Ancestor(agent=name) for name in parent.path]
    _check_ancestors(ancestors)
    if parent.path and ancestors[-1].agent != parent.path[-1]:
        raise InvalidArgumentError(_FIELD, "does not end with the parent")
    return ancestors


def _check_ancestors(ancestors: Sequence[tree_pb2.Ancestor]) -> None:
    if len(ancestors) > MAX_ANCESTORS:
        raise InvalidArgumentError(_FIELD, f"has more than {MAX_ANCESTORS} ancestors")
    for ancestor in ancestors:
        if _NAME.fullmatch(ancestor.agent) is None or _TASK_ID.fullmatch(ancestor.task_id) is None:
            raise InvalidArgumentError(_FIELD, "has an ancestor that is no agent with a task")
