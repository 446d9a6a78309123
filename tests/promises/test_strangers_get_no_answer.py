"""Promise: a process without the mesh's identity gets nothing, wherever it runs."""

import asyncio
import base64
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from harness.a2a.sse_client import call, user_message
from harness.mesh import stranger_process
from harness.mesh.host_processes import PATIENCE_S
from harness.mesh.issuing_mesh import credentials_in
from harness.mesh.mesh_methods import all_methods
from harness.mesh.other_identities import Stranger, authority_in, strangers
from harness.mesh.places import NOBODY, Network, find_obstacle, open_network
from harness.mesh.processes import running_services
from harness.promise_scale import PromiseScale
from trunkline.core.identity.folder import IdentityFolder
from trunkline.mesh.client import ChannelPool, RegistryClient
from trunkline.mesh.server import MeshServer
from trunkline.mesh.server.socket_folder import socket_address

HEALTH = "/grpc.health.v1.Health/Check"


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="home-") as name:
        state = Path(name) / "state"
        state.mkdir()
        for folder in (Path(name), state):
            folder.chmod(0o755)
        yield Path(name)


async def attack(
    addresses: set[str],
    known: Mapping[str, Stranger],
    *,
    user: int | None = None,
    network: Network | None = None,
    paths: tuple[Path, ...] = (),
    methods: Sequence[str] = (),
) -> dict[str, Any]:
    """Call methods, by default all, from a process of a user or network; return what it got."""
    tries = {
        "user": user,
        "methods": list(methods or all_methods()),
        "addresses": sorted(addresses),
        "paths": [str(path) for path in paths],
        "credentials": {
            name: None if parts is None else [base64.b64encode(part).decode() for part in parts]
            for name, parts in known.items()
        },
    }
    command = (sys.executable, "-P", stranger_process.__file__)
    async with asyncio.timeout(PATIENCE_S):
        process = await asyncio.create_subprocess_exec(
            *(command if network is None else network.enter(*command)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate(json.dumps(tries).encode())
    assert process.returncode == 0
    result: dict[str, Any] = json.loads(output)
    assert result["user"] == (os.geteuid() if user is None else user)
    return result


def check_refused(result: dict[str, Any], *, calls: int) -> None:
    """Assert that each handshake fails: the server sends nothing, not even a status."""
    assert len(result["answers"]) == calls
    for stranger, statuses in result["answers"].items():
        assert set(statuses) == set(all_methods())
        assert set(statuses.values()) == {"UNAVAILABLE"}, stranger


def check_served(result: dict[str, Any]) -> None:
    assert [set(statuses.values()) for statuses in result["answers"].values()] == [{"OK"}] * 4


def read_member(folder: IdentityFolder) -> tuple[bytes, ...]:
    """Return the credentials of the mesh's owner. The file of the certificate has its key."""
    certificate = folder.certificate.read_bytes()
    return folder.roots.read_bytes(), certificate, certificate


async def test_services_in_processes_of_their_own_work_and_answer_no_stranger(
    home: Path, scale: PromiseScale
) -> None:
    """Other users and networks are for `make prove`, because they need rights on the machine."""
    obstacle = find_obstacle() if scale.is_proof else "only in a proof"
    environment = {"TRUNKLINE_IDENTITY_FOLDER": "", "XDG_STATE_HOME": str(home / "state")}
    async with AsyncExitStack() as stack:
        network: Network | str = obstacle
        if not obstacle:
            network = await stack.enter_async_context(open_network())
        services = await stack.enter_async_context(
            running_services(
                home,
                agents=("supervisor", "math"),
                servers=("math",),
                environment=environment,
                host=network.host if isinstance(network, Network) else "127.0.0.1",
            )
        )
        (state,) = (home / "state" / "trunkline" / "meshes").iterdir()
        folder = IdentityFolder(state)
        credentials = await asyncio.to_thread(credentials_in, folder)
        channels = await stack.enter_async_context(ChannelPool(credentials))
        registry = RegistryClient(channels.get(services.mesh_address))
        addresses = {services.mesh_address}
        addresses |= {host.address for host in await registry.list_agents()}
        assert len(addresses) == 4
        question = {"message": user_message("what is 2 + 3?")}
        answer = await call(services.http_url, "/", "SendMessage", question)
        assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"

        known = await asyncio.to_thread(strangers, authority_in(folder))
        calls = len(addresses) * len(known)
        check_refused(await attack(addresses, known), calls=calls)
        member = {"a member": await asyncio.to_thread(read_member, folder)}
        if not obstacle:
            # A socket as `up` has it, for calls within a process.
            socket = stack.enter_context(socket_address())
            server = MeshServer()
            await server.start(socket)
            stack.push_async_callback(server.stop, 0)
            paths = (
                state,
                folder.root_key,
                folder.certificate,
                home / "data" / "private",
                Path(socket.removeprefix("unix:")),
            )
            result = await attack(addresses, known, user=NOBODY, paths=paths)
            check_refused(result, calls=calls)
            assert result["files"] == {str(path): "PermissionError" for path in paths}
            # All paths exist, and the addresses can be reached.
            own = await attack(addresses, member, paths=paths, methods=[HEALTH])
            assert set(own["files"].values()) == {""}
            check_served(await attack(addresses, member, user=NOBODY, methods=[HEALTH]))
        if isinstance(network, Network):
            check_refused(await attack(addresses, known, network=network), calls=calls)
            check_served(await attack(addresses, member, network=network, methods=[HEALTH]))
    scale.report(
        addresses=len(addresses),
        strangers=len(known),
        methods=len(all_methods()),
        other_user=obstacle or "refused",
        other_network="refused" if isinstance(network, Network) else network,
    )
