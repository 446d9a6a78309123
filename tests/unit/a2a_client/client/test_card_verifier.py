"""Cards of remote agents are verified before they are used, and pinned at first use."""

import json
import logging
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from harness.logs import find_logged
from harness.remote.token_issuer import SigningKey
from trunkline.a2a_client.agent_card import build_local_card, parse_remote_card
from trunkline.a2a_client.card_pins import CardPinFile
from trunkline.a2a_client.card_verifier import CardVerifier
from trunkline.a2a_client.interfaces import InterfaceSelector
from trunkline.a2a_client.settings import RemoteSettings
from trunkline.a2a_wire.card_json import merged_card_json, parse_card
from trunkline.a2a_wire.card_signatures import CardSigner
from trunkline.core.small_files import FolderFiles
from trunkline.errors import ConfigurationError, PeerProtocolError

URL = "https://a.example"
CARD_URL = f"{URL}/.well-known/agent-card.json"
SKILL = {"id": "weigh", "name": "Weigh", "description": "Returns kg", "tags": ["mass"]}
CARD: dict[str, Any] = {
    "name": "scale",
    "description": "Weighs things",
    "version": "2.1.0",
    "supportedInterfaces": [
        {"url": f"{URL}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "capabilities": {"streaming": True},
    "securitySchemes": {"k": {"apiKeySecurityScheme": {"location": "header", "name": "X"}}},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [SKILL],
}
OTHER_URL = [{"url": f"{URL}/other", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
Verify = Callable[..., Awaitable[Any]]


@pytest.fixture
def verify(tmp_path: Path) -> Verify:
    """Verify a card as a new process would; `keys` is the key set at its origin."""

    async def verify_(card: object, *, keys: bytes = b"none", **options: Any) -> Any:
        async def fetch(url: str) -> bytes:
            assert url == f"{URL}/.well-known/jwks.json"
            return keys

        settings = RemoteSettings(url=URL, name="scale", files=FolderFiles(tmp_path), **options)
        body = card if isinstance(card, bytes) else json.dumps(card).encode()
        verifier = CardVerifier(settings, fetch)
        return await verifier.verify(body, InterfaceSelector(CARD_URL), peer="scale")

    return verify_


def pin_path(folder: Path) -> Path:
    return Path(CardPinFile(FolderFiles(folder), URL).place)


def signed(folder: Path, key: SigningKey) -> tuple[bytes, bytes]:
    """Return a signed card and the key set."""
    path = folder / f"{key.key_id}.pem"
    path.touch(mode=0o600)
    path.write_bytes(key.pem())
    signer = CardSigner(path, key.key_id)
    card = parse_card(json.dumps(CARD).encode())
    signer.sign(card, base_url=URL)
    return json.dumps(merged_card_json(card)).encode(), json.dumps(signer.public_keys).encode()


async def test_the_pin_is_a_private_file_of_the_data_directory(
    verify: Verify, tmp_path: Path
) -> None:
    await verify(CARD)

    path = pin_path(tmp_path)
    assert path.is_relative_to(tmp_path / "private")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_the_same_card_and_a_new_description_are_no_drift(
    verify: Verify, caplog: pytest.LogCaptureFixture
) -> None:
    await verify(CARD, pin="refuse")
    await verify(CARD | {"description": "Weighs more", "version": "3"}, pin="refuse")
    assert not find_logged(caplog)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"supportedInterfaces": OTHER_URL},
            f"new interfaces: JSONRPC 1.0 {URL}/other; missing interfaces: JSONRPC 1.0 {URL}/rpc",
        ),
        ({"securitySchemes": {}}, "other authentication"),
        ({"securityRequirements": [{"schemes": {"k": {}}}]}, "other authentication"),
        ({"skills": [SKILL | {"description": "Pays"}]}, "changed skills: weigh"),
        ({"skills": [SKILL, SKILL | {"id": "pay"}]}, "new skills: pay"),
    ],
)
async def test_drift_is_reported_once_or_refused_until_the_pin_is_deleted(
    verify: Verify,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    change: dict[str, Any],
    problem: str,
) -> None:
    await verify(CARD)
    pin = pin_path(tmp_path)

    for _ in range(2):
        with pytest.raises(PeerProtocolError) as refused:
            await verify(CARD | change, pin="refuse")
        assert problem in str(refused.value)
        assert str(pin) in str(refused.value)
    assert not find_logged(caplog)
    pin.unlink()
    await verify(CARD | change, pin="refuse")
    assert not find_logged(caplog)
    with caplog.at_level(logging.WARNING):
        await verify(CARD)
        await verify(CARD)
    (record,) = find_logged(caplog)
    assert record.message == "remote.card_changed"


