"""Checks of cards, and of who may do what.

The capability `authentication` of the draft is no member of a card: it holds for the system whose
callers must authenticate.
"""

from typing import Any

import grpc
from a2a.client.card_resolver import parse_agent_card
from a2a.types import a2a_pb2

from harness.a2a.protocol_variants import ProtocolVariant
from harness.conformance.errors import missing_fields
from harness.conformance.registry import (
    BINDINGS,
    MISSING,
    System,
    check,
    check_refused_without,
    refusal,
    send,
    state,
    texts,
)
from trunkline.core.json_values import message_to_dict, parse_dict

_OPERATIONS = {
    "send": {"text": "auth should be required"},
    "stream": {"text": "auth should be required"},
    "get": {"task": MISSING},
    "list": {},
    "cancel": {"task": MISSING},
    "subscribe": {"task": MISSING},
    "set_push": {"task": MISSING, "config": "c", "url": "https://example.com/hook"},
    "get_push": {"task": MISSING, "config": "c"},
    "list_push": {"task": MISSING},
    "delete_push": {"task": MISSING, "config": "c"},
    "extended_card": {},
}


@check("CARD-DISC-001", "CARD-DISC-003", "CARD-DISC-004", "CARD-DISC-005", scope="system")
async def _a_card_has_its_members(system: System, _wire: ProtocolVariant) -> None:
    card = await system.card()
    assert all(card[name] for name in ("name", "version", "description"))
    assert isinstance(card["capabilities"], dict)
    assert all(skill["id"] and skill["name"] for skill in card["skills"])
    assert card["skills"]
    for name in ("defaultInputModes", "defaultOutputModes"):
        assert isinstance(card[name], list)


@check("CARD-DISC-002", "CARD-DISC-006", "CARD-DISC-007", scope="system")
async def _a_card_names_its_interfaces(system: System, _wire: ProtocolVariant) -> None:
    interfaces = (await system.card())["supportedInterfaces"]
    # The draft calls HTTP+JSON "REST".
    bindings = {interface["protocolBinding"] for interface in interfaces}
    assert bindings == {"JSONRPC", "HTTP+JSON", "GRPC"}
    assert all(interface["url"] and interface["protocolVersion"] for interface in interfaces)
    assert interfaces[0]["protocolVersion"].startswith("1.")


@check("CARD-CACHE-001", scope="system")
async def _a_card_may_be_cached(system: System, _wire: ProtocolVariant) -> None:
    response = await system.get("/.well-known/agent-card.json")
    assert "max-age" in response.headers["cache-control"]
    assert response.headers["etag"]


@check("CARD-SCHEMA-001", scope="system")
async def _a_card_is_valid(system: System, _wire: ProtocolVariant) -> None:
    path = "/.well-known/agent-card.json"
    for card in (await system.card(), (await system.get(path)).json()):
        assert missing_fields(a2a_pb2.AgentCard.DESCRIPTOR, card) == []
    # Without a version in the request, a card also has the members of v0.3.
    assert parse_dict(card, a2a_pb2.AgentCard()).name == "conformance"
    declared = message_to_dict(parse_agent_card(card))["capabilities"]
    is_declared = system.has_all
    assert declared["streaming"] is declared["pushNotifications"] is is_declared
    assert declared["extendedAgentCard"] is is_declared


@check("CARD-EXT-001")
async def _the_extended_card_is_read(_system: System, wire: ProtocolVariant) -> None:
    card = await wire.ask("extended_card")
    assert [skill["id"] for skill in card["skills"]] == ["conformance", "secret"]
    assert card["description"]


@check("SEC-EXTCARD-003")
async def _without_the_capability_the_card_is_refused(
    _system: System, wire: ProtocolVariant
) -> None:
    await check_refused_without("extendedAgentCard", wire)
    assert await refusal(wire, "extended_card") == "UNSUPPORTED_OPERATION"


@check("SEC-AUTH-001", "SEC-AUTH-004", scope="system")
async def _every_operation_needs_credentials(system: System, _wire: ProtocolVariant) -> None:
    for kind in BINDINGS.values():
        for headers in (
            {},
            {"X-API-Key": "wrong"},
            {"Authorization": "Bearer wrong"},
            system.token_for_another_mesh(),
        ):
            stranger = kind(system.mesh, "1.0", headers)
            for operation, fields in _OPERATIONS.items():
                assert await refusal(stranger, operation, **fields) == "UNAUTHENTICATED"


@check("SEC-AUTH-002", "SEC-EXTCARD-002", scope="system")
async def _every_operation_needs_permission(system: System, _wire: ProtocolVariant) -> None:
    headers = system.headers_of("eve")
    for kind in BINDINGS.values():
        limited = kind(system.mesh, "1.0", headers)
        for operation, fields in _OPERATIONS.items():
            assert await refusal(limited, operation, **fields) == "PERMISSION_DENIED"
    for path in ("/extendedAgentCard", "/tasks"):
        response = await system.client.get(system.mesh.bridged.url + path, headers=headers)
        assert response.status_code == 403
        assert 'error="insufficient_scope"' in response.headers["www-authenticate"]
        assert response.json()["error"]["status"] == "PERMISSION_DENIED"


@check("SEC-EXTCARD-001", "SEC-EXTCARD-004", "SEC-AUTH-006", scope="system")
async def _a_refusal_is_that_of_the_binding(system: System, _wire: ProtocolVariant) -> None:
    # The draft asks for the public card, which needs no credentials.
    for path in ("/extendedAgentCard", "/tasks"):
        response = await system.client.get(system.mesh.bridged.url + path)
        assert response.status_code == 401
        assert response.headers["www-authenticate"]
        assert response.json()["error"]["status"] == "UNAUTHENTICATED"
    async with grpc.aio.insecure_channel(system.mesh.address) as channel:
        call: Any = channel.unary_unary("/lf.a2a.v1.A2AService/GetExtendedAgentCard")
        code = await call(b"", timeout=60).code()
        assert code is grpc.StatusCode.UNAUTHENTICATED


@check("SEC-AUTH-005")
async def _a_task_waits_for_credentials(_system: System, wire: ProtocolVariant) -> None:
    task = await send(wire, "tck-auth-required trigger auth")
    assert state(task) == "auth-required"
    assert texts([task["status"]["message"]]) == ["log in"]
