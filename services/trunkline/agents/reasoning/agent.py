"""The reasoning agent: a model that answers with the tools of some MCP servers."""

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trunkline.agents.calls.tool_call import cancel_asking_tasks
from trunkline.agents.calls.tool_questions import build_question_message
from trunkline.agents.calls.tool_source import ToolListing, ToolSource
from trunkline.agents.reasoning.conversation_order import wait_for_earlier_turns
from trunkline.agents.reasoning.models import Model, ModelChoice, open_model
from trunkline.agents.reasoning.toolbox import Toolbox
from trunkline.agents.reasoning.turn_result import ASK_USER, GIVE_UP, ResultStatus, TurnResult
from trunkline.core import runtime
from trunkline.core.light_imports import light_imports
from trunkline.errors import ModelOverflowError
from trunkline.tasks.agent import Agent, Lifespan
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import agent_card_pb2

if TYPE_CHECKING:
    from trunkline.agents.reasoning.graph import ReasoningGraph


async def prewarm() -> None:
    """Load LangGraph in a thread, so that the first turn does not wait for it."""
    # Loading takes seconds and some 80 MB. The event loop stays free meanwhile.
    await runtime.load_in_thread(_load)


def _load() -> None:
    with light_imports():
        importlib.import_module("trunkline.agents.reasoning.graph")


class ReasoningAgent(Agent):
    """Runs each turn through the reasoning loop."""

    # A turn resumes from its last checkpoint, or else from its start.
    resumable = True
    has_conversations = True

    def __init__(  # noqa: PLR0913  collaborators and options, each by name
        self,
        card: agent_card_pb2.AgentCard,
        *,
        servers: Sequence[str],
        tools: ToolSource,
        model: Model | ModelChoice | None = None,
        instructions: str = "",
        repeatable: bool = False,
        lifespan: Lifespan | None = None,
    ) -> None:
        """Create an agent that may call the tools of the MCP servers `servers`.

        Without a `model` the built-in one answers. A ModelChoice also checks its own answers,
        a Model does not. `instructions` are added to the system prompt, after the card's
        description.

        Raises:
            ModelUnavailableError: no model has that name.
        """
        self.card = card
        self.repeatable = repeatable
        self.lifespan = lifespan
        self._servers = tuple(servers)
        self._tools = tools
        self._instructions = instructions
        is_checked: bool | None = False
        if not isinstance(model, Model):
            choice = model or ModelChoice()
            is_checked = choice.check
            model = open_model(choice, examples=self._list_examples())
        self._model = model
        is_checked = not model.is_rules if is_checked is None else is_checked
        self._checker = model if is_checked and not model.is_rules else None
        self._graph: ReasoningGraph | None = None

    def with_model(self, model: Model) -> "ReasoningAgent":
        """Return a copy of the agent with another model, whose answers are not checked."""
        return ReasoningAgent(
            self.card,
            servers=self._servers,
            tools=self._tools,
            model=model,
            instructions=self._instructions,
            repeatable=self.repeatable,
            lifespan=self.lifespan,
        )

    async def run(self, task: TurnRuntime) -> None:
        """Answer the question of this turn, ask the user, or fail with the reason.

        Raises:
            ModelUnavailableError: no model gave a reply.
            PeerUnavailableError: no host on the mesh serves tools.
            StepLimitError: the turn reached its message limit without an answer.
        """
        if not task.text.strip() and not task.snapshot.continuation:
            await task.require_input(f"Ask something{self._render_example()}.")
            return
        if task.attempt == 1:
            # Report `working` before slow loading.
            await task.working()
        listing: ToolListing | None = None
        if self._graph is None:
            # The tool servers start while LangGraph is loaded.
            async with runtime.run_in_background(prewarm()):
                listing = await self._tools.list_tools(self._servers)
        await prewarm()
        from trunkline.agents.reasoning.graph import build_graph, run_turn
        from trunkline.agents.reasoning.turn import ReasoningTurn
        from trunkline.agents.reasoning.turn_checkpoints import open_turn_checkpoints

        if self._graph is None:
            self._graph = build_graph()
        await wait_for_earlier_turns(task)
        async with open_turn_checkpoints(task) as checkpoints:
            if task.attempt > 1:
                await task.rewind((checkpoints.state or {}).get("written"))
            listing = listing or await self._tools.list_tools(self._servers)
            if not listing.tools:
                await task.fail(_explain_no_tools(listing))
                return
            turn = ReasoningTurn(
                task=task,
                model=self._model,
                tools=Toolbox(listing.tools),
                source=self._tools,
                checkpoints=checkpoints,
                checker=self._checker,
            )
            try:
                result = await run_turn(self._graph, turn, self._build_prompt())
            except ModelOverflowError as error:
                await task.require_input(str(error))
                return
            await _end_turn(task, result)

    async def cancel_waiting(self, task: TurnRuntime) -> None:
        """Cancel the tasks of MCP servers that wait for an answer of this task's user."""
        if not any(call.task_handle for call in task.latest.tool_calls):
            return
        await prewarm()
        from trunkline.agents.reasoning.continuation import decode_continuation

        continuation = decode_continuation(task.snapshot)
        if continuation is not None:
            await cancel_asking_tasks(task, self._tools, continuation.questions.values())

    async def load(self) -> None:
        """Load the model's client, so that the first question does not wait for it."""
        await self._model.load()

    def _build_prompt(self) -> str:
        means = "with your tools, briefly" if self._servers else "briefly"
        lacking = "your tools" if self._servers else "you"
        return (
            f"You are the agent {self.card.name}. {self.card.description} Answer {means} and "
            f"exactly. Ask by {ASK_USER} for what only the user can tell, and say by {GIVE_UP} "
            f"that {lacking} can't answer. {self._instructions}"
        ).rstrip()

    def _list_examples(self) -> list[str]:
        return [example for skill in self.card.skills for example in skill.examples]

    def _render_example(self) -> str:
        examples = self._list_examples()
        return f', for example "{examples[0]}"' if examples else ""


async def _end_turn(task: TurnRuntime, result: TurnResult) -> None:
    match result.status:
        case ResultStatus.COMPLETED:
            await task.complete()
        case ResultStatus.INPUT_REQUIRED if result.questions:
            modes = task.accepted_output_modes
            await task.require_input(build_question_message(result.questions, modes))
        case ResultStatus.INPUT_REQUIRED:
            await task.require_input(result.text or None)
        case _:
            await task.fail(result.text)


def _explain_no_tools(listing: ToolListing) -> str:
    problems = [
        f"tool server {name!r} is down: {reason}" for name, reason in listing.unavailable.items()
    ]
    return "; ".join(problems) or "the tool servers of this agent offer no tools"
