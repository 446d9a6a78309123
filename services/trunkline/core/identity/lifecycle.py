"""Finds, creates and renews the identity of a process."""

import asyncio
import contextlib
import fcntl
import logging
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from trunkline.core.identity.credentials import MeshCredentials
from trunkline.core.identity.folder import IdentityFolder, find_folder
from trunkline.core.identity.issuing import is_due, issue_member, open_folder, try_open_folder
from trunkline.core.identity.joining import join, renew
from trunkline.core.identity.names import Identity
from trunkline.core.identity.rotation import advance_rotation
from trunkline.core.network import is_this_machine
from trunkline.core.runtime import load_in_thread, run_in_background
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError, TrunklineError, UnauthenticatedError

logger = logging.getLogger(__name__)

# The interval of checks of the certificate, and of retries of its renewal.
_CHECK_S: Final = 60.0


def load_credentials(
    settings: Settings, *, may_create: bool = False, runs_mesh: bool = False
) -> MeshCredentials:
    """Return this process's credentials on the mesh of the settings.

    With `may_create`, a mesh of this machine that has no root gets one. A process that `runs_mesh`
    needs the mesh's root or configured files, and creates the root if there is none.

    Raises:
        UnauthenticatedError: this process has no identity on the mesh, or its token is refused.
        ConfigurationError: the files or the token can't be used, or another user runs the mesh.
        PeerUnavailableError: the mesh does not answer, and this process must join it.
    """
    if settings.identity_certificate is not None:
        return _configured(settings)
    mesh = str(settings.mesh.first)
    folder = identity_folder(settings)
    folder.check()
    credentials = None if folder.has_root else try_open_folder(folder)
    if runs_mesh:
        _prepare_to_run(folder, has_joined=credentials is not None)
    elif credentials is not None:
        return credentials
    elif not folder.has_root:
        if settings.join_token:
            join(folder, settings.join_token)
            return open_folder(folder)
        if not (may_create and is_this_machine(mesh)):
            raise UnauthenticatedError.for_mesh(mesh)
        _create_root(folder)
    return _open_own(folder)


@asynccontextmanager
async def open_credentials(
    settings: Settings, *, runs_mesh: bool = False
) -> AsyncIterator[MeshCredentials]:
    """Yield the credentials of a process that serves, and renew them in the background.

    Raises what `load_credentials` raises.
    """
    credentials = await load_in_thread(
        load_credentials, settings, may_create=True, runs_mesh=runs_mesh
    )
    if settings.identity_certificate is not None:
        # Their issuer renews the files.
        yield credentials
        return
    renewal = _renew_forever(identity_folder(settings), credentials, settings.mesh.addresses)
    async with run_in_background(renewal):
        yield credentials


def identity_folder(settings: Settings) -> IdentityFolder:
    """Return the folder of this user's identity on the mesh of the settings.

    Raises:
        ConfigurationError: another user may change the user's state folder.
    """
    return find_folder(
        str(settings.mesh.first), configured=settings.identity_folder, data_dir=settings.data_dir
    )


@contextmanager
def temporary_identity(mesh: str, data_dir: Path) -> Iterator[bool]:
    """Create the identity of a mesh at a picked port; remove it after the block.

    Such meshes of a user share a root, because making it takes time and they end soon. No token
    joins them. Yields False, and changes nothing, if the address has an identity that lasts.
    """
    folder = find_folder(mesh, configured=None, data_dir=data_dir)
    if folder.has_identity and not folder.is_temporary:
        yield False
        return
    remove_abandoned(folder.path.parent)
    shared = find_folder("temporary:0", configured=None, data_dir=data_dir)
    shared.check()
    if not shared.has_root:
        _create_root(shared)
    _open_own(shared)
    folder.create()
    with folder.temporary_mark.open("w") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with shared.lock(), folder.lock():
            for source, target in zip(shared.files, folder.files, strict=True):
                folder.write(target, source.read_bytes())
        try:
            yield True
        finally:
            shutil.rmtree(folder.path, ignore_errors=True)


def remove_abandoned(meshes: Path) -> None:
    """Remove the folders of meshes at picked ports that were killed."""
    for mark in meshes.glob("*/temporary"):
        with contextlib.suppress(OSError), mark.open() as held:
            # Its mesh holds the lock while it runs.
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(mark.parent, ignore_errors=True)


def _configured(settings: Settings) -> MeshCredentials:
    certificate = settings.identity_certificate
    key, roots = settings.identity_key, settings.identity_roots
    if certificate is None or key is None or roots is None:
        raise ConfigurationError("[identity]", "set certificate, key and roots, all three")
    for uri, subject in settings.identity_roles.items():
        try:
            Identity.from_subject("mesh", subject)
        except ValueError as error:
            raise ConfigurationError(f"[identity.roles] {uri}", str(error)) from error
    return MeshCredentials(
        certificate=certificate, key=key, roots=roots, roles=settings.identity_roles
    )


def _open_own(folder: IdentityFolder) -> MeshCredentials:
    """Return the credentials of a mesh that this user runs, with a new certificate if it is due."""
    credentials = try_open_folder(folder)
    if credentials is None or is_due(credentials):
        issue_member(folder)
        credentials = open_folder(folder)
    return credentials


def _prepare_to_run(folder: IdentityFolder, *, has_joined: bool) -> None:
    """Make sure that a folder has a root of this user's own.

    Raises:
        ConfigurationError: it has a certificate of another user's mesh.
    """
    if has_joined:
        problem = (
            "has a certificate of a mesh that another user runs at this address; choose another "
            "address with --mesh, or remove the folder"
        )
        raise ConfigurationError(f"identity folder {folder.path}", problem)
    remove_abandoned(folder.path.parent)
    if not folder.has_root:
        _create_root(folder)


def _create_root(folder: IdentityFolder) -> None:
    from trunkline.core.identity.certificates import create_root

    folder.create()
    with folder.lock():
        if folder.has_root:
            return
        certificate, key = create_root()
        # The key comes last: a folder that has it is complete.
        folder.certificate.unlink(missing_ok=True)
        folder.write(folder.roots, certificate)
        folder.write(folder.root_key, key)


def _maintain(folder: IdentityFolder, credentials: MeshCredentials) -> None:
    """Renew the certificate of this user's processes, and replace the root, if it is time."""
    advance_rotation(folder)
    if is_due(credentials):
        issue_member(folder)
    credentials.refresh()


async def _renew_forever(
    folder: IdentityFolder, credentials: MeshCredentials, registries: Sequence[str]
) -> None:
    while True:
        # Not one long sleep: its clock stands still while the machine sleeps.
        await asyncio.sleep(_CHECK_S)
        try:
            if folder.has_root:
                await load_in_thread(_maintain, folder, credentials)
            elif is_due(credentials):
                await load_in_thread(renew, folder, credentials, registries)
        except (OSError, TrunklineError) as error:
            logger.error("identity.not_renewed", extra={"problem": str(error)})
