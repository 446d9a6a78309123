"""Services outside the mesh that agents which ship with it speak to."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ArgoCD:
    """The Argo CD server of the agent `argocd`: table `[argocd]`, or TRUNKLINE_ARGOCD_URL, ….

    The agent is on the mesh only if `url` is set.
    """

    url: str = ""
    """Where its API is, without `/api`."""
    token_env: str = "ARGOCD_AUTH_TOKEN"  # noqa: S105 the name of a variable
    """The variable that holds the token of an Argo CD account."""
    ca_file: Path | None = None
    """Certificates (PEM) that its own may be signed by; None: those that the machine trusts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Research:
    """What the agent `research` searches beside the documents: table `[research]`."""

    tavily_key_env: str = "TAVILY_API_KEY"
    """The variable that holds a key of Tavily, which then searches the web."""
    searxng_url: str = ""
    """A SearXNG that searches the web in its place; its settings have to allow JSON."""
    tavily_url: str = "https://api.tavily.com"
    """Where Tavily is."""
    arxiv_url: str = "https://export.arxiv.org"
    """Where arXiv answers, or a mirror of it; empty: papers are not searched."""
    embeddings: str = ""
    """A model that makes vectors, as `provider:name`: documents are then searched by meaning, too.
    Where it is, and the variable of its key, stand under `[models]`."""
