"""The research agent's card. What it can do is its MCP server's affair; tags decide routing."""

from trunkline.reasoning import ModelChoice, ReasoningAgent, ToolSource
from trunkline.v1 import agent_card_pb2

_DOCUMENTS = agent_card_pb2.AgentSkill(
    id="documents",
    name="Documents",
    description="Answers from the documents of this mesh, with their pages and sections.",
    tags=[
        *("document", "documents", "docs", "handbook", "manual", "knowledge base", "notes"),
        *("pdf", "pdfs", "according to", "cite", "sources", "citations"),
    ],
    examples=["what do the documents say about leave", "search the docs for release notes"],
)
_WEB = agent_card_pb2.AgentSkill(
    id="web",
    name="Web search",
    description="Searches the web, if a search engine is set.",
    tags=["web", "internet", "online", "look up", "news", "search for", "research", "google"],
    examples=["search the web for gRPC keepalive"],
)
_ARXIV = agent_card_pb2.AgentSkill(
    id="arxiv",
    name="arXiv",
    description="Finds scientific papers on arXiv.",
    tags=["arxiv", "paper", "papers", "preprint", "preprints", "literature", "publications"],
    examples=["find papers about retrieval augmented generation"],
)
_INSTRUCTIONS = (
    "Search before you answer: the documents first, unless the web or papers are asked for. Say "
    "only what the sources say, and put the number of its source behind each statement, like [1]. "
    "Make no list of sources: one is put behind your answer. If something can't be searched, say "
    "so and answer from what you have."
)


def agent(tools: ToolSource, model: ModelChoice | None = None) -> ReasoningAgent:
    """Return the agent, which calls the tools of the MCP server `research`."""
    card = agent_card_pb2.AgentCard(
        name="research",
        description="Searches documents, the web and arXiv, and answers with sources.",
        version="1",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[_DOCUMENTS, _WEB, _ARXIV],
    )
    return ReasoningAgent(
        card,
        servers=["research"],
        tools=tools,
        model=model,
        instructions=_INSTRUCTIONS,
        repeatable=True,
    )
