"""`trunkline up`: a whole mesh in this process, until it is told to stop."""

import sys
from collections.abc import Mapping

from trunkline.cli.serving.serve import serve
from trunkline.logs import configure_logging
from trunkline.mesh.all_in_one import open_mesh
from trunkline.settings import load_settings


async def up(flags: Mapping[str, object], *, is_attached: bool, as_json: bool) -> int:
    """Bring a mesh up, print where it serves, and drain it on SIGTERM or Ctrl-C.

    A second signal ends the process at once. If attached, it also stops when stdin ends: whoever
    started it holds the other end, and may be killed.

    Raises:
        ConfigurationError: a setting is wrong, or an address can't be used.
    """
    settings = load_settings(flags)
    configure_logging(level=settings.log_level, log_format=settings.log_format)
    lifeline = sys.stdin.fileno() if is_attached else None
    return await serve(open_mesh(settings), settings, as_json=as_json, lifeline=lifeline)
