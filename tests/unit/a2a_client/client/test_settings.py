"""Credentials of a remote agent come from environment variables and are never shown."""

import logging

import pytest

from trunkline.a2a_client.settings import RemoteSettings
from trunkline.core.settings import RemoteAgentSettings
from trunkline.errors import ConfigurationError


def test_a_token_and_a_key_are_sent_in_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_TOKEN", "open sesame\n")
    monkeypatch.setenv("FAR_KEY", "k-1")
    agent_settings = RemoteAgentSettings(
        url="https://far.example",
        token_env="FAR_TOKEN",
        api_key_env="FAR_KEY",
        api_key_header="X-Key",
        headers={"X-Team": "blue"},
    )
    remote = RemoteSettings.from_settings("far", agent_settings)
    assert remote.headers == {
        "X-Team": "blue",
        "authorization": "Bearer open sesame",
        "x-key": "k-1",
    }
    assert "sesame" not in repr(remote)


@pytest.mark.parametrize("token", ["", "  ", "tö", "a\nb"])
def test_an_invalid_token_is_refused_by_its_variable(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAR_TOKEN", token)
    with pytest.raises(ConfigurationError, match="FAR_TOKEN") as caught:
        RemoteSettings.from_settings(
            "far", RemoteAgentSettings(url="https://far.example", token_env="FAR_TOKEN")
        )
    assert "tö" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "is_warned"),
    [("http://far.example", True), ("https://far.example", False), ("http://127.0.0.1", False)],
)
def test_unencrypted_credentials_cause_a_warning(
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
