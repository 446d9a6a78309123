"""Runs agents as a process of their own that joins a mesh: `run`."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trunkline.errors import ConfigurationError, TrunklineError
from trunkline.logs import configure_logging
from trunkline.settings import HostPort, Settings, check_exposure, load_settings
from trunkline.tasks.agent import Agent

if TYPE_CHECKING:
    from trunkline.registry.membership import Membership
    from trunkline.v1 import registry_service_pb2


def run(*agents: Agent) -> None:
    """Put agents on a mesh and serve them until SIGTERM or Ctrl-C, then finish what runs.

    `--mesh HOST:PORT` (or TRUNKLINE_MESH) says where the mesh is, `--listen HOST:PORT` where this
    process serves, `--data DIR` where its journal lies. Prints `ready agent=NAME grpc=HOST:PORT`
    once the agents are registered. Exits 1 with one line on stderr when it can't go on.
    """
    flags = _parse(agents)
    # Before gRPC is loaded: it would tell people about every connection that is closed.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        settings = load_settings({"mesh": flags.mesh, "data_dir": flags.data})
        listen = _parse_listen(flags.listen, settings, insecure=flags.insecure)
        configure_logging(level=settings.log_level, form=settings.log_format)
        asyncio.run(_serve(agents, settings, listen))
    except TrunklineError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def _parse(agents: Sequence[Agent]) -> argparse.Namespace:
    names = ", ".join(agent.card.name for agent in agents)
    parser = argparse.ArgumentParser(description=f"Serve on a mesh: {names}")
    parser.add_argument("--mesh", metavar="HOST:PORT", help="the mesh to join")
    parser.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:0")
    parser.add_argument("--data", metavar="DIR", help="folder of the journal")
    parser.add_argument("--insecure", action="store_true", help="listen on other than loopback")
    return parser.parse_args()


def _parse_listen(text: str, settings: Settings, *, insecure: bool) -> HostPort:
    try:
        listen = HostPort.parse(text)
    except ValueError as error:
        raise ConfigurationError("--listen", str(error)) from None
    check_exposure(replace(settings, mesh=listen, insecure=insecure))
    return listen


async def _serve(agents: Sequence[Agent], settings: Settings, listen: HostPort) -> None:
    # gRPC and the exporters are loaded by the process that serves, not by whoever defines agents.
    from trunkline.agents.hosting import describe_host, open_host, serve_host
    from trunkline.client.channels import Channels
    from trunkline.client.directory import Directory
    from trunkline.client.registry import RegistryClient
    from trunkline.registry.membership import Membership
    from trunkline.server.mesh_server import MeshServer
    from trunkline.traces import configure

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    name = agents[0].card.name
    mesh = str(settings.mesh)
    journal_path = settings.data_dir / "journals" / f"{name}.db"
    async with contextlib.AsyncExitStack() as stack:
        telemetry = configure(name, mesh_address=mesh)
        stack.callback(telemetry.shutdown)
        channels = await stack.enter_async_context(Channels())
        directory = await stack.enter_async_context(Directory(channels, mesh))
        host = await stack.enter_async_context(
            open_host(agents, journal_path=journal_path, directory=directory, settings=settings)
        )
        server = MeshServer()
        serve_host(server, host)
        (address,) = await server.start(str(listen))
        stack.push_async_callback(server.stop, 1.0)
        member = describe_host(host, address=address)
        membership = Membership(RegistryClient(channels.get(mesh)), member)
        async with membership, asyncio.TaskGroup() as group:
            announcing = group.create_task(_announce(membership, mesh, member))
            await stop.wait()
            announcing.cancel()
        await host.drain(settings.drain_grace_s)


async def _announce(
    membership: "Membership", mesh: str, member: "registry_service_pb2.Host"
) -> None:
    """Say when the agents are on the mesh, and until then what is waited for."""
    if not membership.registered.is_set():
        print(f"waiting for a mesh at {mesh}; `trunkline up` starts one", file=sys.stderr)
        await membership.registered.wait()
    for agent in member.agents:
        print(f"ready agent={agent.card.name} grpc={member.address}", flush=True)
