"""Hosts start without loading heavy libraries; those are imported on first use."""

import subprocess
import sys

import pytest

HEAVY = ("langgraph", "langchain_core", "mcp", "mcp_types", "sympy", "pypdf")


def test_a_host_starts_without_importing_heavy_libraries() -> None:
    # A separate process, because other tests have imported everything into this one.
    modules = "trunkline.processes.agents, trunkline.processes.all_in_one"
    probe = f"import sys, {modules}; print([name for name in {HEAVY!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True)
    assert loaded.stdout.strip() == b"[]"


@pytest.mark.parametrize(
    ("service", "other"),
    [
        ("trunkline.processes.registry", "trunkline_bridge"),
        ("trunkline.processes.registry", "trunkline.processes.agents"),
        ("trunkline.processes.tools", "trunkline_bridge"),
        ("trunkline.processes.tools", "trunkline.processes.agents"),
        ("trunkline.processes.bridge", "trunkline.processes.agents"),
        ("trunkline.processes.agents", "trunkline_bridge"),
        ("trunkline.processes.agents", "trunkline.a2a_client.a2a_client"),
        ("trunkline.a2a_client.remote_agent", "trunkline.a2a_client.a2a_client"),
    ],
)
def test_a_process_of_one_service_loads_no_other(service: str, other: str) -> None:
    probe = f"import sys, trunkline.cli.serve, {service}; print({other!r} in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True)
    assert loaded.stdout.strip() == b"False"
