"""Skills of a card that change while its agent is served.

They are made of the tools of MCP servers, as the servers declare them, or follow the data of the
mesh.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from trunkline.agents.calls.schema_arguments import outline_arguments
from trunkline.agents.calls.tool_source import ToolListing, ToolSource
from trunkline.core.backoff import Backoff
from trunkline.core.json_values import struct_json
from trunkline.core.printable import to_plain_line
from trunkline.core.private_files import PRIVATE_FOLDER, read_private_file, write_private_file
from trunkline.core.settings import Settings
from trunkline.core.small_files import SmallFiles
from trunkline.errors import ConfigurationError, TrunklineError
from trunkline.mesh.client import run_in_background
from trunkline.observe import telemetry
from trunkline.tasks.agent import Agent, Lifespan
from trunkline.tools.config import AgentSpec
from trunkline.v1 import agent_card_pb2, tool_service_pb2

# Each agent on the mesh gets each card.
_SKILLS_LIMIT: Final = 50
_DESCRIPTION_CHARS: Final = 300
_ARGUMENTS_CHARS: Final = 200
# Without a model, supervisors find a skill with this tag by its name: see trunkline.rules.routing.
_TAGS: Final = ("by description",)
_POLL_S: Final = 2.0
_RETRY_S: Final = 0.1
_RETRY_MAX_S: Final = 5.0


def set_skills(card: agent_card_pb2.AgentCard, skills: Sequence[agent_card_pb2.AgentSkill]) -> bool:
    """Set the skills of a card; return whether the card changed."""
    if list(card.skills) == list(skills):
        return False
    del card.skills[:]
    card.skills.extend(skills)
    return True


def follow_skills(
    card: agent_card_pb2.AgentCard,
    list_more_skills: Callable[[Settings], Sequence[agent_card_pb2.AgentSkill]],
) -> Lifespan:
    """Return a lifespan in which the skills of the function follow the own skills of the card.

    The function is called every two seconds in a thread. The card is registered again when its
    skills change.
    """
    skills = list(card.skills)

    @asynccontextmanager
    async def lifespan(
        settings: Settings, _files: SmallFiles, on_change: Callable[[], None]
    ) -> AsyncIterator[None]:
        async def list_skills() -> Sequence[agent_card_pb2.AgentSkill]:
            return [*skills, *await asyncio.to_thread(list_more_skills, settings)]

        async def poll() -> None:
            while True:
                await asyncio.sleep(_POLL_S)
                if set_skills(card, await list_skills()):
                    on_change()

        set_skills(card, await list_skills())
        # The agent joins the mesh at the first call.
        on_change()
        async with run_in_background(poll()):
            yield

    return lifespan


def follow_tools(agent: Agent, spec: AgentSpec, source: ToolSource) -> Lifespan:
    """Return a lifespan in which a skill for each tool follows the own skills of the card.

    The card is registered again when the tools change, and keeps the last skills while a server is
    down or stopped. Tools are remembered in the data directory: a server that starts at its first
    use is started to learn its tools only if nothing is remembered for its entry.
    """
    own_skills = tuple(agent.card.skills)

    @asynccontextmanager
    async def lifespan(
        settings: Settings, _files: SmallFiles, on_change: Callable[[], None]
    ) -> AsyncIterator[None]:
        memory = _SkillMemory(settings.data_dir, agent.card.name, spec.fingerprint)
        followed = _FollowedTools(agent, own_skills, memory, on_change)
        # The agent joins the mesh at the first call.
        on_change()
        async with run_in_background(followed.follow(source, spec.servers)):
            yield

    return lifespan


class _FollowedTools:
    """The skills of a card that follow the tools of some servers."""

    def __init__(
        self,
        agent: Agent,
        own_skills: Sequence[agent_card_pb2.AgentSkill],
        memory: "_SkillMemory",
        on_change: Callable[[], None],
    ) -> None:
        """Give the card the remembered skills."""
        self._agent = agent
        self._own_skills = own_skills
        self._memory = memory
        self._on_change = on_change
        remembered = memory.read()
        self._is_known = remembered is not None
        agent.card_pending = not self._is_known
        set_skills(agent.card, [*own_skills, *(remembered or ())])

    async def follow(self, source: ToolSource, servers: Sequence[str]) -> None:
        """Keep the card up to date; never returns."""
        backoff = Backoff(first_s=_RETRY_S, limit_s=_RETRY_MAX_S)
        while True:
            # Errors: the host of the tools is starting, or it is down.
            with suppress(TrunklineError):
                if not self._is_known:
                    # It is part of no request: each start of a mesh would leave a trace.
                    with telemetry.suppress_spans():
                        listing = await source.list_tools(servers)
                    await self._learn(listing)
                async with aclosing(source.watch_tools(servers)) as listings:
                    async for listing in listings:
                        backoff.reset()
                        await self._learn(listing)
            await backoff.pause()

    async def _learn(self, listing: ToolListing) -> None:
        """Update the card. It keeps its skills if a server is down."""
        was_pending, self._agent.card_pending = self._agent.card_pending, False
        skills = build_tool_skills(listing.tools)
        is_changed = not listing.unavailable and set_skills(
            self._agent.card, [*self._own_skills, *skills]
        )
        if is_changed or not (self._is_known or listing.unavailable):
            self._is_known = True
            await asyncio.to_thread(self._memory.write, skills)
        if is_changed or was_pending:
            self._on_change()


def build_tool_skills(
    tools: Sequence[tool_service_pb2.Tool],
) -> list[agent_card_pb2.AgentSkill]:
    """Return a skill for each tool, with its name, title, description and arguments."""
    return [
        agent_card_pb2.AgentSkill(
            # A colon would separate the agent from which a supervisor has inherited the skill.
            id=to_plain_line(tool.name.replace(":", "-"), _ARGUMENTS_CHARS),
            name=to_plain_line(tool.title or tool.name, _ARGUMENTS_CHARS),
            description=_describe(tool),
            tags=_TAGS,
        )
        for tool in tools[:_SKILLS_LIMIT]
    ]


def _describe(tool: tool_service_pb2.Tool) -> str:
    arguments = outline_arguments(struct_json(tool.input_schema))
    texts = (
        to_plain_line(tool.description, _DESCRIPTION_CHARS),
        to_plain_line(f"Arguments: {arguments}.", _ARGUMENTS_CHARS) if arguments else "",
    )
    return " ".join(filter(None, texts))


class _SkillMemory:
    """The skills of an agent's tools as they were last known, in a file of the data directory."""

    def __init__(self, data_dir: Path, agent: str, fingerprint: str) -> None:
        """`fingerprint` identifies the servers. Skills of other servers are not returned."""
        self._path = data_dir / PRIVATE_FOLDER / "tool-skills" / agent
        self._fingerprint = fingerprint

    def read(self) -> list[agent_card_pb2.AgentSkill] | None:
        """Return the skills, or None if they are not known."""
        try:
            stored = agent_card_pb2.AgentCard.FromString(read_private_file(self._path))
        except (OSError, ConfigurationError, DecodeError):
            return None
        return list(stored.skills) if stored.version == self._fingerprint else None

    def write(self, skills: Iterable[agent_card_pb2.AgentSkill]) -> None:
        """Store the skills. If that fails, they are learned again after a restart."""
        stored = agent_card_pb2.AgentCard(version=self._fingerprint, skills=skills)
        try:
            write_private_file(self._path, stored.SerializeToString())
        except (OSError, ConfigurationError):
            return
