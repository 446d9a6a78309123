"""Converts agent cards to v0.3's protobuf message, for its gRPC binding."""

from collections.abc import Iterable

from trunkline.a2a.v0_3 import agent_card_pb2 as v0_3_pb2
from trunkline.a2a.v0_3 import security_scheme_pb2 as v0_3_security_pb2
from trunkline.a2a_wire.protocol import V0_3
from trunkline.v1 import agent_card_pb2, security_scheme_pb2


def to_v0_3_agent_card(core: agent_card_pb2.AgentCard) -> v0_3_pb2.AgentCard:
    """Convert a card, with only the interfaces of v0.3; the first is the preferred one.

    Signatures are omitted, because they cover the card of v1.0.
    """
    result = v0_3_pb2.AgentCard(
        name=core.name,
        description=core.description,
        version=core.version,
        documentation_url=core.documentation_url,
        icon_url=core.icon_url,
        capabilities=_to_v0_3_capabilities(core.capabilities),
        security=[_to_v0_3_security(requirement) for requirement in core.security_requirements],
        default_input_modes=core.default_input_modes,
        default_output_modes=core.default_output_modes,
        skills=[_to_v0_3_skill(skill) for skill in core.skills],
        supports_authenticated_extended_card=core.capabilities.extended_agent_card,
    )
    if core.HasField("provider"):
        result.provider.url = core.provider.url
        result.provider.organization = core.provider.organization
    for name, scheme in core.security_schemes.items():
        result.security_schemes[name].CopyFrom(_to_v0_3_scheme(scheme))
    _add_interfaces(result, core.supported_interfaces)
    return result


def _add_interfaces(
    result: v0_3_pb2.AgentCard, interfaces: Iterable[agent_card_pb2.AgentInterface]
) -> None:
    supported = [interface for interface in interfaces if interface.protocol_version == V0_3]
    if not supported:
        return
    first, *others = supported
    result.url, result.preferred_transport = first.url, first.protocol_binding
    result.protocol_version = V0_3
    for interface in others:
        result.additional_interfaces.add(url=interface.url, transport=interface.protocol_binding)


def _to_v0_3_capabilities(core: agent_card_pb2.AgentCapabilities) -> v0_3_pb2.AgentCapabilities:
    result = v0_3_pb2.AgentCapabilities(
        streaming=core.streaming, push_notifications=core.push_notifications
    )
    for extension in core.extensions:
        added = result.extensions.add(
            uri=extension.uri, description=extension.description, required=extension.required
        )
        if extension.HasField("params"):
            added.params.CopyFrom(extension.params)
    return result


def _to_v0_3_skill(core: agent_card_pb2.AgentSkill) -> v0_3_pb2.AgentSkill:
    return v0_3_pb2.AgentSkill(
        id=core.id,
        name=core.name,
        description=core.description,
        tags=core.tags,
        examples=core.examples,
        input_modes=core.input_modes,
        output_modes=core.output_modes,
        security=[_to_v0_3_security(requirement) for requirement in core.security_requirements],
    )


def _to_v0_3_security(core: security_scheme_pb2.SecurityRequirement) -> v0_3_security_pb2.Security:
    result = v0_3_security_pb2.Security()
    for name, scopes in core.schemes.items():
        result.schemes[name].list.extend(scopes.list)
    return result


def _to_v0_3_scheme(core: security_scheme_pb2.SecurityScheme) -> v0_3_security_pb2.SecurityScheme:
    # Field numbers and types are the same; v1.0's additions are discarded.
    result = v0_3_security_pb2.SecurityScheme.FromString(core.SerializeToString())
    result.DiscardUnknownFields()
    return result
