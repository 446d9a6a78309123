"""The published versions of workflows, as the bridge reads them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class PublishedWorkflow:
    """A version of a workflow."""

    name: str
    version: int
    is_current: bool
    """New tasks take it."""
    definition: Mapping[str, Any]
    """The definition, as a workflow file in JSON has it."""

    @property
    def description(self) -> str:
        """Its purpose."""
        return str(self.definition.get("description", ""))


@dataclass(frozen=True, slots=True)
class VersionDifferences:
    """The differences of two versions of a workflow."""

    lines: Sequence[str]
    """A line for each: `+` added, `-` removed, `~` changed."""
    graph: Mapping[str, Mapping[str, Sequence[Any]]]
    """The `nodes` and `edges` that were `added`, `removed` and `changed`, as JSON."""


class WorkflowCatalog(Protocol):
    """The published workflows. The calls read files, so make them in a thread.

    Each raises AgentNotFoundError for an unknown name, and InvalidArgumentError for an unknown
    version. Without a version it is the current one.
    """

    def list_names(self) -> Sequence[str]:
        """Return the names, sorted."""
        ...

    def list_versions(self, name: str) -> Sequence[int]:
        """Return the versions of a workflow, oldest first."""
        ...

    def read(self, name: str, version: int | None = None) -> PublishedWorkflow:
        """Return a version."""
        ...

    def draw(
        self, name: str, version: int | None = None, *, visited: Sequence[str], failed: str
    ) -> str:
        """Return a version as Mermaid text, with the path of a run on it."""
        ...

    def compare(self, name: str, old: int, new: int) -> VersionDifferences:
        """Return the differences of two versions."""
        ...

    def roll_back(self, name: str, version: int | None = None) -> int:
        """Let new tasks take a version, by default the one before the current; return it."""
        ...
