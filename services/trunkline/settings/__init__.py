"""Settings of a mesh: what can be set, where that is found, what may be reached from outside."""

from trunkline.settings.addresses import HostPort, advertised_address, check_exposure, dial_address
from trunkline.settings.loading import AGENT_PLUGIN_GROUP, ENV_PREFIX, load_settings
from trunkline.settings.plugins import OptionsT, load_plugin_settings, read_options
from trunkline.settings.sections import (
    AgentSettings,
    ModelSettings,
    PluginTable,
    RemoteAgentSettings,
    RemoteEndpointSettings,
    SupervisorSettings,
)
from trunkline.settings.settings import Settings
from trunkline.settings.tables import parse_remote
from trunkline.settings.values import check_optional_url

__all__ = [
    "AGENT_PLUGIN_GROUP",
    "ENV_PREFIX",
    "AgentSettings",
    "HostPort",
    "ModelSettings",
    "OptionsT",
    "PluginTable",
    "RemoteAgentSettings",
    "RemoteEndpointSettings",
    "Settings",
    "SupervisorSettings",
    "advertised_address",
    "check_exposure",
    "check_optional_url",
    "dial_address",
    "load_plugin_settings",
    "load_settings",
    "parse_remote",
    "read_options",
]
