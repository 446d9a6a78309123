"""The file of the registered hosts, so that a restarted registry misses hosts that died."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from google.protobuf import json_format

from trunkline.core.private_files import write_private_file
from trunkline.core.runtime import finish
from trunkline.errors import ConfigurationError
from trunkline.v1 import registry_service_pb2

logger = logging.getLogger(__name__)


class KnownHostsFile:
    """Keeps the hosts with their journals and the names of their agents, without the cards."""

    def __init__(self, path: Path | None) -> None:
        """Without a path, nothing is kept."""
        self._path = path
        self._saved = registry_service_pb2.ListAgentsResponse()

    def load(self) -> Sequence[registry_service_pb2.Host]:
        """Return the saved hosts, the lost ones first.

        They are presumed to be lost. For a host that was alive, `lease_expire_time` is now. A file
        that can't be read is logged, and counts as empty: it only makes errors more exact.
        """
        if self._path is None or not self._path.exists():
            return ()
        found = registry_service_pb2.ListAgentsResponse()
        try:
            json_format.Parse(self._path.read_bytes(), found, ignore_unknown_fields=True)
        except (OSError, json_format.ParseError) as error:
            logger.warning("registry.hosts_not_read", extra={"problem": str(error)})
            return ()
        for host in found.hosts:
            host.lease_expire_time.GetCurrentTime()
        hosts = (*found.lost_hosts, *found.hosts)
        for host in hosts:
            host.is_presumed_lost = True
        return hosts

    async def save(
        self,
        live: Iterable[registry_service_pb2.Host],
        lost: Iterable[registry_service_pb2.Host],
    ) -> None:
        """Save the hosts with journals, unless they are saved already. A failure is logged.

        Calls must not overlap. A canceled caller waits for the end of the write.
        """
        if self._path is None:
            return
        current = registry_service_pb2.ListAgentsResponse(
            hosts=[_shorten(host) for host in live if host.journal_ids],
            lost_hosts=[_shorten(host) for host in lost],
        )
        if current == self._saved:
            return
        loop = asyncio.get_running_loop()
        try:
            await finish(loop.run_in_executor(None, _write, self._path, current))
        except ConfigurationError as error:
            logger.error("registry.hosts_not_saved", extra={"problem": str(error)})
        else:
            self._saved = current


def _write(path: Path, hosts: registry_service_pb2.ListAgentsResponse) -> None:
    # In a thread, too: the text of thousands of hosts takes seconds.
    write_private_file(path, json_format.MessageToJson(hosts).encode())


def _shorten(host: registry_service_pb2.Host) -> registry_service_pb2.Host:
    """Return the parts of a host that are kept when it is lost."""
    short = registry_service_pb2.Host(
        host_id=host.host_id,
        address=host.address,
        journal_ids=host.journal_ids,
        identity=host.identity,
        store_id=host.store_id,
    )
    if host.HasField("lease_expire_time"):
        short.lease_expire_time.CopyFrom(host.lease_expire_time)
    for agent in host.agents:
        short.agents.add().card.name = agent.card.name
    return short
