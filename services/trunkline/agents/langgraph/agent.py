"""Wraps a LangGraph graph as an agent: `from_langgraph`."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeAlias, Unpack

from langchain_core.runnables.config import merge_configs
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt, GraphRecursionError
from langgraph.pregel import Pregel

from trunkline.agents.authoring import AgentDeclaration, FunctionAgent, agent, check_declared
from trunkline.agents.calls.turn_calls import get_turn_calls
from trunkline.agents.langgraph.callbacks import NodeSpans, build_model_callbacks
from trunkline.agents.langgraph.interrupts import GraphContinuation, ask_for_interrupts
from trunkline.agents.langgraph.messages import build_human_message, get_data, last_answer_text
from trunkline.agents.langgraph.run_reporter import STREAM_MODES, AnswerStream, RunReporter
from trunkline.agents.langgraph.threads import TaskThread, open_task_thread
from trunkline.agents.reasoning.checkpoint_types import find_graph_types
from trunkline.agents.reasoning.conversation_order import wait_for_earlier_turns
from trunkline.errors import ConfigurationError, UnsupportedOperationError
from trunkline.tasks.context import SettingsT, TaskContext
from trunkline.tasks.turn_runtime import TurnRuntime, get_turn_runtime
from trunkline.v1 import part_pb2

logger = logging.getLogger(__name__)

Output: TypeAlias = str | part_pb2.Part | Sequence[str | part_pb2.Part] | None

STEP_LIMIT = 250
"""The default limit of steps that a graph takes in one turn."""
_STATE_LOST = "its state was lost; ask again"


def get_task(config: Mapping[str, object]) -> TaskContext[Any]:
    """Return the task that a node works for, from the `config` that LangGraph passes to it.

    Raises:
        UnsupportedOperationError: the graph does not run as an agent.
    """
    configurable = config.get("configurable")
    task = configurable.get("task") if isinstance(configurable, Mapping) else None
    if not isinstance(task, TaskContext):
        problem = "the graph does not run as an agent; `from_langgraph` makes one of it"
        raise UnsupportedOperationError("the task of a node", problem)
    return task


def from_langgraph(  # noqa: PLR0913  each by name
    graph: Pregel[Any, Any, Any, Any],
    *,
    name: str,
    description: str,
    settings: type[SettingsT] | None = None,
    input: Callable[[TaskContext[SettingsT]], Any] | None = None,  # noqa: A002
    output: Callable[[Any], Output] | None = None,
    resume: Callable[[TaskContext[SettingsT]], Any] | None = None,
    context: Callable[[TaskContext[SettingsT]], Any] | None = None,
    stream: Collection[str] | None = None,
    step_limit: int | None = None,
    memory: bool = True,
    **declared: Unpack[AgentDeclaration],
) -> FunctionAgent:
    """Wrap a compiled LangGraph graph as an agent; `AgentDeclaration` has its other declarations.

    If the graph's state has `messages`, the task's message is added there and the last message is
    the answer. For any other graph, `input` converts the task to the graph's input (it may be
    `async`) and `output` converts the final state to the answer: a text, a part or several.
    `context` builds the `runtime.context` of its nodes.

    `get_task(config)` returns the `TaskContext` in each node. An asynchronous node
    calls other agents and tools by it. If the node runs again, after a takeover, an approval or an
    answer, the same calls get the answers of the agents that it has asked.

    The words of its models and of their subgraphs stream. The answer artifact holds the current
    message while the graph runs, and the answer at the end. `stream` names the nodes whose words
    stream, () for none. Tool calls become tool events and progress. Text that a node gives to
    LangGraph's stream writer becomes progress; a `Part` becomes an artifact, and so does a dict, as
    a data part.

    `interrupt(value)` ends the turn with a question. It returns the next message: its first data
    part, else its text, or the result of `resume`. Calls that LangChain's human-in-the-loop
    middleware interrupts for become approval requests.

    Tasks of one context are a conversation: the thread `NAME/CONTEXT ID` of the graph's own
    checkpointer. Without a checkpointer, the store of the host is used, which survives a restart.
    Tasks run one at a time, each on a copy of the thread that replaces the thread when the task
    completes. With `memory=False` each task begins anew, and tasks of one context run at once. When
    the host dies, the graph resumes from its last checkpoint, and unfinished nodes run again.
    Without a durable checkpoint the task fails, unless it is `repeatable`. A turn takes at most
    `step_limit` steps, else the limit in the graph's config, else STEP_LIMIT. Each step writes a
    checkpoint.

    Raises:
        ConfigurationError: the graph is not compiled, needs `input` and `output`, or the arguments
            are invalid for `@agent`.
    """
    check_declared("from_langgraph", declared, AgentDeclaration)
    if not isinstance(graph, Pregel):
        raise ConfigurationError(f"agent {name!r}", "give it a compiled graph: graph.compile()")
    if "messages" not in graph.channels and (input is None or output is None):
        problem = "its graph's state has no messages: convert input and output by input= "
        raise ConfigurationError(f"agent {name!r}", problem + "and output=")
    runner = _Runner(
        graph=graph,
        input=input,
        output=output or last_answer_text,
        resume=resume or get_data,
        context=context,
        nodes=stream,
        step_limit=step_limit,
        repeatable=declared.get("repeatable", False),
        memory=memory,
    )
    make = agent(name=name, description=description, resumable=True, settings=settings, **declared)
    return replace(make(runner.run), has_conversations=memory)


@dataclass(frozen=True)
class _Runner:
    """Runs turns through a graph."""

    graph: Pregel[Any, Any, Any, Any]
    input: Callable[[TaskContext[Any]], Any] | None
    output: Callable[[Any], Output]
    resume: Callable[[TaskContext[Any]], Any]
    context: Callable[[TaskContext[Any]], Any] | None
    nodes: Collection[str] | None
    step_limit: int | None
    repeatable: bool
    memory: bool

    @cached_property
    def types(self) -> set[type]:
        """The types of the graph's state, which its checkpoints restore."""
        return find_graph_types(self.graph)

    async def run(self, task: TaskContext[Any]) -> None:
        """Run one turn, or resume one whose host was lost."""
        own = self.graph.checkpointer
        saver = own if isinstance(own, BaseCheckpointSaver) else None
        turn = get_turn_runtime(task)
        calls = get_turn_calls(task)
        if calls is not None:
            calls.set_site(lambda: _current_node() or f"turn-{task.turn}", GraphInterrupt)
        await turn.rewind()
        thread = open_task_thread(turn, saver, self.types)
        # Not before: a host that takes over a task without a thread would begin anew.
        turn.on_end(partial(self._delete_thread, turn, thread))
        if self.memory:
            await wait_for_earlier_turns(turn)
        is_completed = await self._run(task, turn, thread)
        if is_completed and self.memory:
            await thread.save_conversation()

    async def _delete_thread(self, turn: TurnRuntime, thread: TaskThread) -> None:
        try:
            await thread.delete()
        except Exception as error:  # noqa: BLE001  any checkpointer; the task has ended well
            extra = {"task_id": turn.id, "problem": type(error).__name__}
            logger.warning("checkpoint.not_deleted", extra=extra)

    async def _run(self, task: TaskContext[Any], turn: TurnRuntime, thread: TaskThread) -> bool:
        """Run the graph; return True if it reached its end, False if the task waits or failed."""
        waiting = GraphContinuation.load(turn)
        if waiting is not None:
            thread.base_checkpoint_id = waiting.base_checkpoint_id
            if not waiting.is_answered(turn):
                waiting.save(turn)
                return False
        latest = await thread.latest_checkpoint()
        if latest is None and (waiting is not None or not self._may_begin(turn, thread)):
            await task.fail(_STATE_LOST)
            return False
        latest_id = None if latest is None else latest.checkpoint["id"]
        graph_input: object = None
        if waiting is not None and latest_id == waiting.checkpoint_id:
            graph_input = waiting.build_command(turn, lambda: self.resume(task))
        elif waiting is None and latest is None:
            if self.memory:
                await thread.fork_conversation()
            graph_input = await self._build_input(task)
        artifact_id = "" if waiting is None else waiting.artifact_id
        return await self._run_graph(task, turn, thread, graph_input, artifact_id)

    def _may_begin(self, turn: TurnRuntime, thread: TaskThread) -> bool:
        """Return True if no part of the graph can have run yet, or if it may run again."""
        return turn.attempt == 1 or thread.is_durable or self.repeatable

    async def _run_graph(
        self,
        task: TaskContext[Any],
        turn: TurnRuntime,
        thread: TaskThread,
        graph_input: object,
        artifact_id: str,
    ) -> bool:
        await task.working()
        graph = self.graph.copy({"checkpointer": thread.saver})
        config = thread.config
        limit = self.step_limit or (graph.config or {}).get("recursion_limit", STEP_LIMIT)
        config["recursion_limit"] = limit
        config["configurable"]["task"] = task
        # The config of a run replaces the callbacks of the graph's own.
        config["callbacks"] = merge_configs(
            {"callbacks": (graph.config or {}).get("callbacks")},
            {"callbacks": [NodeSpans(), *build_model_callbacks(turn.meter)]},
        )["callbacks"]
        answer = AnswerStream(turn, self.nodes, artifact_id=artifact_id)
        events: AsyncGenerator[Any, None] = graph.astream(  # type: ignore[assignment]
            graph_input,
            config,
            context=None if self.context is None else self.context(task),
            stream_mode=list(STREAM_MODES),
            subgraphs=True,
            durability="sync",
        )
        await answer.restart()
        calls = get_turn_calls(task)
        try:
            async with RunReporter(turn, answer) as reporter, aclosing(events) as stream:
                async for path, mode, payload in stream:
                    await reporter.report(path, mode, payload)
        except GraphRecursionError:
            await task.fail(f"agent {task.agent!r} did not finish within {limit} steps")
            return False
        except asyncio.CancelledError:
            raise
        except BaseException:
            # A node that makes several calls at once wraps the interrupt in an exception group.
            if calls is None or not calls.is_pausing:
                raise
        end = await graph.aget_state(thread.config)
        if end.next:
            at = end.config["configurable"]["checkpoint_id"]
            if calls is not None and calls.is_pausing:
                # The host asks for the approvals. The turn of the answer runs the nodes again.
                artifact_id = await answer.clear_for_continuation()
                base = thread.base_checkpoint_id
                GraphContinuation(at, base, artifact_id=artifact_id).save(turn)
                calls.save_input()
            else:
                await answer.close()
                await ask_for_interrupts(turn, end, at=at, base=thread.base_checkpoint_id)
            return False
        text, parts = _split_output(self.output(end.values))
        await answer.finish(text, parts)
        return True

    async def _build_input(self, task: TaskContext[Any]) -> object:
        if self.input is None:
            return {"messages": [await build_human_message(task)]}
        graph_input = self.input(task)
        return await graph_input if inspect.isawaitable(graph_input) else graph_input


def _current_node() -> str:
    """Return the id of the run of the current node, which is the same when the node runs again.

    Returns "" outside of a node.
    """
    try:
        configurable = get_config().get("configurable", {})
    except RuntimeError:
        return ""
    return str(configurable.get("checkpoint_ns", ""))


def _split_output(output: Output) -> tuple[str, list[part_pb2.Part]]:
    """Split the graph's output into its text and the other parts."""
    pieces = [output] if isinstance(output, str | part_pb2.Part) else list(output or ())
    text = "".join(
        piece if isinstance(piece, str) else piece.text
        for piece in pieces
        if isinstance(piece, str) or piece.HasField("text")
    )
    parts = [
        piece for piece in pieces if isinstance(piece, part_pb2.Part) and not piece.HasField("text")
    ]
    return text, parts
