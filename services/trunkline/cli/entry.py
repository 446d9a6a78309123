"""Starts the command line: what must hold before the rest of it, which takes a while, is loaded."""

import os
import signal
import sys

_CANCELED = 130


def main() -> None:
    """Run the command line and leave with its exit code.

    What is stopped before it serves ends at once, silently and with 0: nothing is lost yet.
    """
    if sys.argv[1:2] in (["up"], ["serve"], ["join"]):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))
    # Before gRPC is loaded: it would tell people about every connection that is closed.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        from trunkline.cli.app import run_command

        code = run_command()
    except KeyboardInterrupt:
        code = _CANCELED
    sys.exit(code)
