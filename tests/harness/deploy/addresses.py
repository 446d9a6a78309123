"""The addresses that services of the compose file name, and the ports that they listen at."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from harness.deploy.composition import ADDRESS, COMPOSE, EVERYWHERE

# Ports that other people's images listen at by default.
_DEFAULT_PORTS: Final = {"jaeger": {4317, 16686}, "grafana": {3000}}
_URL: Final = re.compile(r"http://([^:/]+):(\d+)(/[^'\"\s]*)")


def addresses_of(service: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield each host with a port in the command, the variables and the files of a service."""
    for text in _texts_of(service):
        lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
        for match in ADDRESS.finditer("\n".join(lines)):
            yield match["host"], int(match["port"])


def listening_ports(name: str, service: Mapping[str, Any]) -> set[int]:
    """Return the ports that a service listens at for other services."""
    named = {port for host, port in addresses_of(service) if host == EVERYWHERE}
    return _DEFAULT_PORTS.get(name, set()) | named


def find_url(words: list[str]) -> tuple[str, int, str]:
    """Return the host, the port and the path of the only URL in a command."""
    ((host, port, path),) = (match for word in words for match in _URL.findall(word))
    return host, int(port), path


def _texts_of(service: Mapping[str, Any]) -> Iterator[str]:
    yield from service.get("command", ())
    yield from service.get("environment", {}).values()
    for line in service.get("volumes", ()):
        source = COMPOSE.parent / line.partition(":")[0]
        files = [source] if source.is_file() else source.rglob("*.y*ml")
        yield from (file.read_text(encoding="utf-8") for file in files)
