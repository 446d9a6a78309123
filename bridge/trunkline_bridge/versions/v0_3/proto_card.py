"""Converts agent cards to v0.3's protobuf message, for its gRPC binding."""

from collections.abc import Iterable

from trunkline.a2a.v0_3 import agent_card_pb2 as old
from trunkline.a2a.v0_3 import security_scheme_pb2 as old_security
from trunkline.v1 import agent_card_pb2, security_scheme_pb2
from trunkline_bridge.protocol import V0_3


def to_v0_3_agent_card(core: agent_card_pb2.AgentCard) -> old.AgentCard:
    """Convert a card, with only the interfaces of v0.3; the first is the preferred one.

    Signatures are left out: they are over v1.0's card.
    """
    made = old.AgentCard(
        name=core.name,
        description=core.description,
        version=core.version,
        documentation_url=core.documentation_url,
        icon_url=core.icon_url,
        capabilities=_to_v0_3_capabilities(core.capabilities),
        security=[_to_v0_3_security(one) for one in core.security_requirements],
        default_input_modes=core.default_input_modes,
        default_output_modes=core.default_output_modes,
        skills=[_to_v0_3_skill(one) for one in core.skills],
        supports_authenticated_extended_card=core.capabilities.extended_agent_card,
    )
    if core.HasField("provider"):
        made.provider.url = core.provider.url
        made.provider.organization = core.provider.organization
    for name, scheme in core.security_schemes.items():
        made.security_schemes[name].CopyFrom(_to_v0_3_scheme(scheme))
    _add_interfaces(made, core.supported_interfaces)
    return made


def _add_interfaces(
    made: old.AgentCard, interfaces: Iterable[agent_card_pb2.AgentInterface]
) -> None:
    known = [one for one in interfaces if one.protocol_version == V0_3]
    if not known:
        return
    first, *others = known
    made.url, made.preferred_transport = first.url, first.protocol_binding
    made.protocol_version = V0_3
    for one in others:
        made.additional_interfaces.add(url=one.url, transport=one.protocol_binding)


def _to_v0_3_capabilities(core: agent_card_pb2.AgentCapabilities) -> old.AgentCapabilities:
    made = old.AgentCapabilities(
        streaming=core.streaming, push_notifications=core.push_notifications
    )
    for extension in core.extensions:
        added = made.extensions.add(
            uri=extension.uri, description=extension.description, required=extension.required
        )
        if extension.HasField("params"):
            added.params.CopyFrom(extension.params)
    return made


def _to_v0_3_skill(core: agent_card_pb2.AgentSkill) -> old.AgentSkill:
    return old.AgentSkill(
        id=core.id,
        name=core.name,
        description=core.description,
        tags=core.tags,
        examples=core.examples,
        input_modes=core.input_modes,
        output_modes=core.output_modes,
        security=[_to_v0_3_security(one) for one in core.security_requirements],
    )


def _to_v0_3_security(core: security_scheme_pb2.SecurityRequirement) -> old_security.Security:
    made = old_security.Security()
    for name, scopes in core.schemes.items():
        made.schemes[name].list.extend(scopes.list)
    return made


def _to_v0_3_scheme(core: security_scheme_pb2.SecurityScheme) -> old_security.SecurityScheme:
    # Field numbers and types are the same; v1.0's additions are discarded.
    made = old_security.SecurityScheme.FromString(core.SerializeToString())
    made.DiscardUnknownFields()
    return made
