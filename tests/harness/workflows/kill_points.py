"""Points of a node's run at which a host kills itself, so that tests kill at exactly that point.

The file `kill` in the folder WORKFLOW_FOLDER names a node and a point: `journey/ask worked`. A host
that arrives there removes the file, and dies by SIGKILL before its next instruction.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from trunkline.agents.langgraph.interrupts import GraphContinuation
from trunkline.agents.langgraph.run_reporter import AnswerStream
from trunkline.agents.reasoning.checkpoint_saver import StoreSaver
from trunkline.workflows.nodes import WorkflowRun

POINTS: Final = ("began", "worked", "journaled", "committed")
"""The begin is in the journal; the work is done; the end is in the journal; the checkpoint is."""
TURN_POINTS: Final = ("asking", "answered", "deleted")
"""The requests for approval are in the journal, and the task does not wait yet; the answer is, and
the task has not ended; the checkpoints have been deleted. These are points of a workflow: its node
is empty."""

# The workflow whose answer was written last.
_answered: list[str] = []
# The workflow that writes each answer.
_agents: "WeakKeyDictionary[AnswerStream, str]" = WeakKeyDictionary()
# The plan that ran each node last. The nodes of the two workflows of one name don't run at once.
_plans: dict[str, str] = {}


def kill_file(folder: Path) -> Path:
    """Return the file that names where a host dies."""
    return folder / "kill"


def install_kill_points() -> None:
    """Look at the file at each point of each node, from now on."""
    _wrap(WorkflowRun, "start_step", _after(lambda run, node: (run.plan_id, node, "began")))
    _wrap(WorkflowRun, "finish_step", _after(_find_journaled))
    _wrap(StoreSaver, "aput_writes", _after(_find_committed))

    _wrap(WorkflowRun, "run_node", _after(lambda run, node, *_: (run.plan_id, node.id, "worked")))
    _wrap(AnswerStream, "finish", _after(_find_answered))
    _wrap(StoreSaver, "adelete_thread", _after(lambda *_args: (_answered[-1], "", "deleted")))
    save = GraphContinuation.save

    def die_or_save(self: GraphContinuation, task: Any) -> None:
        if self.approvals:
            _arrive(task.agent, "", "asking")
        save(self, task)

    setattr(GraphContinuation, "save", die_or_save)  # noqa: B010  a method of a class
    begin = AnswerStream.__init__

    def remember_agent(self: AnswerStream, task: Any, *args: Any, **options: Any) -> None:
        begin(self, task, *args, **options)
        _agents[self] = task.agent

    setattr(AnswerStream, "__init__", remember_agent)  # noqa: B010  a method of a class


def _find_answered(stream: AnswerStream, *_args: Any) -> tuple[str, str, str]:
    agent = _agents[stream]
    _answered.append(agent)
    return (agent, "", "answered")


def _find_journaled(
    run: WorkflowRun, node: str, *_args: Any, **_options: Any
) -> tuple[str, str, str]:
    _plans[node] = run.plan_id
    return (run.plan_id, node, "journaled")


def _find_committed(_saver: Any, _config: Any, writes: Any, *_args: Any) -> tuple[str, str, str]:
    visited: list[str] = dict(writes).get("visited", [])
    # The node of the graph that stands for a branch has all nodes of it.
    if len(visited) != 1:
        return _NOWHERE
    return (_plans[visited[0]], visited[0], "committed")


_NOWHERE: Final = ("", "", "")


def _after(place: Callable[..., tuple[str, str, str]]) -> Callable[[Any], Any]:
    def wrap(method: Any) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            result = await method(*args, **options)
            _arrive(*place(*args, **options))
            return result

        return call

    return wrap


def _wrap(owner: type, name: str, wrap: Callable[[Any], Any]) -> None:
    setattr(owner, name, wrap(getattr(owner, name)))


def _arrive(plan_id: str, node: str, point: str) -> None:
    file = kill_file(Path(os.environ["WORKFLOW_FOLDER"]))
    try:
        wanted = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    workflow, _, rest = wanted.partition("/")
    if rest == f"{node} {point}" and plan_id.partition("@")[0] == workflow:
        file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
