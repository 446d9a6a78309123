"""Connects commands to a mesh, and finds its hosts."""

import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime
from typing import Final, TypeVar

from trunkline.cli.exits import ExitCode, print_error
from trunkline.cli.options import is_mesh_named, resolve_mesh_settings
from trunkline.cli.times import render_age
from trunkline.core.identity import load_credentials
from trunkline.core.network import is_listening
from trunkline.core.settings import ENV_PREFIX
from trunkline.errors import (
    PeerHandshakeError,
    PeerUnavailableError,
    UnauthenticatedError,
)
from trunkline.journal.events import parse_journal_id
from trunkline.mesh.client import (
    ChannelPool,
    Directory,
    HostClient,
    host_queries,
)
from trunkline.observe import telemetry
from trunkline.v1 import registry_service_pb2

T = TypeVar("T")

_NO_MESH: Final = "no mesh answers there; start one with `trunkline up`, or give --mesh"
_NO_URL: Final = "; TRUNKLINE_URL is not for this command, TRUNKLINE_MESH is"


class _CommandDirectory(Directory):
    """A directory whose errors say since when a host is lost."""

    def get_task_host(self, task_id: str) -> registry_service_pb2.Host:
        """Return the host that serves a task's journal.

        Raises:
            TaskNotFoundError: no host has its journal.
            PeerUnavailableError: the host that had its journal died.
        """
        try:
            return super().get_task_host(task_id)
        except PeerUnavailableError:
            journal_id = parse_journal_id(task_id)
            for host in self.lost_hosts:
                if journal_id in host.journal_ids:
                    problem = "no other host has the task; try again when it is back"
                    raise _build_lost_error(host, problem) from None
            raise


async def query_hosts(
    directory: Directory, query: Callable[[HostClient], Awaitable[Sequence[T]]]
) -> tuple[list[T], ExitCode]:
    """Query a host of every store, which answers for hosts that died; see `report_results`."""
    found = await host_queries.query_hosts(directory, query, one_per_store=True)
    return report_results(found, directory.missing_hosts)


def report_results(
    found: host_queries.HostResults[Sequence[T]], lost: Iterable[registry_service_pb2.Host]
) -> tuple[list[T], ExitCode]:
    """Return the results and the exit code.

    An error of a host is printed to stderr and sets the exit code, as does a lost host.
    """
    code = ExitCode.OK
    for error in found.failures:
        code = print_error(error)
    results = [result for answer in found.answers for result in answer]
    return results, print_lost_hosts(lost) or code


def _build_lost_error(host: registry_service_pb2.Host, problem: str) -> PeerUnavailableError:
    names = ", ".join(agent.card.name for agent in host.agents)
    since = render_age(host.lease_expire_time.ToDatetime(UTC), datetime.now(UTC))
    return PeerUnavailableError(
        f"the host {f'of {names} ' * bool(names)}at {host.address}",
        f"it left the mesh {since.replace('now', 'just now')}, and {problem}",
    )


def print_lost_hosts(hosts: Iterable[registry_service_pb2.Host]) -> ExitCode:
    """Print an error for each host that died; return the exit code, OK if there is none."""
    code = ExitCode.OK
    for host in hosts:
        remedy = f"`trunkline mesh release {' '.join(host.journal_ids)}` forgets it"
        problem = f"what it has is not listed until it is back; if it never will be, {remedy}"
        code = print_error(_build_lost_error(host, problem))
    return code


@asynccontextmanager
async def open_directory(
    mesh: str | None, *, follows: bool = False, is_traced: bool = False
) -> AsyncGenerator[Directory]:
    """Yield the directory of the mesh at an address. Without one, the settings name the mesh.

    It has the hosts of this moment. With `follows`, it follows changes while the block runs. Calls
    make spans only if `is_traced`: the list of traces is about the mesh's work, not about commands
    that look at it.

    Raises:
        ConfigurationError: the address is invalid.
        PeerUnavailableError: no mesh answers there.
        PeerHandshakeError, UnauthenticatedError: this user has no valid identity on its mesh.
    """
    settings = resolve_mesh_settings(mesh)
    address = str(settings.mesh)
    try:
        credentials = load_credentials(settings)
    except UnauthenticatedError as error:
        if any([await is_listening(f"http://{each}") for each in settings.mesh.addresses]):
            raise
        raise PeerUnavailableError(address, _describe_no_mesh(mesh)) from error
    async with ChannelPool(credentials) as channels:
        directory = _CommandDirectory(channels, *settings.mesh.addresses)
        try:
            await directory.read()
        except PeerHandshakeError:
            # A mesh answers. Its error says what to do.
            raise
        except PeerUnavailableError as error:
            raise PeerUnavailableError(address, _describe_no_mesh(mesh)) from error
        with nullcontext() if is_traced else telemetry.suppress_spans():
            if not follows:
                yield directory
                return
            # Without a handler, Python would print the warnings of the directory to stderr.
            logging.getLogger("trunkline").addHandler(logging.NullHandler())
            async with directory:
                yield directory


def _describe_no_mesh(mesh: str | None) -> str:
    has_only_url = is_mesh_named(None) and not (mesh or os.environ.get(f"{ENV_PREFIX}MESH"))
    return f"{_NO_MESH}{_NO_URL}" if has_only_url else _NO_MESH
