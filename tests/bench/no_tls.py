"""`trunkline` without TLS between processes: `python -m bench.no_tls serve agents …`.

Used only for the rows "mTLS on and off". Every process trusts every other one: never run it where
others can connect.
"""

from typing import TYPE_CHECKING, Any

import grpc

from trunkline.cli import main
from trunkline.core.identity import MeshCredentials
from trunkline.mesh.server.authorization import MeshAuthorizer

if TYPE_CHECKING:
    from collections.abc import Callable


def _patch() -> None:
    # The package has no types for it.
    insecure_channel: Callable[[], object] = grpc.experimental.insecure_channel_credentials
    changes: dict[type[object], dict[str, Any]] = {
        MeshCredentials: {
            "channel_credentials": lambda _self: insecure_channel(),
            "server_credentials": lambda _self: grpc.insecure_server_credentials(),
        },
        MeshAuthorizer: {"_identify": lambda self, _context: self._local},
    }
    for owner, methods in changes.items():
        for name, change in methods.items():
            assert hasattr(owner, name), name
            setattr(owner, name, change)


if __name__ == "__main__":
    _patch()
    main()
