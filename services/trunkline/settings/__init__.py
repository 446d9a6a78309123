"""Settings of a mesh: what can be set, where that is found, what may be reached from outside."""

from trunkline.settings.addresses import HostPort, advertised_address, check_exposure, dial_address
from trunkline.settings.loading import ENV_PREFIX, load_settings
from trunkline.settings.sections import (
    AgentSettings,
    ArgoCDSettings,
    ModelSettings,
    RemoteAgentSettings,
    RemoteEndpointSettings,
    ResearchSettings,
    SupervisorSettings,
)
from trunkline.settings.settings import Settings
from trunkline.settings.tables import parse_remote

__all__ = [
    "ENV_PREFIX",
    "AgentSettings",
    "ArgoCDSettings",
    "HostPort",
    "ModelSettings",
    "RemoteAgentSettings",
    "RemoteEndpointSettings",
    "ResearchSettings",
    "Settings",
    "SupervisorSettings",
    "advertised_address",
    "check_exposure",
    "dial_address",
    "load_settings",
    "parse_remote",
]
