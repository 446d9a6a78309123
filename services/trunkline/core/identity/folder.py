"""The folder of a mesh's identity files, found by the mesh's address in the user's state folder."""

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from trunkline.core.network import is_this_machine
from trunkline.core.private_files import (
    create_private_folder,
    lock_file,
    user_state_folder,
    write_private_file,
)
from trunkline.errors import ConfigurationError

_FILE_MODE: Final = 0o600
_LOCK_TIMEOUT_S: Final = 5.0
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")


class IdentityFolder:
    """The files of this user's identity on one mesh.

    `roots` and `certificate` exist if the user has an identity; `root_key` exists as well if the
    user runs the mesh.
    """

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self.roots: Path = path / "roots.pem"
        self.certificate: Path = path / "certificate.pem"
        """The process's certificate with its key: one file, so that both are replaced at once."""
        self.root_key: Path = path / "root.key"
        self.next_root_key: Path = path / "next-root.key"
        """The key of the root that will replace the current one."""
        self.cross_certificate: Path = path / "next-root.pem"
        """The next root, signed by the current one."""
        self.rotation: Path = path / "rotation"
        """The times at which the next root replaces the current one. Exists until then."""
        self.temporary_mark: Path = path / "temporary"
        """Exists if the mesh has a picked port, and the folder is removed at its end."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that make up the identity of a mesh. A folder that has the last has all."""
        return self.roots, self.certificate, self.root_key

    @property
    def has_identity(self) -> bool:
        """True if there is a root or a certificate, valid or not."""
        return self.has_root or self.certificate.exists()

    @property
    def has_root(self) -> bool:
        """True if certificates of the mesh can be issued here."""
        return self.root_key.exists()

    @property
    def is_temporary(self) -> bool:
        """True if the mesh has a picked port, or had one and was killed."""
        return self.temporary_mark.exists()

    def read_join_addresses(self) -> Sequence[str]:
        """Return the addresses at which registries that ran here take join tokens."""
        files = sorted(self.path.glob("join*"))
        return [file.read_text() for file in files]

    def write_join_address(self, address: str, *, registry_port: int | None) -> None:
        """Keep the address at which a registry takes join tokens.

        `registry_port` tells further registries of this machine apart. It is None for the first.
        """
        self.write(
            self.path / f"join-{registry_port}" if registry_port else self.path / "join",
            address.encode(),
        )

    def create(self) -> None:
        """Create the folder for this user alone.

        Raises:
            ConfigurationError: it can't be created, or other users may enter it.
        """
        try:
            create_private_folder(self.path)
        except OSError as error:
            problem = f"can't be created: {error.strerror}; set folder in [identity] to another"
            raise ConfigurationError(f"identity folder {self.path}", problem) from error
        self.check()

    def check(self) -> None:
        """Check that the folder belongs to this user alone.

        Raises:
            ConfigurationError: it is a link, belongs to another user, or other users may enter it.
        """
        try:
            info = self.path.lstat()
        except OSError:
            return
        is_ours = stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()
        if not is_ours or info.st_mode & _OTHERS:
            problem = (
                "must be a folder that belongs to you and that only you may enter: "
                f"chmod 700 {self.path}"
            )
            raise ConfigurationError(f"identity folder {self.path}", problem)

    def write(self, file: Path, content: bytes) -> None:
        """Replace a file of the folder at once; only this user may read it.

        Raises:
            ConfigurationError: it can't be written.
        """
        write_private_file(file, content)

    @contextlib.contextmanager
    def lock(self, *, timeout_s: float = _LOCK_TIMEOUT_S) -> Iterator[None]:
        """Keep other processes from changing the folder. It blocks; call it in a thread.

        Raises:
            ConfigurationError: another process keeps it locked for longer than `timeout_s`.
        """
        file = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            try:
                lock_file(file, timeout_s=timeout_s)
            except BlockingIOError as error:
                problem = "another process keeps it locked; end that process"
                raise ConfigurationError(f"identity folder {self.path}", problem) from error
            yield
        finally:
            os.close(file)


def find_folder(mesh: str, *, configured: Path | None, data_dir: Path) -> IdentityFolder:
    """Return the folder for a mesh's address, which may not exist yet.

    It is `configured`, or in the user's state folder, or in the data directory if the state folder
    can't be written to.

    Raises:
        ConfigurationError: another user may change the user's state folder.
    """
    if configured is not None:
        return IdentityFolder(configured)
    return IdentityFolder(_parent(data_dir) / _name_of(mesh))


def _parent(data_dir: Path) -> Path:
    try:
        state = user_state_folder()
    except ConfigurationError:
        # The user has no home, for example in a container.
        return data_dir / "identity"
    meshes = state / "meshes"
    try:
        create_private_folder(meshes)
    except OSError:
        # The home can't be written to.
        return data_dir / "identity"
    return meshes


def _name_of(mesh: str) -> str:
    """Return the name of the folder: all addresses of this machine have the same one."""
    host, _, port = mesh.rpartition(":")
    name = "local" if is_this_machine(mesh) else host.strip("[]").lower().rstrip(".")
    return f"{_NO_NAME.sub('_', name)}-{port}"
