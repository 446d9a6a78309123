"""What hosts load before they serve: they are up soon, and the rest comes when it is used."""

import subprocess
import sys

HEAVY = ("langgraph", "langchain_core", "mcp", "mcp_types", "sympy", "pypdf")


def test_a_host_begins_without_the_libraries_of_what_it_may_be_asked_for() -> None:
    # A process of its own: in this one, other tests have imported everything.
    rooms = "trunkline.mesh.agents, trunkline.mesh.all_in_one"
    probe = f"import sys, {rooms}; print([name for name in {HEAVY!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True)
    assert loaded.stdout.strip() == b"[]"
