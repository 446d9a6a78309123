"""A process that is not on a mesh and tries to enter it. Run as a script, also as another user.

Reads what to try from stdin, and prints the outcomes, both as JSON. It loads everything before it
changes its user, who may not read our interpreter.
"""

import base64
import json
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any, Final

import grpc

_CALL_S: Final = 60.0
_NAME: Final = "mesh.trunkline"


def become(user: int) -> None:
    """Take the rights of another user, and no others."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def touch(path: Path) -> str:
    """Return the name of the error with which a file, folder or socket can't be opened, or ""."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            list(path.iterdir())
        elif stat.S_ISSOCK(mode):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
        else:
            path.read_bytes()
    except OSError as error:
        return type(error).__name__
    return ""


def call_all(
    address: str, credentials: grpc.ChannelCredentials | None, methods: list[str]
) -> dict[str, str]:
    """Call every method at an address; return the statuses of the answers."""
    options = (("grpc.ssl_target_name_override", _NAME), ("grpc.enable_http_proxy", 0))
    channel = (
        grpc.insecure_channel(address, options=options)
        if credentials is None
        else grpc.secure_channel(address, credentials, options=options)
    )
    statuses: dict[str, str] = {}
    with channel:
        for path in methods:
            method: Any = channel.unary_unary(path)
            # Unlike the call itself, its future raises no error that has no status.
            statuses[path] = method.future(b"", timeout=_CALL_S).code().name
    return statuses


def _load(parts: list[str] | None) -> grpc.ChannelCredentials | None:
    return None if parts is None else grpc.ssl_channel_credentials(*map(base64.b64decode, parts))


def main() -> None:
    """Try what stdin names."""
    tries: dict[str, Any] = json.load(sys.stdin)
    # Loads the rest of grpc.
    call_all("127.0.0.1:1", None, ["/none/none"])
    if tries["user"] is not None:
        become(tries["user"])
    answers = {
        f"{address} with {name}": call_all(address, _load(parts), tries["methods"])
        for address in tries["addresses"]
        for name, parts in tries["credentials"].items()
    }
    files = {path: touch(Path(path)) for path in tries["paths"]}
    json.dump({"user": os.geteuid(), "answers": answers, "files": files}, sys.stdout)


if __name__ == "__main__":
    main()
