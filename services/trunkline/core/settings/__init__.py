"""Settings of a mesh: their names and defaults, their sources, and addresses to listen on."""

from trunkline.core.settings.addresses import (
    HostPort,
    MeshAddress,
    advertised_address,
    check_exposure,
    dial_address,
)
from trunkline.core.settings.constraints import check_optional_postgres_url, check_optional_url
from trunkline.core.settings.extras import describe_install, list_installed_extras
from trunkline.core.settings.limits import AccountLimits, Budget, LimitSettings
from trunkline.core.settings.loading import (
    CONFIG_FILE,
    IgnoredSettings,
    load_settings,
    parse_remote,
)
from trunkline.core.settings.plugins import OptionsT, load_plugin_settings, read_options
from trunkline.core.settings.sections import (
    AccountPolicy,
    AgentSettings,
    GraphQLSettings,
    MessagingSettings,
    MetricsSettings,
    ModelSettings,
    PageSettings,
    ParticipantSettings,
    PluginTable,
    PolicySettings,
    RemoteAgentSettings,
    RemoteEndpointSettings,
    ScopeSettings,
    SupervisorSettings,
    TlsSettings,
    TreeSettings,
)
from trunkline.core.settings.settings import (
    AGENT_PLUGIN_GROUP,
    DEFAULTS,
    ENV_PREFIX,
    Settings,
)

__all__ = [
    "AGENT_PLUGIN_GROUP",
    "CONFIG_FILE",
    "DEFAULTS",
    "ENV_PREFIX",
    "AccountLimits",
    "AccountPolicy",
    "AgentSettings",
    "Budget",
    "GraphQLSettings",
    "HostPort",
    "IgnoredSettings",
    "LimitSettings",
    "MeshAddress",
    "MessagingSettings",
    "MetricsSettings",
    "ModelSettings",
    "OptionsT",
    "PageSettings",
    "ParticipantSettings",
    "PluginTable",
    "PolicySettings",
    "RemoteAgentSettings",
    "RemoteEndpointSettings",
    "ScopeSettings",
    "Settings",
    "SupervisorSettings",
    "TlsSettings",
    "TreeSettings",
    "advertised_address",
    "check_exposure",
    "check_optional_postgres_url",
    "check_optional_url",
    "describe_install",
    "dial_address",
    "list_installed_extras",
    "load_plugin_settings",
    "load_settings",
    "parse_remote",
    "read_options",
]
