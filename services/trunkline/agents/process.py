"""Runs agents as a process of their own that joins a mesh: `run`."""

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from trunkline import runtime
from trunkline.errors import ConfigurationError, TrunklineError
from trunkline.logs import configure_logging
from trunkline.settings import Settings, load_settings
from trunkline.tasks.agent import Agent


def run(*agents: Agent) -> None:
    """Put agents on a mesh and serve them until SIGTERM or Ctrl-C, then finish what runs.

    `--mesh HOST:PORT` (or TRUNKLINE_MESH) says where the mesh is, `--listen HOST:PORT` where this
    process serves, `--advertise HOST[:PORT]` where others reach it, `--data DIR` where its journal
    lies. Prints `ready agent=NAME grpc=HOST:PORT` once the agents are registered, and `standby
    agent=NAME …` while another process has the name: it takes that one's place when it is gone.
    Exits 1 with one line on stderr when it can't go on.
    """
    flags = _parse(agents)
    # Before gRPC is loaded: it would tell people about every connection that is closed.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        settings = load_settings(flags)
        configure_logging(level=settings.log_level, log_format=settings.log_format)
        code = runtime.run(_serve(agents, settings))
    except TrunklineError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 1
    raise SystemExit(code)


def _parse(agents: Sequence[Agent]) -> Mapping[str, object]:
    names = ", ".join(agent.card.name for agent in agents)
    parser = argparse.ArgumentParser(description=f"Serve on a mesh: {names}")
    parser.add_argument("--mesh", metavar="HOST:PORT", help="the mesh to join")
    parser.add_argument("--listen", metavar="HOST:PORT", help="serve here [127.0.0.1:0]")
    parser.add_argument("--advertise", metavar="HOST[:PORT]", help="others reach it there")
    parser.add_argument("--data", metavar="DIR", dest="data_dir", help="folder of the journal")
    parser.add_argument(
        "--insecure", action="store_const", const=True, help="listen on other than loopback"
    )
    return vars(parser.parse_args())


async def _serve(agents: Sequence[Agent], settings: Settings) -> int:
    # gRPC and the exporters are loaded by the process that serves, not by whoever defines agents.
    from trunkline.agents.hosting import join_mesh

    return await runtime.serve(
        join_mesh(lambda _: agents, settings),
        on_state=lambda state, served: print(runtime.format_state(state, served), flush=True),
        on_waiting=lambda: print(runtime.format_waiting(settings.mesh), file=sys.stderr),
    )


def load_agent(spec: str) -> Agent:
    """Import an agent; the current folder is on the path.

    Raises:
        ConfigurationError: there is no such module or name, or it isn't an agent.
    """
    module_name, _, name = spec.partition(":")
    where = f"--agent {spec}"
    if not module_name or not name:
        raise ConfigurationError(where, "write MODULE:NAME, for example my_agent:hello")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigurationError(where, f"can't import it: {error!r}") from error
    agent = getattr(module, name, None)
    if agent is None:
        raise ConfigurationError(where, f"module {module_name} has no {name}")
    if not (hasattr(agent, "card") and hasattr(agent, "run")):
        raise ConfigurationError(where, "is not an agent; decorate the function with @agent")
    found: Agent = agent
    return found
