"""The research agent: its card, whose tags decide routing, and its MCP server."""

from trunkline import AgentPlugin, AgentSkill, ReasoningAgentSpec
from trunkline_agents.research.settings import ResearchSettings, build_servers

_DOCUMENTS = AgentSkill(
    id="documents",
    name="Documents",
    description="Answers from the documents of this mesh, with their pages and sections.",
    tags=[
        *("document", "documents", "docs", "handbook", "manual", "knowledge base", "notes"),
        *("pdf", "pdfs", "according to", "cite", "sources", "citations"),
    ],
    examples=["what do the documents say about leave", "search the docs for release notes"],
)
_WEB = AgentSkill(
    id="web",
    name="Web search",
    description="Searches the web, if a search engine is set.",
    tags=["web", "internet", "online", "look up", "news", "search for", "research", "google"],
    examples=["search the web for gRPC keepalive"],
)
_ARXIV = AgentSkill(
    id="arxiv",
    name="arXiv",
    description="Finds scientific papers on arXiv.",
    tags=["arxiv", "paper", "papers", "preprint", "preprints", "literature", "publications"],
    examples=["find papers about retrieval augmented generation"],
)
_INSTRUCTIONS = (
    "Search before you answer: the documents first, unless the user wants the web or papers. Say "
    "only what the sources say, and put the number of its source behind each statement, like [1]. "
    "Make no list of sources: one is put behind your answer. If something can't be searched, say "
    "so and answer from what you have."
)


plugin = AgentPlugin(
    agent=ReasoningAgentSpec(
        name="research",
        description="Searches documents, the web and arXiv, and answers with sources.",
        skills=[_DOCUMENTS, _WEB, _ARXIV],
        servers=["research"],
        instructions=_INSTRUCTIONS,
        repeatable=True,
    ),
    servers=build_servers,
    settings_type=ResearchSettings,
)
