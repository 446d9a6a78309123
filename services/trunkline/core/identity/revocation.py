"""The processes that joined a mesh, and the revoked processes among them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Final

from trunkline.core.identity.folder import IdentityFolder
from trunkline.core.identity.names import Identity
from trunkline.core.private_files import FileVersion, read_file_version
from trunkline.errors import ConfigurationError, UnauthenticatedError

# Clocks of machines differ.
_TOLERANCE_S: Final = 300.0
# Longer than a connection that was opened, and a statement that was signed, with a certificate are
# valid after its end.
_REMEMBERED_S: Final = 2 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class JoinedProcess:
    """A process that joined by a token."""

    instance: str
    """The last part of its SPIFFE id."""
    subject: str
    """Its role and agents, such as `agents/math`."""
    joined_at: float
    """In seconds since the epoch."""
    ends_at: float
    """The end of its latest certificate."""
    is_revoked: bool = False


def record_certificate(folder: IdentityFolder, identity: Identity, *, lifetime_s: float) -> None:
    """Record that a process that joined gets a certificate.

    Raises:
        UnauthenticatedError: it is revoked, or its key has joined for other agents.
        ConfigurationError: the file can't be read or written.
    """
    now = datetime.now(UTC).timestamp()
    with folder.lock():
        processes = _read(folder)
        process = processes.get(identity.instance) or JoinedProcess(
            identity.instance, identity.subject, joined_at=now, ends_at=now
        )
        if process.is_revoked:
            raise UnauthenticatedError(f"{identity} is revoked")
        if process.subject != identity.subject:
            # A revocation by agents would miss one of the two.
            raise UnauthenticatedError(f"the key of {identity} has joined as {process.subject}")
        processes[identity.instance] = replace(process, ends_at=now + lifetime_s)
        _write(folder, processes)


def list_joined(folder: IdentityFolder) -> list[JoinedProcess]:
    """Return the processes that have a certificate, the latest last.

    Raises:
        ConfigurationError: the file can't be read.
    """
    limit = datetime.now(UTC).timestamp() - _TOLERANCE_S
    processes = [process for process in _read(folder).values() if process.ends_at > limit]
    return sorted(processes, key=lambda process: process.joined_at)


def revoke(folder: IdentityFolder, names: Sequence[str]) -> list[JoinedProcess]:
    """Revoke processes by instance, or by role and agents; return the newly revoked processes.

    Raises:
        ConfigurationError: the file can't be read or written.
    """
    with folder.lock():
        processes = _read(folder)
        revoked = [
            replace(process, is_revoked=True)
            for process in processes.values()
            if not process.is_revoked and {process.instance, process.subject} & set(names)
        ]
        _write(folder, processes | {process.instance: process for process in revoked})
    return revoked


class RevocationList:
    """The revoked instances in a folder, read again when the file changes."""

    def __init__(self, folder: IdentityFolder, on_change: Callable[[frozenset[str]], None]) -> None:
        """`on_change` gets the instances whenever they change."""
        self._folder = folder
        self._on_change = on_change
        self._version: FileVersion | None = None
        self._revoked: frozenset[str] = frozenset()

    def refresh(self) -> frozenset[str]:
        """Return the instances that are revoked now.

        Raises:
            ConfigurationError: the file can't be read.
        """
        version = read_file_version(self._folder.joined)
        if version not in (None, self._version):
            processes = _read(self._folder).values()
            revoked = frozenset(process.instance for process in processes if process.is_revoked)
            self._version = version
            if revoked != self._revoked:
                self._revoked = revoked
                self._on_change(revoked)
        return self._revoked


def _read(folder: IdentityFolder) -> dict[str, JoinedProcess]:
    """Return the processes that could still be let in if they were forgotten, by instance."""
    limit = datetime.now(UTC).timestamp() - _REMEMBERED_S
    try:
        entries = json.loads(folder.joined.read_bytes())
        processes = [JoinedProcess(**entry) for entry in entries]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        problem = "can't be read; remove it, and revoked processes are accepted again"
        raise ConfigurationError(str(folder.joined), problem) from error
    return {process.instance: process for process in processes if process.ends_at > limit}


def _write(folder: IdentityFolder, processes: dict[str, JoinedProcess]) -> None:
    entries = [asdict(process) for process in processes.values()]
    folder.write(folder.joined, json.dumps(entries).encode())
