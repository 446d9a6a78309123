"""Credentials of a remote agent come from environment variables and are never shown."""

import logging

import pytest

from trunkline.errors import ConfigurationError
from trunkline.settings import RemoteAgentSettings
from trunkline_bridge.client.settings import RemoteSettings


def test_a_token_and_a_key_go_in_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_TOKEN", "open sesame\n")
    monkeypatch.setenv("FAR_KEY", "k-1")
    given = RemoteAgentSettings(
        url="https://far.example",
        token_env="FAR_TOKEN",
        api_key_env="FAR_KEY",
        api_key_header="X-Key",
        headers={"X-Team": "blue"},
    )
    found = RemoteSettings.from_settings("far", given)
    assert found.headers == {
        "X-Team": "blue",
        "authorization": "Bearer open sesame",
        "x-key": "k-1",
    }
    assert "sesame" not in repr(found)


@pytest.mark.parametrize("held", ["", "  ", "tö", "a\nb"])
def test_what_can_not_be_sent_is_refused_by_its_variable(
    held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAR_TOKEN", held)
    with pytest.raises(ConfigurationError, match="FAR_TOKEN") as caught:
        RemoteSettings.from_settings(
            "far", RemoteAgentSettings(url="https://far.example", token_env="FAR_TOKEN")
        )
    assert "tö" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "is_warned"),
    [("http://far.example", True), ("https://far.example", False), ("http://127.0.0.1", False)],
)
def test_credentials_in_the_clear_are_warned_of(
    url: str,
    *,
    is_warned: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("FAR_TOKEN", "secret")
    with caplog.at_level(logging.WARNING):
        RemoteSettings.from_settings("far", RemoteAgentSettings(url=url, token_env="FAR_TOKEN"))
    assert ("remote.credentials_not_encrypted" in caplog.text) is is_warned
    assert "secret" not in caplog.text
