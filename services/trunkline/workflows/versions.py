"""The published versions of workflows: one small file each, which never changes.

A task runs on the version that it began with, also after a restart with a newer file and on
another host of the mesh. New tasks take the newest version, or the version that a
rollback chose until a newer version is published.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from trunkline.core.small_files import SmallFiles
from trunkline.errors import ConfigurationError
from trunkline.workflows.definition import Workflow

_FOLDER: Final = "workflows"
_CHOICE: Final = "choice"
_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class WorkflowVersions:
    """The published versions of the workflows of a mesh.

    All methods raise JournalUnavailableError if the small files are in a database that can't be
    reached.
    """

    files: SmallFiles

    @property
    def place(self) -> str:
        """The place of the files, for people."""
        return self.files.locate(_FOLDER)

    async def publish(self, workflow: Workflow) -> bool:
        """Store a version. Return False if it is stored already.

        Raises:
            ConfigurationError: the stored version of this number is a different one, or the files
                can't be used.
        """
        number = workflow.version
        content = json.dumps(workflow.model_dump(mode="json", by_alias=True), ensure_ascii=False)
        path = _path(workflow.name, number)
        if await self.files.replace(path, content.encode(), expected=None):
            return True
        stored = await self.load(workflow.name, number)
        if stored.model_dump(mode="json") == workflow.model_dump(mode="json"):
            return False
        newest = (await self.list_versions(workflow.name))[-1]
        problem = (
            f"version {number} is published with another content, and may be running; "
            f"give the changed workflow `version: {newest + 1}`"
        )
        raise ConfigurationError(f"workflow {workflow.name!r}", problem)

    async def list_names(self) -> list[str]:
        """Return the names of the workflows that have versions, sorted."""
        names = {
            name for name, number in map(_parse, await self.files.list_paths(_FOLDER)) if number
        }
        return sorted(names)

    async def list_versions(self, name: str) -> list[int]:
        """Return the numbers of a workflow's versions, oldest first."""
        paths = await self.files.list_paths(f"{_FOLDER}/{name}")
        return sorted(
            int(number) for owner, number in map(_parse, paths) if owner == name and number
        )

    async def load(self, name: str, version: int) -> Workflow:
        """Return a published version.

        Raises:
            ConfigurationError: there is none, or its file can't be read.
        """
        where = f"workflow {name!r}"
        content = await self.files.read(_path(name, version))
        if content is None:
            known = ", ".join(map(str, await self.list_versions(name))) or "none"
            problem = f"there is no version {version}; there are: {known}"
            raise ConfigurationError(where, problem)
        try:
            return Workflow.model_validate_json(content)
        except ValidationError as error:
            raise ConfigurationError(where, f"version {version} can't be read: {error}") from error

    async def current(self, name: str) -> int:
        """Return the version that new tasks take.

        Raises:
            ConfigurationError: no version is published.
        """
        return await self._choose(name, await self._require_versions(name))

    async def roll_back(self, name: str, version: int | None = None) -> int:
        """Let new tasks take a version, by default the version before the current; return it.

        A version that is published later replaces the choice.

        Raises:
            ConfigurationError: there is no such version, or none before.
        """
        versions = await self._require_versions(name)
        current = await self._choose(name, versions)
        if version is None:
            earlier = [number for number in versions if number < current]
            if not earlier:
                problem = f"version {current} is the oldest; name the version to use"
                raise ConfigurationError(f"workflow {name!r}", problem)
            version = earlier[-1]
        await self.load(name, version)
        choice = json.dumps({"use": version, "among": versions[-1]})
        await self.files.write(f"{_FOLDER}/{name}/{_CHOICE}", choice.encode())
        return version

    async def _choose(self, name: str, versions: Sequence[int]) -> int:
        choice = await self._read_choice(name)
        if choice is not None and choice["among"] == versions[-1] and choice["use"] in versions:
            return choice["use"]
        return versions[-1]

    async def _require_versions(self, name: str) -> Sequence[int]:
        versions = await self.list_versions(name)
        if not versions:
            known = ", ".join(await self.list_names()) or "none"
            problem = f"no version is published here; published workflows: {known}"
            raise ConfigurationError(f"workflow {name!r}", problem)
        return versions

    async def _read_choice(self, name: str) -> dict[str, int] | None:
        content = await self.files.read(f"{_FOLDER}/{name}/{_CHOICE}")
        if content is None:
            return None
        try:
            choice: dict[str, int] = json.loads(content)
        except ValueError as error:
            raise ConfigurationError(
                f"workflow {name!r}", f"can't read its choice: {error}"
            ) from error
        return choice


def _path(name: str, number: int) -> str:
    return f"{_FOLDER}/{name}/{number}.json"


def _parse(path: str) -> tuple[str, str]:
    """Return the workflow and the number of a version from its path; no number for another file."""
    _, _, rest = path.partition("/")
    name, _, file = rest.partition("/")
    number, suffix = file[: -len(_SUFFIX)], file[-len(_SUFFIX) :]
    return name, number if suffix == _SUFFIX and number.isdigit() else ""
