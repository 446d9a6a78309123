"""The owners of what processes register: hosts, journals, agents and services."""

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from trunkline.core.identity import Identity, Role
from trunkline.core.runtime import finish
from trunkline.core.small_files import SmallFiles, update_file
from trunkline.errors import ConfigurationError, InvalidArgumentError, PermissionDeniedError
from trunkline.v1 import registry_service_pb2

_SERVICES: Final = {
    Role.AGENTS: frozenset[str](),
    Role.TOOLS: frozenset({"trunkline.v1.ToolService"}),
}
# A journal that is older than so many others of its owner may be registered by another process.
_MAX_JOURNALS: Final = 10_000
# Limits of what processes that joined with the same role and agents register. All processes of the
# mesh hold the list of all hosts.
_MAX_HOSTS: Final = 100
_MAX_HOST_BYTES: Final = 1024 * 1024
_MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_AGENTS: Final = 100
_MAX_HOST_JOURNALS: Final = 1000
_MAX_ID_CHARS: Final = 200


OWNERS_PATH: Final = "journal-owners.json"
"""The path of the owners in the small files of a mesh."""


class OwnerTable:
    """The owner of each journal: the process that registered it first at any registry.

    Processes of the user who runs the mesh may register everything, because they take over
    journals of each other. All others are held to their identity. The owners are in a small file
    that all registries share, and outlive them. This table has them as this registry read or
    changed them last.
    """

    def __init__(self, files: SmallFiles | None = None) -> None:
        """Without files, the owners are those of this table alone."""
        self._files = files
        self._changing = asyncio.Lock()
        # Subjects by journal, the oldest first.
        self._owners: dict[str, str] = {}

    async def load(self) -> None:
        """Read what other registries have changed.

        Raises:
            ConfigurationError, JournalUnavailableError: the file can't be read.
        """
        async with self._changing:
            await self._change(lambda owners: owners)

    def list_journals(self) -> frozenset[str]:
        """Return the ids of the journals that have an owner."""
        return frozenset(self._owners)

    def check(
        self,
        host: registry_service_pb2.Host,
        identity: Identity,
        live_hosts: Iterable[registry_service_pb2.Host],
    ) -> None:
        """Check that a process may register a host.

        Raises:
            PermissionDeniedError: the host, a journal or the address belongs to another process, or
                the identity does not have an agent or a service.
        """
        if identity.role is Role.MEMBER:
            return
        caller = str(identity)
        # Others would dial a socket of their own machine.
        if host.address.startswith("unix:"):
            raise PermissionDeniedError(caller, f"register {host.address}")
        names = {agent.card.name for agent in host.agents}
        for name in sorted(names - identity.agents):
            remedy = f"its token names other agents: `trunkline mesh token --agent {name}`"
            raise PermissionDeniedError(caller, f"register agent {name!r}; {remedy}")
        for service in sorted(set(host.services) - _SERVICES.get(identity.role, frozenset())):
            raise PermissionDeniedError(caller, f"register service {service}")
        ids = {host.host_id, *host.journal_ids}
        for journal_id in ids & self._owners.keys():
            owner = self._owners[journal_id]
            if not identity.covers(owner):
                raise PermissionDeniedError(caller, f"register {journal_id}, which {owner} owns")
        for live in live_hosts:
            if live.address == host.address or live.host_id in ids:
                self.check_owner(live, identity)

    def check_size(
        self,
        host: registry_service_pb2.Host,
        identity: Identity,
        live_hosts: Iterable[registry_service_pb2.Host],
    ) -> None:
        """Check that a host, and all that the same role and agents register, are of usual size.

        Raises:
            InvalidArgumentError: the host is too large.
            PermissionDeniedError: together they are too large or too many.
        """
        if identity.role is Role.MEMBER:
            return
        size_bytes = host.ByteSize()
        if size_bytes > _MAX_HOST_BYTES:
            raise InvalidArgumentError("host", f"is larger than {_MAX_HOST_BYTES} bytes")
        if len(host.agents) > _MAX_AGENTS:
            raise InvalidArgumentError("host.agents", f"has more than {_MAX_AGENTS}")
        if len(host.journal_ids) > _MAX_HOST_JOURNALS:
            raise InvalidArgumentError("host.journal_ids", f"has more than {_MAX_HOST_JOURNALS}")
        if max(map(len, (host.host_id, *host.journal_ids))) > _MAX_ID_CHARS:
            problem = f"has an id of more than {_MAX_ID_CHARS} characters"
            raise InvalidArgumentError("host", problem)
        others = [
            live
            for live in live_hosts
            if live.host_id != host.host_id
            and Identity.parse(live.identity).subject == identity.subject
        ]
        if len(others) >= _MAX_HOSTS:
            raise PermissionDeniedError(str(identity), f"register more than {_MAX_HOSTS} hosts")
        if size_bytes + sum(live.ByteSize() for live in others) > _MAX_BYTES:
            action = f"register hosts of more than {_MAX_BYTES} bytes together"
            raise PermissionDeniedError(str(identity), action)

    def check_owner(self, host: registry_service_pb2.Host, identity: Identity) -> None:
        """Check that a process may replace, renew or remove a live registration.

        Raises:
            PermissionDeniedError: the host belongs to another process.
        """
        is_owner = identity.covers(Identity.parse(host.identity).subject)
        if identity.role is not Role.MEMBER and not is_owner:
            raise PermissionDeniedError(str(identity), f"speak for host {host.host_id}")

    async def record(self, journal_ids: Iterable[str], identity: Identity) -> None:
        """Make a process the owner of the journals that have none.

        A write that is slower than the caller's deadline continues, so that a repeated call
        succeeds.

        Raises:
            ConfigurationError: the file can't be written, so that the owners are unchanged.
            JournalUnavailableError: the database can't be reached. They may have been changed.
        """
        wanted = sorted(set(journal_ids))
        if not wanted:
            return

        def add(owners: Mapping[str, str]) -> dict[str, str]:
            new = {each: identity.subject for each in wanted if each not in owners}
            added = {**owners, **new}
            # Of the same owner, so that no owner can make the registry forget others' journals.
            own = [journal for journal, owner in added.items() if owner == identity.subject]
            for journal_id in own[:-_MAX_JOURNALS]:
                del added[journal_id]
            return added

        # After a `release` that may be writing that they have none. One at another registry is seen
        # at the next change.
        async with self._changing:
            if any(each not in self._owners for each in wanted):
                await self._change(add)

    async def release(self, names: Collection[str]) -> dict[str, str]:
        """Forget the owners of journals; return them by journal.

        `names` are ids of journals, and owners such as `agents/math`, all of whose journals count.

        Raises:
            ConfigurationError: the file can't be written, so that the owners are unchanged.
            JournalUnavailableError: the database can't be reached. They may have been changed.
        """
        released: dict[str, str] = {}

        def remove(owners: Mapping[str, str]) -> dict[str, str]:
            released.clear()
            released.update(
                (journal_id, owner)
                for journal_id, owner in owners.items()
                if journal_id in names or owner in names
            )
            return {each: owner for each, owner in owners.items() if each not in released}

        async with self._changing:
            await self._change(remove)
        return released

    async def _change(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Change the latest owners. A canceled caller waits for the file."""
        if self._files is None:
            self._owners = dict(change(self._owners))
            return
        work = self._change_file(self._files, change)
        await finish(asyncio.get_running_loop().create_task(work))

    async def _change_file(
        self, files: SmallFiles, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> None:
        owners: dict[str, str] = {}

        def replace(content: bytes | None) -> bytes | None:
            nonlocal owners
            former = _parse(content, files.locate(OWNERS_PATH))
            owners = dict(change(former))
            return None if owners == former else json.dumps(owners).encode()

        await update_file(files, OWNERS_PATH, replace)
        self._owners = owners


def _parse(content: bytes | None, place: str) -> dict[str, str]:
    try:
        owners: dict[str, str] = {} if content is None else json.loads(content)
    except ValueError as error:
        problem = f"can't be read: {error}; without it, a process may take another's journals"
        raise ConfigurationError(place, problem) from error
    return owners
