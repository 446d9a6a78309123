"""Settings of the research agent, and the command line of its MCP server."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from trunkline.core.encryption import DerivedKey, open_if_encrypting
from trunkline.core.private_files import PRIVATE_FOLDER
from trunkline.core.settings import (
    Settings,
    check_optional_postgres_url,
    check_optional_url,
    load_plugin_settings,
)

if TYPE_CHECKING:
    from trunkline import McpServer, PluginContext

COMMAND = "trunkline-mcp-research"
DOCUMENTS_FILE = "documents.db"
"""The documents of a mesh, in the private folder of its data directory."""
TAVILY_VARIABLE = "TAVILY_API_KEY"
"""Holds the server's Tavily key."""
EMBEDDINGS_VARIABLE = "TRUNKLINE_EMBEDDINGS_KEY"
"""Holds the server's key for the embedding model."""
DOCUMENTS_STORE_VARIABLE = "TRUNKLINE_DOCUMENTS_STORE"
"""Holds the URL of the server's database, if the documents are in one. It has a password."""
DOCUMENTS_KEY_VARIABLE = "TRUNKLINE_DOCUMENTS_KEY"
"""Holds the server's key for encrypted documents."""


_DatabaseUrl = Annotated[str, AfterValidator(check_optional_postgres_url)]
_OptionalUrl = Annotated[str, AfterValidator(check_optional_url)]


class ResearchSettings(BaseModel):
    """The table `[research]`, or variables such as TRUNKLINE_RESEARCH_SEARXNG_URL."""

    model_config = ConfigDict(frozen=True)

    tavily_key_env: str = TAVILY_VARIABLE
    """The variable that holds a Tavily key. With a key, Tavily searches the web."""
    searxng_url: _OptionalUrl = ""
    """The address of a SearXNG that searches the web in place of Tavily. It must allow JSON."""
    tavily_url: _OptionalUrl = "https://api.tavily.com"
    """The address of Tavily."""
    arxiv_url: _OptionalUrl = "https://export.arxiv.org"
    """The address of arXiv or of a mirror. If it is empty, papers are not searched."""
    documents_store: _DatabaseUrl = ""
    """The URL by which the server reads documents in a database. `store` is no default, because the
    tasks of all accounts are at that URL. A role that may only read the documents is enough."""


def read_documents_url(settings: Settings) -> str:
    """Return the URL by which agents read documents in a database, or "" if they may not.

    Raises:
        ConfigurationError: the table `[research]` is invalid.
    """
    return load_plugin_settings("research", ResearchSettings, settings).documents_store


def documents_path(data_dir: Path) -> Path:
    """Return the file of a mesh's documents, which may not exist yet."""
    # Earlier versions stored it in the data directory itself, where other users may have access.
    earlier = data_dir / DOCUMENTS_FILE
    return earlier if earlier.exists() else data_dir / PRIVATE_FOLDER / DOCUMENTS_FILE


def open_documents_key(settings: Settings) -> DerivedKey | None:
    """Return the key for the documents of a mesh, or None if they are not encrypted.

    Raises:
        ConfigurationError: the encryption key is missing or wrong.
    """
    keyring = open_if_encrypting(settings)
    return None if keyring is None else keyring.derive_first("documents")


def build_servers(context: "PluginContext[ResearchSettings]") -> Mapping[str, "McpServer"]:
    """Return the server `research`, which gets the mesh's documents and search engines.

    Raises:
        ConfigurationError: there is no such embedding model, or its package is not installed.
    """
    # Loads gRPC's messages: the server, which imports this module, needs none.
    from trunkline import McpServer
    from trunkline.embeddings import EmbeddingModel

    settings = context.settings
    model = EmbeddingModel.from_settings(context.mesh.embeddings, context.mesh.models)
    # Without a file, the server says what is missing if it has no URL either.
    documents = "" if context.mesh.store else str(documents_path(context.mesh.data_dir).absolute())
    args = {
        "--documents": documents,
        "--searxng-url": settings.searxng_url,
        "--tavily-url": settings.tavily_url,
        "--tavily-key-env": settings.tavily_key_env,
        "--arxiv-url": settings.arxiv_url,
        "--embeddings": model.name if model else "",
        "--embeddings-url": model.base_url if model else "",
    }
    documents_key = open_documents_key(context.mesh)
    keys = {
        DOCUMENTS_STORE_VARIABLE: settings.documents_store if context.mesh.store else "",
        DOCUMENTS_KEY_VARIABLE: documents_key.encode() if documents_key else "",
        TAVILY_VARIABLE: os.environ.get(settings.tavily_key_env, ""),
        EMBEDDINGS_VARIABLE: model.api_key if model else "",
    }
    server = McpServer(
        command=COMMAND,
        args=[f"{name}={value}" for name, value in args.items()],
        env={name: key for name, key in keys.items() if key},
        idle_s=context.mesh.tool_idle_s,
    )
    return {"research": server}
