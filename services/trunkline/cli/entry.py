"""The entry point of the command line. Sets up the process before slow imports."""

import gc
import os
import sys

# ExitCode.CANCELED, which is slow to import.
_CANCELED = 130


def _prepare(*, is_serving: bool) -> None:
    # Imported here, when `python -m trunkline.cli` no longer searches the current folder.
    import signal

    # Imports create many objects that live as long as the process. Rarer collections start faster.
    gc.set_threshold(50_000, 20, 50)
    if is_serving:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))
        # Until `tune_gc`: collections would be a tenth of the start.
        gc.disable()
    # gRPC reads this when it is imported. Without it, gRPC logs every closed connection.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def main() -> None:
    """Run the command line and exit with its code.

    A serving command that is stopped while it starts exits at once with code 0.
    """
    is_serving = sys.argv[1:2] in (["up"], ["serve"], ["join"])
    try:
        _prepare(is_serving=is_serving)
        from trunkline.cli.app import run_command

        code = run_command()
    except KeyboardInterrupt:
        code = _CANCELED
    if is_serving:
        # All services are closed. The teardown of the interpreter would take a third of a second,
        # for which a command that started a mesh waits.
        from trunkline.core.runtime import exit_now

        exit_now(code)
    sys.exit(code)
