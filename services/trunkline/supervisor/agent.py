"""The supervisor: routes requests, plans steps, calls other agents and combines their answers.

A turn that lost its host resumes from the journal, which holds the plan, the called agents and
their answers. It needs no other checkpoint.
"""

import asyncio
import contextlib
import importlib
import logging
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from trunkline.agents.calls.agent_call import AgentCalls, ChildLimits
from trunkline.agents.followed_skills import set_skills
from trunkline.core import runtime
from trunkline.core.light_imports import light_imports
from trunkline.core.settings import Settings, SupervisorSettings
from trunkline.core.small_files import SmallFiles
from trunkline.errors import PeerError
from trunkline.mesh.client import Directory, run_in_background
from trunkline.supervisor.inheritance import (
    DEFAULT_TAGS,
    OWN_SKILL_ID,
    drop_inherited,
    inherit_skills,
)
from trunkline.supervisor.planning import Planner
from trunkline.supervisor.recovery import answer_waiting_children, recover_state
from trunkline.supervisor.roster import Roster
from trunkline.supervisor.steps import Step, SupervisorState, describe_files
from trunkline.supervisor.turn import SupervisorTurn
from trunkline.tasks.agent import Agent
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import agent_card_pb2, event_pb2, registry_service_pb2

if TYPE_CHECKING:
    from trunkline.supervisor.graph import SupervisorGraph

logger = logging.getLogger(__name__)

# The time for the processes of a mesh to start, before their agents count as absent.
_ABSENCE_S: Final = 30.0
# The time for MCP servers to start and list their tools, if a request may be meant for one of them.
_CARDS_S: Final = 10.0


class Supervisor(Agent):
    """An agent that routes to the agents in the directory at the time of the request."""

    kind = "supervisor"
    # Not repeatable: a repeated turn would call its children a second time.
    resumable = True

    def __init__(
        self,
        directory: Directory,
        *,
        planner: Planner,
        name: str = "supervisor",
        options: SupervisorSettings | None = None,
        limits: ChildLimits | None = None,
        callers: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Create a supervisor. `options` limit the agents that it asks, and set its card.

        `callers` has the agents that may call an agent, by its name; others may not call it.
        """
        options = options or SupervisorSettings()
        self.card = build_supervisor_card(name, options)
        self.lifespan = self._follow_mesh
        self._own_skills = tuple(self.card.skills)
        self.routable = bool(options.description or options.tags)
        self._options = options
        self._barred = {agent for agent, names in (callers or {}).items() if name not in names}
        self._planner = planner
        self._directory = directory
        self._limits = limits or ChildLimits()
        self.on_load: Callable[[Set[str]], None] | None = None
        """Called at a cold start, while LangGraph loads, with the names of the agents that fit the
        request."""
        self._graph: SupervisorGraph | None = None
        # The roster for a revision of the directory. It is rebuilt when agents come or go.
        self._roster = (-1, Roster([]))

    async def prewarm(self) -> None:
        """Load LangGraph and compile the graph, so that the first turn does not wait for it."""
        await self._load_graph()
        await self._planner.load()

    def inherit(self, agents: Mapping[str, registry_service_pb2.AgentRegistration]) -> bool:
        """Update the card by the skills of the agents behind it; return whether it changed.

        `agents` are the available agents by name.
        """
        cards = [agent.card for agent in self._allowed(agents)]
        inherited = inherit_skills(self.card.name, cards, agents.keys())
        return set_skills(self.card, [*self._own_skills, *inherited])

    @contextlib.asynccontextmanager
    async def _follow_mesh(
        self, _: Settings, _files: SmallFiles, on_change: Callable[[], None]
    ) -> AsyncIterator[None]:
        """Keep the card up to date for the length of a block, while agents come and go."""
        # The supervisor joins the mesh at the first call.
        on_change()
        async with run_in_background(self._follow_card(on_change)):
            yield

    async def _follow_card(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change of the card; never returns.

        Named agents that are not there some time after the registry has been read are logged.
        """
        revision = await self._directory.wait_for_change(0)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._report_absent())
            while True:
                agents = self._directory.list_agents()
                # Before it is registered itself, the other agents of its process are missing, too.
                if self.card.name in agents and self.inherit(agents):
                    on_change()
                revision = await self._directory.wait_for_change(revision)

    async def _report_absent(self) -> None:
        """Log the names of configured agents that no host runs."""
        with contextlib.suppress(PeerError):
            await self._directory.wait_until(self._has_named_agents, timeout_s=_ABSENCE_S)
        if absent := sorted(set(self._options.agents) - self._directory.list_agents().keys()):
            problem = "no process runs these agents; start them, or mend the names"
            extra = {"agent": self.card.name, "absent": ", ".join(absent), "problem": problem}
            logger.warning("supervisor.agents_absent", extra=extra)

    def _has_named_agents(self, mesh: Directory) -> bool:
        return mesh.list_agents().keys() >= set(self._options.agents)

    async def run(self, task: TurnRuntime) -> None:
        """Run one turn, or resume one whose host was lost."""
        state: SupervisorState | None = None
        if task.attempt > 1:
            files = describe_files(task.message)
            state = recover_state(task.snapshot, task.latest, task.text, files=files)
            await task.rewind(_retained_lengths(task))
        if task.attempt > 1 or self._directory.revision == 0:
            await self._wait_for_agents(state["steps"] if state else ())
        else:
            await self._wait_for_cards(task)
        roster = self._current_roster().exclude(task.path)
        state = state or _begin_state(task, roster)
        calls = AgentCalls(task, self._directory, self._limits)
        turn = SupervisorTurn(task, self._directory, roster, task.plan(), calls, self._planner)
        if self._graph is None:
            if self.on_load is not None:
                self.on_load(self._predict_agents(task, roster, state))
            await task.working()
        graph = await self._load_graph()
        if self._planner.is_model:
            # Loaded with the graph.
            from trunkline.supervisor.planner_memory import PlannerMemory

            turn = replace(turn, memory=await PlannerMemory.load(task))
        # No stream modes: readers follow the journal.
        async for _ in graph.astream(state, context=turn, stream_mode=[]):
            pass

    async def _wait_for_agents(self, steps: Sequence[Step]) -> None:
        """Wait briefly until a starting mesh has the agents that the turn needs."""
        required = {step.agent for step in steps}

        def is_settled(mesh: Directory) -> bool:
            available = {agent.card.name for agent in self._allowed(mesh.list_agents())}
            return bool(available) and required <= available

        with contextlib.suppress(PeerError):
            await self._directory.wait_until(is_settled, timeout_s=self._limits.patience_s)

    async def _load_graph(self) -> "SupervisorGraph":
        if self._graph is None:
            # Loading takes a second or two, so it runs in a thread.
            self._graph = await runtime.load_in_thread(_compile, remembers=self._planner.is_model)
        return self._graph

    async def _wait_for_cards(self, task: TurnRuntime) -> None:
        """Wait briefly for cards that are about to change, if no agent fits the request so far.

        While a mesh starts, the first agent is about to appear, too.
        """

        def is_settled(mesh: Directory) -> bool:
            agents = self._allowed(mesh.list_agents())
            if not agents:
                return not mesh.is_starting
            return not any(agent.card_pending for agent in agents)

        if is_settled(self._directory):
            return
        roster = self._current_roster().exclude(task.path)
        if self._predict_agents(task, roster, _begin_state(task, roster)):
            return
        await task.working()
        with contextlib.suppress(PeerError):
            await self._directory.wait_until(is_settled, timeout_s=_CARDS_S)

    def _current_roster(self) -> Roster:
        revision, roster = self._roster
        if revision != self._directory.revision:
            revision = self._directory.revision
            cards = [agent.card for agent in self._allowed(self._directory.list_agents())]
            roster = Roster(drop_inherited(cards), default=self._options.default_agent)
            self._roster = (revision, roster)
        return roster

    def _predict_agents(
        self, task: TurnRuntime, roster: Roster, state: SupervisorState
    ) -> Set[str]:
        """Return the agents that the turn is going to ask, as far as this is known already."""
        if state["steps"]:
            return {step.agent for step in state["steps"]}
        return self._planner.predict(task.text, roster)

    def _allowed(
        self, agents: Mapping[str, registry_service_pb2.AgentRegistration]
    ) -> list[registry_service_pb2.AgentRegistration]:
        """Return the agents that it may ask."""
        named = self._options.agents
        return [
            agent
            for name, agent in agents.items()
            if name != self.card.name
            and name not in self._barred
            and (name in named if named else agent.routable)
        ]


