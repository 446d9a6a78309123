"""The limits that the compose file sets for a container."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

_SIZE: Final = re.compile(r"(\d+)([bkmg])b?")
_UNITS: Final = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits of a container. Beyond them, the kernel kills or refuses."""

    memory_bytes: int
    """The limit of its processes and its files in memory together."""
    files_bytes: int
    """The limit of its files in memory."""
    threads: int
    """The limit of the threads of its processes. Each has one at least."""

    @classmethod
    def of_service(cls, service: Mapping[str, Any]) -> Self:
        """Read the limits of a service."""
        files = re.findall(r"size=(\w+)", " ".join(service.get("tmpfs", ())))
        return cls(
            memory_bytes=parse_size(service["mem_limit"]),
            files_bytes=sum(parse_size(size) for size in files),
            threads=service["pids_limit"],
        )


def parse_size(text: str) -> int:
    """Return the bytes of a size as the compose file writes it: `512m`."""
    found = _SIZE.fullmatch(text)
    assert found, f"{text!r} has no unit"
    return int(found[1]) * _UNITS[found[2]]
