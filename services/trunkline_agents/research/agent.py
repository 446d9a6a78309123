"""The research agent: its card, whose tags decide routing without a model, and its MCP server."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trunkline import AgentPlugin, AgentSkill, ReasoningAgentSpec
from trunkline.core.settings import Settings
from trunkline_agents.research.settings import ResearchSettings, build_servers

if TYPE_CHECKING:
    from trunkline_agents.research.documents.opening import DocumentsCheck

_DOCUMENTS = AgentSkill(
    id="documents",
    name="Documents",
    description="Answers from the documents of this mesh, with their pages and sections.",
    tags=[
        *("document", "documents", "docs", "handbook", "manual", "according to"),
    ],
)
_OPEN_QUESTIONS = AgentSkill(
    id="open-questions",
    name="Open questions",
    description="Answers other questions from the documents of this mesh.",
    # Supervisors send questions that fit no other agent to the agent with this tag.
    tags=["open questions"],
    # An introduction lists only examples that work, and these need documents.
    examples=["what do the documents say about leave", "search the docs for release notes"],
)
_WEB = AgentSkill(
    id="web",
    name="Web search",
    description="Searches the web, if a search engine is set.",
    tags=["search the web", "web", "internet", "google"],
)
_ARXIV = AgentSkill(
    id="arxiv",
    name="arXiv",
    description="Finds scientific papers on arXiv.",
    tags=["arxiv", "papers"],
    examples=["find papers about retrieval augmented generation"],
)
_INSTRUCTIONS = (
    "Search before you answer: the documents first, unless the user wants the web or papers. Say "
    "only what the sources say, and put the number of its source behind each statement, like [1]. "
    "Make no list of sources: one is put behind your answer. If something can't be searched, say "
    "so and answer from what you have."
)


class _MoreSkills:
    """The skill of open questions, if the mesh has documents."""

    def __init__(self) -> None:
        self._check: DocumentsCheck | None = None

    def __call__(self, settings: Settings) -> Sequence[AgentSkill]:
        if self._check is None:
            # Loaded with the first host of the agent: commands that list agents need none.
            from trunkline_agents.research.documents.opening import DocumentsCheck

            self._check = DocumentsCheck()
        return [_OPEN_QUESTIONS] if self._check.has_documents(settings) else []


plugin = AgentPlugin(
    agent=ReasoningAgentSpec(
        name="research",
        description="Searches documents, the web and arXiv, and answers with sources.",
        skills=[_DOCUMENTS, _WEB, _ARXIV],
        servers=["research"],
        instructions=_INSTRUCTIONS,
        repeatable=True,
        list_more_skills=_MoreSkills(),
    ),
    servers=build_servers,
    settings_type=ResearchSettings,
)
