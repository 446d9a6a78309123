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
    """The published workflows.

    Each raises AgentNotFoundError for an unknown name, InvalidArgumentError for an unknown version,
    and JournalUnavailableError if they can't be read now. Without a version it is the current one.
    """

    async def list_names(self) -> Sequence[str]:
        """Return the names, sorted."""
        ...

    async def list_versions(self, name: str) -> Sequence[int]:
        """Return the versions of a workflow, oldest first."""
        ...

    async def read(self, name: str, version: int | None = None) -> PublishedWorkflow:
        """Return a version."""
        ...

    async def draw(
        self, name: str, version: int | None = None, *, visited: Sequence[str], failed: str
    ) -> str:
        """Return a version as Mermaid text, with the path of a run on it."""
        ...

    async def compare(self, name: str, old: int, new: int) -> VersionDifferences:
        """Return the differences of two versions."""
        ...

    async def roll_back(self, name: str, version: int | None = None) -> int:
        """Let new tasks take a version, by default the one before the current; return it."""
        ...
