"""The owners of what processes register: hosts, journals, agents and services."""

import asyncio
import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from trunkline.errors import ConfigurationError, PermissionDeniedError
from trunkline.identity import Identity, Role
from trunkline.private_files import write_private_file
from trunkline.v1 import registry_service_pb2

_SERVICES: Final = {
    Role.AGENTS: frozenset[str](),
    Role.TOOLS: frozenset({"trunkline.v1.ToolService"}),
}
# A journal that is older than so many others may be registered by another process.
_MAX_JOURNALS: Final = 100_000


class OwnerTable:
    """The owner of each journal: the process that registered it first.

    Processes of the user who runs the mesh may register everything, because they take over
    journals of each other. All others are held to their identity. With a file, owners outlive the
    registry.
    """

    def __init__(self, file: Path | None = None) -> None:
        """Load the owners.

        Raises:
            ConfigurationError: the file can't be read.
        """
        self._file = file
        self._saving = asyncio.Lock()
        # Subjects by journal, the oldest first.
        self._owners: dict[str, str] = {} if file is None else _load(file)

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
        names = {agent.card.name for agent in host.agents} | set(host.standby_agents)
        for name in sorted(names - identity.agents):
            raise PermissionDeniedError(caller, f"register agent {name!r}")
        for service in sorted(set(host.services) - _SERVICES.get(identity.role, frozenset())):
            raise PermissionDeniedError(caller, f"register service {service}")
        for journal_id in {host.host_id, *host.journal_ids} & self._owners.keys():
            owner = self._owners[journal_id]
            if not identity.covers(owner):
                raise PermissionDeniedError(caller, f"register {journal_id}, which {owner} owns")
        for live in live_hosts:
            if live.address == host.address or live.host_id in {host.host_id, *host.journal_ids}:
                self.check_owner(live, identity)

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

        Raises:
            ConfigurationError: the file can't be written.
        """
        new_ids = set(journal_ids) - self._owners.keys()
        if not new_ids:
            return
        self._owners |= dict.fromkeys(sorted(new_ids), identity.subject)
        while len(self._owners) > _MAX_JOURNALS:
            del self._owners[next(iter(self._owners))]
        await self._save()

    async def release(self, names: Collection[str]) -> dict[str, str]:
        """Forget the owners of journals; return them by journal.

        `names` are ids of journals, and owners such as `agents/math`, all of whose journals count.

        Raises:
            ConfigurationError: the file can't be written.
        """
        released = {
            journal_id: owner
            for journal_id, owner in self._owners.items()
            if journal_id in names or owner in names
        }
        if released:
            for journal_id in released:
                del self._owners[journal_id]
            await self._save()
        return released

    async def _save(self) -> None:
        if self._file is None:
            return
        # In a thread, because it waits for the disk.
        async with self._saving:
            content = json.dumps(self._owners).encode()
            await asyncio.to_thread(write_private_file, self._file, content)


def _load(file: Path) -> dict[str, str]:
    try:
        owners: dict[str, str] = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        problem = f"can't be read: {error}; without it, a process may take another's journals"
        raise ConfigurationError(str(file), problem) from error
    return owners
