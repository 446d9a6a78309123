"""A process loads only what it needs, and heavy libraries only when they are used."""

import subprocess
import sys

import pytest

FRAMEWORKS = "langgraph langchain_core mcp mcp_types sympy pypdf"
AGENTS = "trunkline.processes.agents"
BRIDGE = "trunkline_bridge"
A2A_CLIENT = "trunkline.a2a_client.a2a_client"


# Processes of their own, because other tests have imported everything into this one.
@pytest.mark.parametrize(
    ("loaded", "absent"),
    [
        ("trunkline.processes.registry, trunkline.processes.tools", f"{BRIDGE} {AGENTS}"),
        ("trunkline.processes.bridge", AGENTS),
        (
            f"{AGENTS}, trunkline.a2a_client.remote_agent, trunkline_agents.math.agent, "
            "trunkline.agents.reasoning, trunkline.tools.adapter",
            f"{BRIDGE} {A2A_CLIENT} {FRAMEWORKS}",
        ),
        ("trunkline.processes.all_in_one", FRAMEWORKS),
    ],
    ids=["registry and tools", "bridge", "agents", "all in one"],
)
def test_a_process_loads_neither_other_services_nor_frameworks(loaded: str, absent: str) -> None:
    assert find_loaded(f"import trunkline.cli.serve, {loaded}", absent) == []


def find_loaded(program: str, names: str) -> list[str]:
    """Return those of the names that are loaded after the program has run."""
    probe = f"{program}\nimport sys\nprint(*(n for n in {names.split()} if n in sys.modules))"
    ended = subprocess.run(
        [sys.executable, "-c", probe], check=True, capture_output=True, text=True
    )
    return ended.stdout.split()
