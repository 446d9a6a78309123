"""Finds an agent by MODULE:NAME."""

import importlib
import sys
from pathlib import Path

from trunkline.errors import ConfigurationError
from trunkline.tasks.agent import Agent


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
