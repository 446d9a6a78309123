"""The research agent: its card, whose tags decide routing without a model, and its MCP server."""

from collections.abc import Sequence

from trunkline import AgentPlugin, AgentSkill, ReasoningAgentSpec
from trunkline.core.settings import Settings
from trunkline_agents.research.settings import (
    ResearchSettings,
    build_servers,
    documents_path,
)

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


def _list_more_skills(settings: Settings) -> Sequence[AgentSkill]:
    """Return the skill of open questions if the mesh has documents."""
    return [_OPEN_QUESTIONS] if documents_path(settings.data_dir).is_file() else []


plugin = AgentPlugin(
    agent=ReasoningAgentSpec(
        name="research",
        description="Searches documents, the web and arXiv, and answers with sources.",
        skills=[_DOCUMENTS, _WEB, _ARXIV],
        servers=["research"],
        instructions=_INSTRUCTIONS,
        repeatable=True,
        list_more_skills=_list_more_skills,
    ),
    servers=build_servers,
    settings_type=ResearchSettings,
)
