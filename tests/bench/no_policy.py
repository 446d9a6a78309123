"""`trunkline` without users' statements: `python -m bench.no_policy serve agents …`.

Used only for the row "policy on and off". Every process may act for every account: never run it
where others can connect.
"""

from typing import Any

from trunkline.cli import main
from trunkline.mesh.client import channels
from trunkline.mesh.server import authorization


def _patch() -> None:
    changes: dict[Any, dict[str, object]] = {
        channels: {"StatementSigner": lambda _credentials: None},
        authorization: {"named_account": lambda _request: None},
    }
    for owner, functions in changes.items():
        for name, change in functions.items():
            assert hasattr(owner, name), name
            setattr(owner, name, change)


if __name__ == "__main__":
    _patch()
    main()
