"""Replaces a mesh's root while the mesh runs.

For a time, the current root issues, and processes learn of the next one with their renewals. Then
the next root issues, and both are trusted. When all certificates of the former root have ended, it
is dropped.
"""

import json
import logging
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from trunkline.core.identity.folder import IdentityFolder
from trunkline.core.identity.issuing import LIFETIME, load_authority, write_member
from trunkline.errors import ConfigurationError

logger = logging.getLogger(__name__)

OVERLAP: Final = LIFETIME
"""The time until the next root issues. All processes renew their certificates within it."""
# Certificates of the former root end, and then the statements of users that they signed.
_DROP_AFTER: Final = 3


@dataclass(frozen=True, slots=True)
class Rotation:
    """The times of a rotation, in seconds since the epoch."""

    switch_at: float
    """The next root issues from now on."""
    drop_at: float
    """The former root is no longer trusted."""


def start_rotation(folder: IdentityFolder, overlap: timedelta = OVERLAP) -> Rotation:
    """Make the root that will replace the current one of a mesh, and trust both.

    Processes that do not renew within `overlap` have to join again.

    Raises:
        ConfigurationError: the root is being replaced already, or can't be used.
    """
    now = datetime.now(UTC)
    rotation = Rotation(
        switch_at=(now + overlap).timestamp(),
        drop_at=(now + _DROP_AFTER * overlap).timestamp(),
    )
    with folder.lock():
        if folder.rotation.exists():
            ends_at = datetime.fromtimestamp(_read(folder).drop_at, UTC)
            problem = f"its root is being replaced until {ends_at:%Y-%m-%d %H:%M} UTC"
            raise ConfigurationError(f"identity folder {folder.path}", problem)
        authority = load_authority(folder)
        certificate, key, cross = authority.create_next_root()
        folder.write(folder.next_root_key, key)
        folder.write(folder.cross_certificate, cross)
        folder.write(folder.roots, authority.certificate_pem + certificate)
        # Comes last: a rotation that has it is complete.
        folder.write(folder.rotation, json.dumps(asdict(rotation)).encode())
    return rotation


def advance_rotation(folder: IdentityFolder) -> None:
    """Let the next root issue, and drop the former one, when it is time.

    Every process of the mesh's owner calls it again and again, also after a crash of another.

    Raises:
        ConfigurationError: the files can't be read or written.
    """
    if not folder.rotation.exists():
        return
    with folder.lock():
        if not folder.rotation.exists():
            return
        rotation, now = _read(folder), datetime.now(UTC).timestamp()
        if now >= rotation.switch_at and folder.next_root_key.exists():
            folder.write(folder.root_key, folder.next_root_key.read_bytes())
            write_member(folder)
            folder.next_root_key.unlink()
            logger.info("identity.root_replaced", extra={"folder": str(folder.path)})
        if now >= rotation.drop_at:
            folder.write(folder.roots, load_authority(folder).certificate_pem)
            folder.cross_certificate.unlink(missing_ok=True)
            folder.rotation.unlink()
            logger.info("identity.former_root_dropped", extra={"folder": str(folder.path)})


def read_offer(folder: IdentityFolder) -> bytes:
    """Return the roots of the mesh for a process that renews, PEM.

    While the root changes, the certificate by which the former root vouches for the next is added.
    """
    try:
        return folder.roots.read_bytes() + folder.cross_certificate.read_bytes()
    except FileNotFoundError:
        return folder.roots.read_bytes()


def _read(folder: IdentityFolder) -> Rotation:
    try:
        return Rotation(**json.loads(folder.rotation.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        problem = "can't be read; remove it, and replace the root again"
        raise ConfigurationError(str(folder.rotation), problem) from error
