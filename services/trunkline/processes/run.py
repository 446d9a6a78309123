"""Serves agents: `run` as a process, `serve` within a program. `load_agent` imports one by name."""

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from trunkline.core import runtime
from trunkline.core.settings import Settings, load_settings
from trunkline.errors import ConfigurationError, PeerUnavailableError, TrunklineError, find_cause
from trunkline.observe.logs import configure_logging
from trunkline.tasks.agent import Agent


def run(*agents: Agent) -> None:
    """Serve agents on a mesh until SIGTERM or Ctrl-C, then drain the running turns.

    Reads the command line: `--mesh HOST:PORT` (or TRUNKLINE_MESH) is the mesh to join, `--listen
    HOST:PORT` the address to serve on, `--advertise HOST[:PORT]` the address that others use, and
    `--data DIR` the folder of the journal. Prints `ready agent=NAME grpc=HOST:PORT` for each agent
    once it is registered. Any number of processes may serve one agent. If a process can't continue,
    it exits with 1 and one line on stderr.
    """
    flags = _parse(agents)
    _quiet_grpc()
    try:
        settings = load_settings(flags)
        configure_logging(level=settings.log_level, log_format=settings.log_format)
        code = runtime.run(_serve(agents, settings))
    except (TrunklineError, ExceptionGroup) as error:
        cause = find_cause(error)
        if not isinstance(cause, TrunklineError):
            raise
        print(f"error: {cause}", file=sys.stderr)
        code = 1
    raise SystemExit(code)


async def serve(
    *agents: Agent,
    mesh: str | None = None,
    listen: str | None = None,
    advertise: str | None = None,
    data_dir: Path | None = None,
) -> None:
    """Serve agents on a mesh until the call is canceled; for programs with an event loop.

    Settings come from `trunkline.toml` and the environment, as for `run`; arguments other than
    None take precedence. Unlike `run`, this handles no signals, prints nothing and does not
    configure logging. On cancellation, running turns get the usual grace period.

    Raises:
        ConfigurationError: a setting is not valid.
        PermissionDeniedError: this process may not serve an agent of that name on the mesh.
        PeerUnavailableError: the agents can't be served any longer; the log has the cause.
    """
    _quiet_grpc()
    # Imported late: gRPC loads slowly, and modules that only define agents do not need it.
    from trunkline.processes.hosting import join_mesh

    flags = {
        "mesh": mesh,
        "listen": listen,
        "advertise": advertise,
        "data_dir": data_dir,
    }
    try:
        async with join_mesh(lambda _: agents, load_settings(flags)) as status:
            await status.failed.wait()
    except ExceptionGroup as group:
        raise find_cause(group) from group
    raise PeerUnavailableError("this host", "it can't serve its agents any longer; see the log")


def _quiet_grpc() -> None:
    """Keep gRPC from logging each connection that closes. Call before gRPC is imported."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def _parse(agents: Sequence[Agent]) -> Mapping[str, object]:
    names = ", ".join(agent.card.name for agent in agents)
    parser = argparse.ArgumentParser(description=f"Serve on a mesh: {names}")
    parser.add_argument("--mesh", metavar="HOST:PORT", help="the mesh to join")
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="the address to serve on [127.0.0.1:0]"
    )
    parser.add_argument(
        "--advertise", metavar="HOST[:PORT]", help="the address that other processes use"
    )
    parser.add_argument("--data", metavar="DIR", dest="data_dir", help="the folder of the journal")
    return vars(parser.parse_args())


async def _serve(agents: Sequence[Agent], settings: Settings) -> int:
    # Imported late: gRPC and the exporters load slowly.
    from trunkline.processes.hosting import join_mesh

    return await runtime.serve(
        join_mesh(lambda _: agents, settings),
        on_state=_print_state,
        on_waiting=lambda: print(runtime.format_waiting(settings.mesh), file=sys.stderr),
    )


def _print_state(state: str, served: Mapping[str, str]) -> None:
    print(runtime.format_state(state, served), end="", flush=True)


def load_agent(spec: str) -> Agent:
    """Import an agent by `MODULE:NAME`, from the Python path or the current folder.

    The folder comes last, so that its files replace no installed module. It is only searched if
    there is no such module without it, and then stays on the path for what the agent imports
    later.

    Raises:
        ConfigurationError: there is no such module or name, or it is not an agent.
    """
    module_name, _, name = spec.partition(":")
    where = f"--agent {spec}"
    if not module_name or not name:
        raise ConfigurationError(where, "write MODULE:NAME, for example my_agent:hello")
    try:
        module = _import_module(module_name)
    except Exception as error:
        problem = f"can't import it: {type(error).__name__}: {error}"
        raise ConfigurationError(where, problem) from error
    agent = getattr(module, name, None)
    if agent is None:
        file = f" ({module.__file__})" if getattr(module, "__file__", None) else ""
        raise ConfigurationError(where, f"module {module_name}{file} has no {name}")
    if not (hasattr(agent, "card") and hasattr(agent, "run")):
        raise ConfigurationError(where, "is not an agent; decorate the function with @agent")
    loaded: Agent = agent
    return loaded


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        folder = str(Path.cwd())
        is_itself_missing = error.name is not None and f"{name}.".startswith(f"{error.name}.")
        if not is_itself_missing or folder in sys.path:
            raise
    sys.path.append(folder)
    return importlib.import_module(name)