async def test_configured_keys_must_have_signed_the_card(verify: Verify, tmp_path: Path) -> None:
    body, keys = signed(tmp_path, SigningKey("k1"))
    path = tmp_path / "keys.json"
    path.write_bytes(keys)
    forged, _ = signed(tmp_path, SigningKey("k2"))

    assert (await verify(body, card_keys=path)).card.name == "scale"
    for card in (CARD, forged, json.loads(body) | {"description": "Pays"}):
        with pytest.raises(PeerProtocolError, match="no valid signature"):
            await verify(card, card_keys=path)
    with pytest.raises(ConfigurationError, match="nothing"):
        await verify(body, card_keys=tmp_path / "nothing.json")


async def test_a_card_that_was_signed_at_first_must_stay_signed(
    verify: Verify, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body, keys = signed(tmp_path, SigningKey("k1"))
    forged, _ = signed(tmp_path, SigningKey("k1"))

    await verify(body, keys=keys)
    # The pinned key is enough afterwards.
    await verify(body)
    for card in (CARD, forged):
        with pytest.raises(PeerProtocolError, match="was signed before"):
            await verify(card)
    assert not find_logged(caplog)


async def test_a_new_key_of_the_agents_own_key_set_is_a_drift(
    verify: Verify, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, first_keys = signed(tmp_path, SigningKey("k1"))
    second, second_keys = signed(tmp_path, SigningKey("k2"))

    await verify(first, keys=first_keys)
    with pytest.raises(PeerProtocolError, match="signed by k2, before by k1"):
        await verify(second, keys=second_keys, pin="refuse")
    with caplog.at_level(logging.WARNING):
        await verify(second, keys=second_keys)
    assert "remote.card_changed" in caplog.text
    await verify(second)


async def test_a_card_that_leads_to_another_host_is_not_pinned(
    verify: Verify, tmp_path: Path
) -> None:
    elsewhere = [
        {"url": "https://evil.example", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ]
    with pytest.raises(PeerProtocolError, match=r"evil\.example"):
        await verify(CARD | {"supportedInterfaces": elsewhere})
    assert not pin_path(tmp_path).exists()


@pytest.mark.parametrize(
    "members", [{"skills": [SKILL] * 501}, {"supportedInterfaces": OTHER_URL * 65}]
)
async def test_a_card_beyond_the_limits_is_refused(verify: Verify, members: dict[str, Any]) -> None:
    with pytest.raises(PeerProtocolError, match="has more than"):
        await verify(CARD | members)


async def test_a_damaged_pin_is_no_first_use(verify: Verify, tmp_path: Path) -> None:
    await verify(CARD)
    pin_path(tmp_path).write_text("{}")
    with pytest.raises(ConfigurationError, match="delete it"):
        await verify(CARD)


def test_texts_of_a_remote_card_are_plain_and_limited() -> None:
    hidden = "a\u202eb\u200b\nc\x1b[31m\U000e0041"
    skill = {
        "id": hidden,
        "name": hidden,
        "description": hidden,
        "tags": [hidden],
        "examples": [hidden],
    }
    long = SKILL | {"description": "x" * 10_000, "examples": ["y" * 1000] * 200}
    body = json.dumps(CARD | {"description": hidden, "skills": [skill, long]}).encode()

    card = build_local_card(parse_remote_card(body, InterfaceSelector(CARD_URL)).card, "scale")

    texts = [card.description, *card.skills[0].tags, *card.skills[0].examples]
    texts += [card.skills[0].id, card.skills[0].name, card.skills[0].description]
    assert set(texts) == {"ab c[31m"}
    assert len(card.skills[1].description) == 2000
    assert len(card.skills[1].examples) == 100
    assert len(card.skills[1].examples[0]) == 500
