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
