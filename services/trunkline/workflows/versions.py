"""The published versions of workflows, in the data directory: one file each, which never changes.

A task runs on the version that it began with, also after a restart with a newer file and on
another host of the data directory. New tasks take the newest version, or the version that a
rollback chose until a newer version is published.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from trunkline.core.private_files import PRIVATE_FOLDER, read_private_file, write_private_file
from trunkline.errors import ConfigurationError
from trunkline.workflows.definition import Workflow

_FOLDER: Final = "workflows"
_CHOICE: Final = "choice"


@dataclass(frozen=True, slots=True)
class WorkflowVersions:
    """The published versions of the workflows of a data directory."""

    data_dir: Path

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        return self.data_dir / PRIVATE_FOLDER / _FOLDER

    def publish(self, workflow: Workflow) -> bool:
        """Store a version. Return False if it is stored already.

        Raises:
            ConfigurationError: the stored version of this number is a different one, or the files
                can't be used.
        """
        number = workflow.version
        where = f"workflow {workflow.name!r}"
        if number in self.list_versions(workflow.name):
            if self.load(workflow.name, number).model_dump(mode="json") == workflow.model_dump(
                mode="json"
            ):
                return False
            newest = self.list_versions(workflow.name)[-1]
            problem = (
                f"version {number} is published with another content, and may be running; "
                f"give the changed workflow `version: {newest + 1}`"
            )
            raise ConfigurationError(where, problem)
        content = json.dumps(workflow.model_dump(mode="json", by_alias=True), ensure_ascii=False)
        try:
            write_private_file(self._path(workflow.name, number), content.encode())
        except OSError as error:
            raise ConfigurationError(where, f"can't be stored: {error}") from error
        return True

    def list_names(self) -> list[str]:
        """Return the names of the workflows that have versions, sorted."""
        if not self.folder.is_dir():
            return []
        names = (path.name for path in self.folder.iterdir() if path.is_dir())
        return sorted(name for name in names if self.list_versions(name))

    def list_versions(self, name: str) -> list[int]:
        """Return the numbers of a workflow's versions, oldest first."""
        folder = self.folder / name
        if not folder.is_dir():
            return []
        return sorted(int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit())

    def load(self, name: str, version: int) -> Workflow:
        """Return a published version.

        Raises:
            ConfigurationError: there is none, or its file can't be read.
        """
        where = f"workflow {name!r}"
        try:
            content = read_private_file(self._path(name, version))
            return Workflow.model_validate_json(content)
        except FileNotFoundError:
            known = ", ".join(map(str, self.list_versions(name))) or "none"
            problem = f"there is no version {version}; there are: {known}"
            raise ConfigurationError(where, problem) from None
        except (OSError, ValidationError) as error:
            raise ConfigurationError(where, f"version {version} can't be read: {error}") from error

    def current(self, name: str) -> int:
        """Return the version that new tasks take.

        Raises:
            ConfigurationError: no version is published.
        """
        versions = self._require_versions(name)
        choice = self._read_choice(name)
        if choice is not None and choice["among"] == versions[-1] and choice["use"] in versions:
            return choice["use"]
        return versions[-1]

    def roll_back(self, name: str, version: int | None = None) -> int:
        """Let new tasks take a version, by default the version before the current; return it.

        A version that is published later replaces the choice.

        Raises:
            ConfigurationError: there is no such version, or none before.
        """
        versions = self._require_versions(name)
        current = self.current(name)
        if version is None:
            earlier = [number for number in versions if number < current]
            if not earlier:
                problem = f"version {current} is the oldest; name the version to use"
                raise ConfigurationError(f"workflow {name!r}", problem)
            version = earlier[-1]
        self.load(name, version)
        choice = json.dumps({"use": version, "among": versions[-1]})
        write_private_file(self.folder / name / _CHOICE, choice.encode())
        return version

    def _require_versions(self, name: str) -> Sequence[int]:
        versions = self.list_versions(name)
        if not versions:
            known = ", ".join(self.list_names()) or "none"
            problem = f"no version is published here; published workflows: {known}"
            raise ConfigurationError(f"workflow {name!r}", problem)
        return versions

    def _read_choice(self, name: str) -> dict[str, int] | None:
        try:
            choice: dict[str, int] = json.loads(read_private_file(self.folder / name / _CHOICE))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"workflow {name!r}", f"can't read its choice: {error}"
            ) from error
        return choice

    def _path(self, name: str, version: int) -> Path:
        return self.folder / name / f"{version}.json"
