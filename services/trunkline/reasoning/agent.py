"""An agent whose turns are reasoned: a model, and the tools of some MCP servers."""

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trunkline import runtime
from trunkline.errors import ModelOverflowError
from trunkline.reasoning.conversation_lock import lock_conversation
from trunkline.reasoning.models import Model, ModelChoice, open_model
from trunkline.reasoning.tool_source import ToolListing, ToolSource
from trunkline.reasoning.toolbox import Toolbox
from trunkline.reasoning.turn_result import ASK_USER, GIVE_UP, ResultStatus
from trunkline.tasks.context import TaskContext
from trunkline.v1 import agent_card_pb2

if TYPE_CHECKING:
    from types import ModuleType

    from trunkline.reasoning.checkpoint_files import TurnCheckpoints
    from trunkline.reasoning.graph import ReasoningGraph


async def prewarm() -> None:
    """Load LangGraph now, beside other work, so that the first turn need not wait for it."""
    await _load()


class ReasoningAgent:
    """Runs each turn through the reasoning loop. Implements trunkline.tasks.Agent."""

    direct_replies = False
    # From the last checkpoint of the turn, or from its start if there is none.
    resumable = True
    timeout_s: float | None = None
    routable = True
    extended_skills = ()
    concurrency = 0

    def __init__(
        self,
        card: agent_card_pb2.AgentCard,
        *,
        servers: Sequence[str],
        tools: ToolSource,
        model: Model | ModelChoice | None = None,
        instructions: str = "",
        repeatable: bool = False,
    ) -> None:
        """`servers` are the MCP servers whose tools the agent may call; no model: the built-in one.

        One that is chosen by its name judges its answers, too; one that is given doesn't. What
        `instructions` say is told to models beside what the card says.

        Raises:
            ModelUnavailableError: there is no model of such a name.
        """
        self.card = card
        self.repeatable = repeatable
        self._servers = tuple(servers)
        self._tools = tools
        self._instructions = instructions
        is_checked: bool | None = False
        if not isinstance(model, Model):
            choice = model or ModelChoice()
            is_checked = choice.check
            model = open_model(choice, examples=self._examples())
        self._model = model
        is_checked = not model.is_rules if is_checked is None else is_checked
        self._checker = model if is_checked and not model.is_rules else None
        self._graph: ReasoningGraph | None = None

    def with_model(self, model: Model) -> "ReasoningAgent":
        """Return the agent, reasoning with another model, which judges no answers."""
        return ReasoningAgent(
            self.card,
            servers=self._servers,
            tools=self._tools,
            model=model,
            instructions=self._instructions,
            repeatable=self.repeatable,
        )

    async def run(self, task: TaskContext) -> None:
        """Answer this turn's question, ask back, or fail with what is wrong.

        Raises:
            ModelUnavailableError: the model can't be had.
            PeerUnavailableError: nobody serves tools.
            StepLimitError: there was no answer within the limit.
        """
        if not task.text.strip() and not task.snapshot.continuation:
            await task.require_input(f"Ask something{self._for_example()}.")
            return
        if task.attempt == 1:
            # What a model or a tool needs to be loaded, nobody need wait for in silence.
            await task.working()
        graphs = await _load()
        from trunkline.reasoning.checkpoint_files import open_turn_checkpoints

        async with lock_conversation(task):
            with open_turn_checkpoints(task) as thread:
                if task.attempt > 1:
                    found = (thread.state or {}) if thread else {}
                    await task.rewind(found.get("written"))
                await self._run(task, graphs, thread)

    async def _run(
        self, task: TaskContext, graphs: "ModuleType", thread: "TurnCheckpoints | None"
    ) -> None:
        listing = await self._tools.list_tools(self._servers)
        if not listing.tools:
            await task.fail(_without_tools(listing))
            return
        turn = graphs.Turn(
            task=task,
            model=self._model,
            tools=Toolbox(listing.tools),
            source=self._tools,
            checker=self._checker,
            thread=thread,
        )
        try:
            verdict = await graphs.answer(self._open_graph(graphs), turn, self._prompt())
        except ModelOverflowError as error:
            await task.require_input(str(error))
            return
        match verdict.status:
            case ResultStatus.COMPLETED:
                await task.complete()
            case ResultStatus.INPUT_REQUIRED:
                await task.require_input(verdict.text or None)
            case _:
                await task.fail(verdict.text)

    async def load(self) -> None:
        """Load what its model needs, so that the first question need not wait for it."""
        await self._model.load()

    def _open_graph(self, graphs: "ModuleType") -> "ReasoningGraph":
        if self._graph is None:
            self._graph = graphs.build_graph()
        return self._graph

    def _prompt(self) -> str:
        return (
            f"You are the agent {self.card.name}. {self.card.description} Answer with your tools, "
            f"briefly and exactly. Ask by {ASK_USER} for what only the user can tell, and say by "
            f"{GIVE_UP} that your tools can't answer. {self._instructions}"
        ).rstrip()

    def _examples(self) -> list[str]:
        return [example for skill in self.card.skills for example in skill.examples]

    def _for_example(self) -> str:
        examples = self._examples()
        return f', for example "{examples[0]}"' if examples else ""


async def _load() -> "ModuleType":
    # Takes seconds and some 80 MB: in a thread, so that everything else goes on.
    return await runtime.load_in_thread(importlib.import_module, "trunkline.reasoning.graph")


def _without_tools(listing: ToolListing) -> str:
    problems = [f"tool server {name!r} is down: {why}" for name, why in listing.unavailable.items()]
    return "; ".join(problems) or "the tool servers of this agent offer no tools"
