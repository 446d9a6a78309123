"""Trust in folders: those whose `trunkline.toml` the user has read and accepted.

Trust belongs to the real path of the folder and to the content of the file, so that a changed file
is not trusted.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from trunkline.core.private_files import (
    check_private_folder,
    read_private_file,
    user_state_folder,
    write_private_file,
)
from trunkline.errors import ConfigurationError


class Trust(Enum):
    """The user's decision about the settings file of a folder."""

    TRUSTED = "trusted"
    CHANGED = "changed"
    """The user trusted the folder, and the file has changed since."""
    UNTRUSTED = "untrusted"


@dataclass(frozen=True, slots=True)
class TrustedFolder:
    """A folder that the user trusted."""

    folder: Path
    """Its real path."""
    sha256: str
    """The digest of its settings file at that time."""

    def allows(self, content: bytes) -> bool:
        """Return True if the settings file has not changed."""
        return self.sha256 == hashlib.sha256(content).hexdigest()


class TrustStore:
    """The folders that the user trusted, as one file for each in the folder of the user's state."""

    def __init__(self) -> None:
        """Use the folder `trusted` in the user's state folder. It is made when needed."""
        self._folder = user_state_folder() / "trusted"

    def check(self, folder: Path, content: bytes) -> Trust:
        """Return the user's decision about a folder whose settings file has this content.

        Raises:
            ConfigurationError: another user may write the store, or it can't be read.
        """
        trusted = self._read(self._entry(folder.resolve()))
        if trusted is None or trusted.folder != folder.resolve():
            return Trust.UNTRUSTED
        return Trust.TRUSTED if trusted.allows(content) else Trust.CHANGED

    def add(self, folder: Path, content: bytes) -> TrustedFolder:
        """Trust a folder as long as its settings file has this content.

        Raises:
            ConfigurationError: the store can't be written.
        """
        trusted = TrustedFolder(folder.resolve(), hashlib.sha256(content).hexdigest())
        entry = {"folder": str(trusted.folder), "sha256": trusted.sha256}
        write_private_file(self._entry(trusted.folder), json.dumps(entry).encode())
        return trusted

    def remove(self, folder: Path) -> bool:
        """Withdraw the trust in a folder. Return False if it was not trusted.

        Raises:
            ConfigurationError: the store can't be written.
        """
        entry = self._entry(folder.resolve())
        try:
            entry.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            problem = f"can't be removed: {error.strerror or error}"
            raise ConfigurationError(str(entry), problem) from error
        return True

    def folders(self) -> list[TrustedFolder]:
        """Return the trusted folders, sorted by path. They may have changed or be gone.

        Raises:
            ConfigurationError: another user may write the store, or it can't be read.
        """
        entries = [self._read(path) for path in self._folder.glob("*.json")]
        return sorted(
            (entry for entry in entries if entry is not None), key=lambda entry: entry.folder
        )

    def _entry(self, folder: Path) -> Path:
        return self._folder / f"{hashlib.sha256(os.fsencode(folder)).hexdigest()}.json"

    def _read(self, path: Path) -> TrustedFolder | None:
        try:
            check_private_folder(path.parent)
            entry = json.loads(read_private_file(path, is_secret=False))
            return TrustedFolder(Path(entry["folder"]), str(entry["sha256"]))
        except FileNotFoundError:
            return None
        except OSError as error:
            problem = f"can't be read: {error.strerror or error}"
            raise ConfigurationError(str(path), problem) from error
        except (ValueError, KeyError, TypeError):
            # The file is damaged.
            return None
