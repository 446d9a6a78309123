"""The published workflows of a mesh, for the bridge."""

from collections.abc import Sequence

from trunkline.core.small_files import SmallFiles
from trunkline.errors import AgentNotFoundError, ConfigurationError, InvalidArgumentError
from trunkline.workflows.builders import workflow_to_dict
from trunkline.workflows.definition import Workflow
from trunkline.workflows.differences import compare_graphs, list_differences
from trunkline.workflows.drawing import RunPath, draw_mermaid
from trunkline.workflows.versions import WorkflowVersions
from trunkline_bridge.api.workflows.catalog import PublishedWorkflow, VersionDifferences


class StoredWorkflows:
    """The published workflows of a mesh: a WorkflowCatalog of the bridge.

    Names and versions come from callers, so they are compared with existing names and versions
    before a path is made of them.
    """

    def __init__(self, files: SmallFiles) -> None:
        self._versions = WorkflowVersions(files)

    async def list_names(self) -> Sequence[str]:
        """Return the names, sorted."""
        return await self._versions.list_names()

    async def list_versions(self, name: str) -> Sequence[int]:
        """Return the versions of a workflow, oldest first."""
        await self._check_name(name)
        return await self._versions.list_versions(name)

    async def read(self, name: str, version: int | None = None) -> PublishedWorkflow:
        """Return a version, by default the current one."""
        workflow = await self._load(name, version)
        return PublishedWorkflow(
            name=name,
            version=workflow.version,
            is_current=workflow.version == await self._versions.current(name),
            definition=workflow_to_dict(workflow),
        )

    async def draw(
        self, name: str, version: int | None = None, *, visited: Sequence[str], failed: str
    ) -> str:
        """Return a version as Mermaid text, with the path of a run on it."""
        return draw_mermaid(await self._load(name, version), RunPath(visited, failed))

    async def compare(self, name: str, old: int, new: int) -> VersionDifferences:
        """Return the differences of two versions."""
        before, after = await self._load(name, old), await self._load(name, new)
        return VersionDifferences(list_differences(before, after), compare_graphs(before, after))

    async def roll_back(self, name: str, version: int | None = None) -> int:
        """Let new tasks take a version, by default the one before the current; return it."""
        await self._check_version(name, version)
        try:
            return await self._versions.roll_back(name, version)
        except ConfigurationError as error:
            raise InvalidArgumentError("version", error.problem) from error

    async def _load(self, name: str, version: int | None) -> Workflow:
        await self._check_version(name, version)
        chosen = await self._versions.current(name) if version is None else version
        return await self._versions.load(name, chosen)

    async def _check_version(self, name: str, version: int | None) -> None:
        known = await self.list_versions(name)
        if version is not None and version not in known:
            numbers = ", ".join(map(str, known))
            raise InvalidArgumentError("version", f"there is no {version}; there are: {numbers}")

    async def _check_name(self, name: str) -> None:
        if name not in await self.list_names():
            raise AgentNotFoundError(name)
