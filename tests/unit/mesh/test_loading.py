"""What hosts load before they serve: they are up soon, and the rest comes when it is used."""

import subprocess
import sys

import pytest

HEAVY = ("langgraph", "langchain_core", "mcp", "mcp_types", "sympy", "pypdf")


def test_a_host_begins_without_the_libraries_of_what_it_may_be_asked_for() -> None:
    # A process of its own: in this one, other tests have imported everything.
    rooms = "trunkline.mesh.agents, trunkline.mesh.all_in_one"
    probe = f"import sys, {rooms}; print([name for name in {HEAVY!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True)
    assert loaded.stdout.strip() == b"[]"


@pytest.mark.parametrize(
    ("service", "other"),
    [
        ("trunkline.mesh.registry", "trunkline_bridge"),
        ("trunkline.mesh.registry", "trunkline.mesh.agents"),
        ("trunkline.mesh.tools", "trunkline_bridge"),
        ("trunkline.mesh.tools", "trunkline.mesh.agents"),
        ("trunkline.mesh.bridge", "trunkline.mesh.agents"),
        ("trunkline.mesh.agents", "trunkline_bridge"),
        ("trunkline.mesh.remotes", "trunkline_bridge"),
    ],
)
def test_a_process_of_one_service_loads_no_other(service: str, other: str) -> None:
    probe = f"import sys, trunkline.cli.serve, {service}; print({other!r} in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True)
    assert loaded.stdout.strip() == b"False"
