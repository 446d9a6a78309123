"""The settings of a folder that the user has not trusted, and the store of trusted folders."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from trunkline.core import private_files
from trunkline.core.settings import IgnoredSettings, Settings, load_settings
from trunkline.core.settings.settings_file import SettingsFile
from trunkline.core.settings.trust import Trust, TrustStore
from trunkline.errors import ConfigurationError

# Each would run something, or send content, secrets or questions elsewhere, or write elsewhere.
DANGEROUS = {
    'agents = ["evil:agent"]': "agents",
    'mcp_file = "mcp.json"': "mcp_file",
    'model = "openai:x"': "model",
    'planner_model = "openai:x"': "planner_model",
    'fallbacks = ["openai:x"]': "fallbacks",
    'default_agent = "evil"': "default_agent",
    '[models.openai]\nbase_url = "https://evil.example"': "models",
    '[remote.evil]\nurl = "https://evil.example"\ntoken_env = "SECRET"': "remote",
    '[argocd]\nurl = "https://evil.example"': "argocd",
    '[agent.math]\nmodel = "openai:x"': "agent.math.model",
    '[agent.math]\na2a_grpc = "0.0.0.0:80"': "agent.math.a2a_grpc",
    '[agent.math.options]\nurl = "https://evil.example"': "agent.math.options",
    # Models read the texts of supervisors.
    '[supervisor.office]\nagents = ["math"]\ndescription = "x"': "supervisor",
    'http = "evil.example:80"': "http",
    'http = "0.0.0.0:80"': "http",
    'http = "no address"': "http",
    'mesh = "192.0.2.1:50051"': "mesh",
    'listen = "[::]:0"': "listen",
    'advertise = "192.0.2.1"': "advertise",
    'public_url = "https://evil.example"': "public_url",
    "insecure = true": "insecure",
    "anonymous = true": "anonymous",
    'allow_webhook = ["169.254.169.254"]': "allow_webhook",
    'allow_fetch = ["169.254.169.254"]': "allow_fetch",
    'webhook_secret = "whsec_AAAA"': "webhook_secret",
    'jwt_keys = "https://evil.example"': "jwt_keys",
    'card_key = "key.pem"': "card_key",
    'data_dir = "/elsewhere"': "data_dir",
    'data_dir = "../elsewhere"': "data_dir",
    'data_dir = "~nobody-of-this-name/x"': "data_dir",
    'data_dir = "link"': "data_dir",
    # It decides who may call.
    'api_keys_file = "keys.toml"': "api_keys_file",
    "[tls]\nrequire_client_certificate = false": "tls",
    "[scope.all]": "scope",
    'jwt_account_prefix = ""': "jwt_account_prefix",
    "failed_credentials_per_minute = 0": "failed_credentials_per_minute",
    "retain_s = 0": "retain_s",
    "unheard_of = 1": "unheard_of",
}


def load(
    folder: Path, environment: Mapping[str, str] | None = None, **flags: object
) -> tuple[Settings, list[IgnoredSettings]]:
    reports: list[IgnoredSettings] = []
    settings = load_settings(
        flags, environment=environment or {}, folder=folder, report_ignored=reports.append
    )
    return settings, reports


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrustStore:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return TrustStore()


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(("toml", "name"), DANGEROUS.items())
def test_an_untrusted_file_may_not_set_it(tmp_path: Path, toml: str, name: str) -> None:
    (tmp_path / "link").symlink_to("/")
    (tmp_path / "trunkline.toml").write_text(toml)
    settings, reports = load(tmp_path)
    assert [report.names for report in reports] == [(name,)]
    assert not reports[0].has_changed
    # Tables whose keys are all ignored are empty.
    assert name.startswith("agent.math.") or settings == Settings()


def test_harmless_settings_of_an_untrusted_file_apply(tmp_path: Path, store: TrustStore) -> None:
    (tmp_path / "trunkline.toml").write_text(
        'http = "localhost:9000"\nmesh = "[::1]:9001"\ndata_dir = "data"\nlog_level = "debug"\n'
        "streaming = false\npush_notifications = false\n"
        '[agent.math]\ntimeout_s = 3\ndeny_tools = ["x"]\na2a_grpc = "127.0.0.1:9002"\n'
    )
    settings, reports = load(tmp_path)
    assert reports == []
    assert (str(settings.http), str(settings.mesh)) == ("localhost:9000", "[::1]:9001")
    assert (settings.data_dir, settings.log_level) == (tmp_path / "data", "debug")
    assert (settings.streaming, settings.push_notifications) == (False, False)
    math = settings.agent_options["math"]
    assert (math.timeout_s, str(math.a2a_grpc)) == (3, "127.0.0.1:9002")
    assert store.folders() == []


def test_a_trusted_file_applies_until_it_changes(tmp_path: Path, store: TrustStore) -> None:
    file = tmp_path / "trunkline.toml"
    file.write_text('agents = ["mine:agent"]')
    store.add(tmp_path, file.read_bytes())
    settings, reports = load(tmp_path)
    assert (settings.agents, reports) == (("mine:agent",), [])
    file.write_text('agents = ["evil:agent"]')
    settings, reports = load(tmp_path)
    assert settings.agents == ()
    assert reports == [IgnoredSettings(file, ("agents",), has_changed=True)]


def test_trust_belongs_to_the_real_path_of_a_folder(tmp_path: Path, store: TrustStore) -> None:
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trunkline.toml").write_text('agents = ["mine:agent"]')
    (tmp_path / "link").symlink_to("mine")
    store.add(tmp_path / "link", (tmp_path / "mine/trunkline.toml").read_bytes())
    assert load(tmp_path / "mine")[1] == []
    assert load(tmp_path / "link")[1] == []
    assert load(tmp_path / "other")[1] != []
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("other")
    assert load(tmp_path / "link")[1] != []


@pytest.mark.usefixtures("store")
def test_flags_variables_and_a_file_that_is_named_need_no_trust(tmp_path: Path) -> None:
    (tmp_path / "trunkline.toml").write_text('agents = ["evil:agent"]\nhttp = "evil.example:80"')
    variables = {"TRUNKLINE_AGENTS": "mine:agent"}
    settings, reports = load(tmp_path, variables, http="127.0.0.1:1")
    assert (settings.agents, reports) == (("mine:agent",), [])
    settings, reports = load(tmp_path, {"TRUNKLINE_CONFIG": str(tmp_path / "trunkline.toml")})
    assert (settings.agents, reports) == (("evil:agent",), [])


def test_variables_are_not_read_from_the_folder(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TRUNKLINE_AGENTS=evil:agent\n")
    (tmp_path / "trunkline.toml").touch()
    assert load_settings(environment={}, folder=tmp_path).agents == ()


def test_only_the_user_can_use_the_store(tmp_path: Path, store: TrustStore) -> None:
    store.add(tmp_path, b"")
    (entry,) = (tmp_path / "state/trunkline/trusted").iterdir()
    assert [path.stat().st_mode & 0o777 for path in (entry, entry.parent, entry.parents[1])] == [
        0o600, 0o700, 0o700
    ]  # fmt: skip
    assert json.loads(entry.read_bytes())["folder"] == str(tmp_path)


def test_a_store_that_others_may_write_is_refused(tmp_path: Path, store: TrustStore) -> None:
    store.add(tmp_path, b"")
    (entry,) = (tmp_path / "state/trunkline/trusted").iterdir()
    entry.chmod(0o602)
    with pytest.raises(ConfigurationError, match=f"other users may write to it.* {entry}`"):
        store.check(tmp_path, b"")
    entry.chmod(0o600)
    entry.parent.chmod(0o1777)
    with pytest.raises(ConfigurationError, match=f"other users may change it.* {entry.parent}`"):
        store.check(tmp_path, b"")
    with pytest.raises(ConfigurationError, match=f"other users may change it.* {entry.parent}`"):
        store.add(tmp_path, b"")
    entry.parent.chmod(0o700)
    assert store.check(tmp_path, b"") is Trust.TRUSTED


def test_a_store_that_is_a_link_or_another_users_is_refused(
    tmp_path: Path, store: TrustStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(tmp_path, b"")
    folder = tmp_path / "state/trunkline/trusted"
    (entry,) = folder.iterdir()
    with monkeypatch.context() as other_user:
        other_user.setattr(os, "geteuid", lambda: os.getuid() + 1)
        # The user of this test may be root, who may change every file.
        other_user.setattr(private_files, "_ROOT", -1)
        with pytest.raises(ConfigurationError, match="it belongs to user"):
            store.check(tmp_path, b"")
    moved = entry.rename(tmp_path / "entry.json")
    entry.symlink_to(moved)
    with pytest.raises(ConfigurationError, match="it is a symbolic link"):
        store.check(tmp_path, b"")
    entry.unlink()
    folder.rename(tmp_path / "trusted")
    folder.symlink_to(tmp_path / "trusted")
    with pytest.raises(ConfigurationError, match="it is a link"):
        store.check(tmp_path, b"")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"folder": 1, "sha256": ""}', "\udcff"])
def test_a_damaged_entry_trusts_nothing(tmp_path: Path, store: TrustStore, content: str) -> None:
    store.add(tmp_path, b"")
    (entry,) = (tmp_path / "state/trunkline/trusted").iterdir()
    entry.write_text(content, errors="surrogateescape")
    assert store.check(tmp_path, b"") is Trust.UNTRUSTED
    assert store.folders() == []


def test_trust_can_be_withdrawn_also_from_a_folder_that_is_gone(
    tmp_path: Path, store: TrustStore
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    for folder in (gone, tmp_path):
        store.add(folder, b"")
    gone.rmdir()
    assert [trusted.folder for trusted in store.folders()] == [tmp_path, gone]
    assert store.remove(gone)
    assert not store.remove(gone)
    assert [trusted.folder for trusted in store.folders()] == [tmp_path]


def test_a_state_folder_that_cannot_be_written_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(ConfigurationError, match="can't be written: Not a directory"):
        TrustStore().add(tmp_path, b"")


def raise_no_home() -> Path:
    raise RuntimeError("no home")


@pytest.mark.parametrize("find_home", [raise_no_home, lambda: Path("home")])
def test_a_user_without_a_home_has_no_store_in_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, find_home: Callable[[], Path]
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", find_home)
    with pytest.raises(ConfigurationError, match="the user has no home"):
        TrustStore()


def test_a_settings_file_that_is_not_text_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "trunkline.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="is not TOML"):
        SettingsFile.read(tmp_path / "trunkline.toml")
