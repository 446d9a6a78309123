"""Mistakes in `deploy/compose.yaml` that keep a container from starting are noticed without one.

`test_compose.py` runs the services of the file as they are, and fails as soon as one of them ends.
Here each mistake ends its service. So the test of the file finds it.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from harness.deploy.composition import Composition, read_services
from harness.mesh.command_line import run_command

Service: TypeAlias = dict[str, Any]
Mistake: TypeAlias = Callable[[Service], None]

UNAUTHENTICATED: Final = "can be reached from other machines, and callers are not authenticated"
METRICS: Final = "can be reached from other machines without credentials"
UNADVERTISED: Final = "give --advertise HOST, or HOST:PORT"
# No refusal depends on variables of others, without which a process starts as a fork.
OWN: Final = "TRUNKLINE_"


def without_variable(name: str) -> Mistake:
    """Return the mistake that a variable is missing."""
    return lambda service: service["environment"].pop(name)


def with_variable(name: str, value: str) -> Mistake:
    """Return the mistake that a variable has another value."""
    return lambda service: service["environment"].update({name: value})


def without_option(name: str, *, has_value: bool = True) -> Mistake:
    """Return the mistake that an option is missing."""

    def remove(service: Service) -> None:
        at = service["command"].index(name)
        del service["command"][at : at + 1 + has_value]

    return remove


def with_option(name: str, value: str) -> Mistake:
    """Return the mistake that an option has another value."""

    def replace(service: Service) -> None:
        service["command"][service["command"].index(name) + 1] = value

    return replace


def on_grpc_only(service: Service) -> None:
    """Let the bridge take requests without credentials from this machine, but not over gRPC."""
    without_option("--insecure", has_value=False)(service)
    with_option("--http", "127.0.0.1:8000")(service)


@pytest.mark.parametrize(
    ("name", "mistake", "problem"),
    [
        ("registry", without_variable("TRUNKLINE_METRICS_PUBLIC"), METRICS),
        ("messages", with_variable("TRUNKLINE_METRICS_PUBLIC", "false"), METRICS),
        ("bridge", without_option("--insecure", has_value=False), UNAUTHENTICATED),
        ("bridge", on_grpc_only, UNAUTHENTICATED),
        ("tools", without_option("--advertise"), UNADVERTISED),
        ("supervisor", without_option("--advertise"), UNADVERTISED),
        ("agents", without_option("--advertise"), UNADVERTISED),
        ("messages", without_option("--advertise"), UNADVERTISED),
        ("tools", with_option("--advertise", "0.0.0.0:50061"), "name one that others can reach"),
        ("agents", with_option("--listen", "50063"), "is not HOST:PORT"),
    ],
)
async def test_a_service_with_a_mistake_does_not_start(
    name: str, mistake: Mistake, problem: str, tmp_path: Path
) -> None:
    services = copy.deepcopy(read_services())
    mistake(services[name])
    mesh = Composition(tmp_path, services)
    _, *words = mesh.command(name)
    variables = mesh.environment(name)
    own = {key: value for key, value in variables.items() if key.startswith(OWN)}
    result = await run_command(*words, folder=tmp_path, **own)
    assert result.exit
    assert problem in result.err
