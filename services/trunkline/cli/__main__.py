"""Runs the command line as `python -m trunkline.cli`, independent of PATH."""

import os
import sys

from trunkline.cli.entry import main


def _forget_current_folder() -> None:
    """Remove the folder that `python -m` puts first on the path: its files replace modules.

    Only `python -P -m` protects the modules that are imported before, by Python and the package.
    """
    try:
        folder = os.getcwd()  # noqa: PTH109  pathlib would come from that folder
    except FileNotFoundError:
        return
    if not sys.flags.safe_path and sys.path[0] in {"", folder}:
        del sys.path[0]


if __name__ == "__main__":
    _forget_current_folder()
    main()
