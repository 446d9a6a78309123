"""Runs the command line as `python -m trunkline.cli`, independent of PATH."""

import sys

from trunkline.cli.entry import main

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # `python -m` puts the current folder there, whose files must not replace modules. Those
        # that Python imported before can only be protected by `python -P -m`.
        del sys.path[0]
    main()
