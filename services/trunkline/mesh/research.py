"""Tells the research server what this mesh searches: its documents, and the engines it has set."""

import os
from dataclasses import replace

from trunkline.mesh.shipped import RESEARCH
from trunkline.settings import Settings
from trunkline.tools.config import McpConfig
from trunkline_agents.research.documents.embeddings import EmbeddingModel
from trunkline_agents.research.documents.store import FILE_NAME
from trunkline_agents.research.settings import COMMAND, EMBEDDINGS_KEY, TAVILY_KEY


def with_research(config: McpConfig, settings: Settings) -> McpConfig:
    """Return the servers, with what is set given to ours; what its entry says itself, wins.

    Another server that an operator has put into its place is left alone.
    """
    server = config.servers.get(RESEARCH)
    if server is None or server.command != COMMAND:
        return config
    research = settings.research
    model = EmbeddingModel.from_settings(settings)
    options = {
        "--documents": str((settings.data_dir / FILE_NAME).absolute()),
        "--searxng-url": research.searxng_url,
        "--tavily-url": research.tavily_url,
        "--tavily-key-env": research.tavily_key_env,
        "--arxiv-url": research.arxiv_url,
        "--embeddings": model.name if model else "",
        "--embeddings-url": model.base_url if model else "",
    }
    keys = {
        TAVILY_KEY: os.environ.get(research.tavily_key_env, ""),
        EMBEDDINGS_KEY: model.api_key if model else "",
    }
    told = server.model_copy(
        update={
            "args": [*(f"{name}={value}" for name, value in options.items()), *server.args],
            "env": {name: key for name, key in keys.items() if key} | server.env,
        }
    )
    return replace(config, servers={**config.servers, RESEARCH: told})