def _begin_state(task: TurnRuntime, roster: Roster) -> SupervisorState:
    """Return the state at the start of a turn.

    An answer to waiting children continues the plan of the turn before. Else the steps are those of
    the agents that the request names, if it names any.
    """
    waiting = answer_waiting_children(task.snapshot, task.text)
    return waiting or {"steps": roster.split_at_addresses(task.text)}


def _retained_lengths(task: TurnRuntime) -> dict[str, int]:
    """Return the artifacts of an earlier attempt that stay unchanged: all but the answer."""
    answers = (event_pb2.ARTIFACT_KIND_SYNTHESIS, event_pb2.ARTIFACT_KIND_DRAFT)
    own = (info for info in task.latest.artifacts if not info.HasField("origin"))
    return {info.artifact_id: sys.maxsize for info in own if info.kind not in answers}


def _compile(*, remembers: bool) -> "SupervisorGraph":
    with light_imports():
        from trunkline.supervisor.graph import compile_graph

        if remembers:
            importlib.import_module("trunkline.supervisor.planner_memory")
    return compile_graph()


VERSION = "0.1.0"
_EXAMPLE = "what is 15% of 240, and convert 36 USD to EUR"


def build_supervisor_card(name: str, options: SupervisorSettings) -> agent_card_pb2.AgentCard:
    """Build the card of a supervisor."""
    whom = f"the agents {', '.join(options.agents)}" if options.agents else "the other agents"
    skill = agent_card_pb2.AgentSkill(
        id=OWN_SKILL_ID,
        name="Route and combine",
        description=(
            "Chooses the agents that fit, gives each its part of the request, and puts their "
            "answers together."
        ),
        tags=options.tags or DEFAULT_TAGS,
        examples=options.examples or (() if options.agents else (_EXAMPLE,)),
    )
    default = f"Answers by asking {whom} of the mesh, several at once if need be."
    return agent_card_pb2.AgentCard(
        name=name,
        description=options.description or default,
        version=VERSION,
        default_input_modes=["*/*"],
        default_output_modes=["text/plain", "*/*"],
        skills=[skill],
    )
