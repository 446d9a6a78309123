"""The compose file and the container file agree with each other, the settings and the command line.

`tests/integration/deploy/test_compose.py` runs what they say. What is here is found without a
process of another's image, and at once.
"""

import asyncio
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import opentelemetry.environment_variables
import opentelemetry.sdk.environment_variables
import pytest
import yaml
from typer.testing import CliRunner

from harness.deploy.addresses import find_url, listening_ports
from harness.deploy.composition import COMPOSE, THIS_HOST, is_ours, read_services
from harness.deploy.image import CONTAINERFILE, ROOT, read_image
from harness.deploy.limits import Limits
from harness.mesh.command_line import COMMAND
from harness.mesh.process_sizes import IDLE_MESH_BYTES
from trunkline.cli.app import app
from trunkline.core.settings import Settings

SERVICES: Final = read_services({"TRUNKLINE_WEBHOOK_SECRET": "whsec_c2VjcmV0IG9mIHRoaXMgdGVzdA=="})
OURS: Final = {name: service for name, service in SERVICES.items() if is_ours(service)}
OTHERS: Final = SERVICES.keys() - OURS.keys()
IMAGE: Final = read_image()
PAGE: Final = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
PROVISIONING: Final = ROOT / "deploy/grafana/provisioning"
# The paths that other people's images answer at when they are ready.
READY: Final = {"prometheus": "/-/ready", "grafana": "/api/health"}
# Where other people's images read and write without being told.
PLACES: Final = {
    "grafana": ("/etc/grafana/provisioning", "/var/lib/grafana", "/tmp"),
    "jaeger": ("/tmp",),
}
GRAFANA_SETTINGS: Final = frozenset(
    f"GF_{name}"
    for name in (
        *("AUTH_ANONYMOUS_ENABLED", "AUTH_ANONYMOUS_ORG_ROLE"),
        *("SECURITY_DISABLE_INITIAL_ADMIN_CREATION", "DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"),
        *("ANALYTICS_REPORTING_ENABLED", "ANALYTICS_CHECK_FOR_UPDATES"),
        *("PLUGINS_PREINSTALL_DISABLED", "PLUGINS_PREINSTALL_AUTO_UPDATE"),
    )
)
OTEL_SETTINGS: Final = frozenset(
    name
    for module in (opentelemetry.environment_variables, opentelemetry.sdk.environment_variables)
    for name in vars(module)
    if name.startswith("OTEL_")
)
# Of Python and of the system.
USUAL: Final = frozenset({"PATH", "HOME", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"})
ABSOLUTE: Final = re.compile(r"(?<![\w.:/$])/\w[\w./-]*")


def environment_of(service: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of a service of ours."""
    return {**IMAGE.environment, **service.get("environment", {})}


def mounts_of(service: Mapping[str, Any]) -> dict[str, Path | None]:
    """Return a container's folders with their paths in `deploy/`; None: it may write there."""
    mounts: dict[str, Path | None] = {}
    for line in service.get("volumes", ()):
        source, inside, *_ = line.split(":")
        mounts[inside] = COMPOSE.parent / source if source.startswith(".") else None
    return mounts | {line.partition(":")[0]: None for line in service.get("tmpfs", ())}


def is_there(path: str, mounts: Mapping[str, Path | None]) -> bool:
    """Return whether a path in a container is a file that is mounted, or one it may write."""
    for inside, source in mounts.items():
        if PurePosixPath(path).is_relative_to(inside):
            below = PurePosixPath(path).relative_to(inside)
            return source is None or (source / below).exists()
    return False


def paths_of(name: str, service: Mapping[str, Any]) -> Iterator[str]:
    """Yield the absolute paths in a service's settings, and those that it always needs."""
    variables = environment_of(service) if name in OURS else service.get("environment", {})
    texts = [value for key, value in variables.items() if key != "PATH"]
    for text in [*service.get("command", ()), *texts]:
        yield from ABSOLUTE.findall(text.partition("=")[2] if text.startswith("--") else text)
    yield from PLACES.get(name, ())


@pytest.mark.parametrize("name", SERVICES)
def test_each_path_in_a_container_is_mounted_there(name: str) -> None:
    mounts = mounts_of(SERVICES[name])
    found = list(paths_of(name, SERVICES[name]))
    assert [path for path in found if not is_there(path, mounts)] == []
    if name in OURS:
        assert mounts.keys() >= IMAGE.volumes
        assert {"/tmp", *IMAGE.volumes} == set(mounts)


def test_other_images_are_told_where_their_configuration_is() -> None:
    files = {"collector": "--config=", "prometheus": "--config.file="}
    for name, flag in files.items():
        (word,) = (word for word in SERVICES[name]["command"] if word.startswith(flag))
        assert is_there(word.removeprefix(flag), mounts_of(SERVICES[name]))


def test_grafana_finds_its_dashboards_and_the_traces_of_exemplars() -> None:
    mounts = mounts_of(SERVICES["grafana"])
    dashboards = yaml.safe_load((PROVISIONING / "dashboards/trunkline.yaml").read_text())
    for provider in dashboards["providers"]:
        folder = mounts[provider["options"]["path"]]
        assert folder
        assert list(folder.glob("*.json"))
    sources = yaml.safe_load((PROVISIONING / "datasources/trunkline.yaml").read_text())
    uids = {source["uid"] for source in sources["datasources"]}
    for source in sources["datasources"]:
        for link in source["jsonData"].get("exemplarTraceIdDestinations", ()):
            assert link["datasourceUid"] in uids
            assert link["name"] == "trace_id"


@pytest.mark.parametrize("name", OURS)
def test_the_command_line_knows_the_command_of_a_service(name: str) -> None:
    check_command([*IMAGE.entrypoint, *OURS[name]["command"]])


def test_the_command_line_knows_the_command_of_the_image() -> None:
    check_command([*IMAGE.entrypoint, *IMAGE.command])


def check_command(words: list[str]) -> None:
    """Check the names of a command and its options, without running it."""
    program, *arguments = words
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert program in project["scripts"]
    result = CliRunner().invoke(app, [*arguments, "--help"])
    assert result.exit_code == 0, result.output


async def sources_of(environment: Mapping[str, str], folder: Path) -> set[str]:
    """Return the variables that settings come from."""
    # Those of the tests are no part of it.
    others = {key: value for key, value in os.environ.items() if key not in environment}
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "config", "show", "--set", "--json",
        cwd=folder, env={**others, **environment}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == 0
    return {setting["source"] for setting in json.loads(output)}


async def test_each_variable_of_a_service_is_a_setting(tmp_path: Path) -> None:
    checked: list[dict[str, str]] = []
    for service in OURS.values():
        variables = environment_of(service)
        own = {key: value for key, value in variables.items() if key.startswith("TRUNKLINE_")}
        assert variables.keys() - own.keys() - USUAL <= OTEL_SETTINGS
        # Most services have the same ones.
        if own not in checked:
            assert own.keys() <= await sources_of(own, tmp_path)
            checked.append(own)


def test_each_variable_of_grafana_is_a_setting() -> None:
    assert SERVICES["grafana"]["environment"].keys() == GRAFANA_SETTINGS


def test_callers_may_name_the_services_that_are_allowed() -> None:
    for service in OURS.values():
        names = service["environment"].get("TRUNKLINE_ALLOWED_HOSTS", "").split(",")
        assert set(filter(None, names)) <= OURS.keys()


@pytest.mark.parametrize("name", [name for name in SERVICES if name in OURS or name in READY])
def test_a_probe_asks_a_port_of_its_own_container(name: str) -> None:
    service = SERVICES[name]
    check = service.get("healthcheck")
    host, port, path = find_url(check["test"] if check else list(IMAGE.healthcheck))
    assert host == THIS_HOST
    assert port in listening_ports(name, service)
    assert path == READY.get(name, path)


def test_ports_are_published_under_their_numbers_and_documented() -> None:
    published = set()
    for service in SERVICES.values():
        for line in service.get("ports", ()):
            host, outside, inside = line.split(":")
            assert (host, outside) == (THIS_HOST, inside)
            published.add(int(outside))
    assert published == {int(port) for port in re.findall(rf"`[^`]*{THIS_HOST}:(\d+)`", PAGE)}


def test_the_documentation_names_the_same_images() -> None:
    text = (ROOT / "docs/observability.md").read_text(encoding="utf-8")
    images = {service["image"] for service in SERVICES.values()}
    named = {image.partition(":")[0] for image in images}
    for name, tag in re.findall(r"([\w-]+/[\w-]+):([\d.]+)", text):
        assert name not in named or f"{name}:{tag}" in images, (name, tag)


def test_a_service_stops_only_when_its_work_may_have_ended() -> None:
    grace_s = {float(service["stop_grace_period"].removesuffix("s")) for service in OURS.values()}
    settings = Settings()
    assert min(grace_s) >= settings.drain_grace_s + settings.cancel_grace_s


def has_enough_memory(service: Mapping[str, Any]) -> bool:
    """Return whether a container has room for a whole idle mesh beside its files in memory.

    One service is less than that when idle. The rest is for its work.
    """
    limits = Limits.of_service(service)
    return limits.memory_bytes - limits.files_bytes >= IDLE_MESH_BYTES


@pytest.mark.parametrize("name", OURS)
def test_a_service_has_enough_memory(name: str) -> None:
    assert has_enough_memory(OURS[name])


@pytest.mark.parametrize(
    "mistake",
    [
        {"mem_limit": "512k"},
        {"mem_limit": "64m"},
        {"mem_limit": "200m"},
        # Enough for the process, but not for its files in memory too.
        {"mem_limit": "256m"},
        {"tmpfs": ["/tmp:size=512m,mode=1777"]},
    ],
)
def test_too_little_memory_is_noticed(mistake: dict[str, Any]) -> None:
    assert not has_enough_memory(OURS["registry"] | mistake)


def test_services_of_ours_are_built_from_the_container_file() -> None:
    for service in OURS.values():
        context = (COMPOSE.parent / service["build"]["context"]).resolve()
        assert context == ROOT
        assert context / service["build"]["dockerfile"] == CONTAINERFILE
        for file in service["env_file"]:
            assert not file["required"]
            assert f"deploy/{file['path']}" in PAGE


def test_the_container_file_agrees_with_itself() -> None:
    text = CONTAINERFILE.read_text(encoding="utf-8")
    for path in re.findall(r"requirements/\w+\.txt", text):
        assert (ROOT / path).exists(), path
    # Both stages have the environment at the same place, whose path its scripts name.
    ((made, copied),) = re.findall(r"^COPY --from=build (\S+) (\S+)$", text, re.MULTILINE)
    assert made == copied
    assert f"python -m venv --without-pip {made}" in text
    assert IMAGE.environment["PATH"] == f"{made}/bin:$PATH"
    (volume,) = IMAGE.volumes
    user, _, group = IMAGE.user.partition(":")
    assert f"install -d -m 0700 -o {user} -g {group} {volume}" in text
    for name, value in IMAGE.environment.items():
        if name != "PATH" and value.startswith("/"):
            assert PurePosixPath(value).is_relative_to(volume), name
    assert f"`{IMAGE.folder}/trunkline.toml`" in PAGE


def test_the_image_exposes_the_ports_that_it_listens_at() -> None:
    ports = {int(port) for word in IMAGE.command for port in re.findall(r":(\d+)$", word)}
    ports |= {int(IMAGE.environment["TRUNKLINE_METRICS_ADDRESS"].rpartition(":")[2])}
    assert {*ports, Settings().mesh.first.port} == IMAGE.ports
    host, port, path = find_url(list(IMAGE.healthcheck))
    assert f"{host}:{port}" == IMAGE.environment["TRUNKLINE_METRICS_ADDRESS"]
    assert path == "/metrics"
