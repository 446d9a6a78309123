"""Settings of a mesh: what can be set, where that is found, what may be reached from outside."""

from trunkline.settings.addresses import HostPort, check_exposure, reachable
from trunkline.settings.checking import read_remote
from trunkline.settings.loading import PREFIX, load_settings
from trunkline.settings.settings import Remote, RemotePeer, Settings

__all__ = [
    "PREFIX",
    "HostPort",
    "Remote",
    "RemotePeer",
    "Settings",
    "check_exposure",
    "load_settings",
    "reachable",
    "read_remote",
]
