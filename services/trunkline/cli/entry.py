"""The entry point of the command line. Sets up the process before slow imports."""

import gc
import os
import signal
import sys

_CANCELED = 130


def main() -> None:
    """Run the command line and exit with its code.

    A serving command that is stopped while it starts exits at once with code 0.
    """
    if sys.argv[1:2] in (["up"], ["serve"], ["join"]):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))
    # What imports create stays, so collections during the start free nothing and take time.
    gc.set_threshold(50_000, 20, 50)
    # Must be set before gRPC is imported. Otherwise it logs every closed connection.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        from trunkline.cli.app import run_command

        code = run_command()
    except KeyboardInterrupt:
        code = _CANCELED
    sys.exit(code)
