"""Settings of a mesh: what can be set, where that is found, what may be reached from outside."""

from trunkline.settings.addresses import HostPort, advertised, check_exposure, reachable
from trunkline.settings.agents import AgentOptions, ModelOptions
from trunkline.settings.loading import PREFIX, load_settings
from trunkline.settings.remotes import Remote, RemotePeer
from trunkline.settings.services import ArgoCD, Research
from trunkline.settings.settings import Settings
from trunkline.settings.supervisors import SupervisorOptions
from trunkline.settings.tables import read_remote

__all__ = [
    "PREFIX",
    "AgentOptions",
    "ArgoCD",
    "HostPort",
    "ModelOptions",
    "Remote",
    "RemotePeer",
    "Research",
    "Settings",
    "SupervisorOptions",
    "advertised",
    "check_exposure",
    "load_settings",
    "reachable",
    "read_remote",
]
