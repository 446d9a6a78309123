"""Commands in a folder that is not trusted, and `trunkline trust` itself."""

import json
from pathlib import Path

import pytest

from trunkline.cli.commands.new import create_project
from trunkline.cli.commands.trust import trust
from trunkline.cli.options import load_command_settings, resolve_base_url, resolve_mesh_settings
from trunkline.errors import ConfigurationError, InvalidArgumentError

TOML = 'agents = ["a:b"]\nhttp = "192.0.2.1:80"\nmesh = "192.0.2.1:90"\ndata_dir = "/elsewhere"\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, which is not trusted. No other folder is, either."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "trunkline.toml").write_text(TOML)
    monkeypatch.chdir(folder)
    return folder


def test_questions_and_keys_do_not_go_to_an_address_of_an_untrusted_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert resolve_base_url(None) == "http://127.0.0.1:8000"
    advice = "it is not trusted; read it, then `trunkline trust` makes these settings apply"
    assert capsys.readouterr().err == f"ignored http of {folder}/trunkline.toml: {advice}\n"
    assert str(resolve_mesh_settings(None).mesh) == "127.0.0.1:50051"
    assert capsys.readouterr().err.startswith("ignored mesh of ")


def test_a_command_is_silent_about_settings_that_it_does_not_use(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert str(resolve_mesh_settings("127.0.0.1:1").mesh) == "127.0.0.1:1"
    load_command_settings(uses={"retain_s"})
    assert capsys.readouterr().err == ""


def test_trust_makes_the_settings_apply_until_the_file_changes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trust(Path(), json=False)
    assert capsys.readouterr().err == (
        f"trusted {folder}, until its trunkline.toml changes: agents, http, mesh, data_dir\n"
    )
    assert resolve_base_url(None) == "http://192.0.2.1:80"
    assert load_command_settings(uses=None).agents == ("a:b",)
    assert capsys.readouterr().err == ""
    (folder / "trunkline.toml").write_text(TOML.replace("192.0.2.1:80", "192.0.2.2:80"))
    assert resolve_base_url(None) == "http://127.0.0.1:8000"
    assert "it has changed since you trusted it" in capsys.readouterr().err


def test_trusted_folders_are_listed_and_removed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("changed", "gone"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trunkline.toml").write_text(TOML)
        trust(tmp_path / name, json=False)
    trust(folder, json=True)
    trusted = json.loads(capsys.readouterr().out)
    assert trusted == {"folder": str(folder), "settings": ["agents", "http", "mesh", "data_dir"]}
    (tmp_path / "changed/trunkline.toml").write_text("")
    (tmp_path / "gone/trunkline.toml").unlink()
    (tmp_path / "gone").rmdir()
    trust(show_all=True, json=True)
    assert json.loads(capsys.readouterr().out) == [
        {"folder": str(tmp_path / "changed"), "state": "changed"},
        {"folder": str(folder), "state": "trusted"},
        {"folder": str(tmp_path / "gone"), "state": "missing"},
    ]
    trust(tmp_path / "gone", remove=True, json=False)
    with pytest.raises(InvalidArgumentError, match="is not trusted"):
        trust(tmp_path / "gone", remove=True, json=False)


def test_a_folder_without_settings_cannot_be_trusted(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        trust(tmp_path, json=False)


def test_a_new_project_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    create_project("hello-there", tmp_path / "new", langgraph=False)
    monkeypatch.chdir(tmp_path / "new")
    capsys.readouterr()
    assert load_command_settings(uses=None).agents == ("hello_there.agent:hello_there",)
    assert capsys.readouterr().err == ""


def test_a_project_is_made_also_if_it_cannot_be_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").touch()
    create_project("hello-there", tmp_path / "new", langgraph=False)
    assert capsys.readouterr().err.startswith("the folder is not trusted: ")
