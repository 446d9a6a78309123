"""A new project names the place that trunkline was installed from, for uv and for pip."""

import tomllib
from pathlib import Path

import pytest

from trunkline.cli.commands.new import InstallSource

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("direct_url", "uv", "pip"),
    [
        (
            {"url": "file:///tmp/my%20wheels/trunkline-1-py3-none-any.whl", "archive_info": {}},
            {"path": "/tmp/my wheels/trunkline-1-py3-none-any.whl"},
            "'/tmp/my wheels/trunkline-1-py3-none-any.whl'",
        ),
        (
            {"url": "https://example.com/trunkline-1-py3-none-any.whl", "archive_info": {}},
            {"url": "https://example.com/trunkline-1-py3-none-any.whl"},
            "https://example.com/trunkline-1-py3-none-any.whl",
        ),
        (
            {"url": "file:///tmp/trunkline", "dir_info": {"editable": True}},
            {"path": "/tmp/trunkline", "editable": True},
            "-e /tmp/trunkline",
        ),
        (
            {"url": 'file:///tmp/trunk"line', "dir_info": {}},
            {"path": '/tmp/trunk"line'},
            "'/tmp/trunk\"line'",
        ),
        (
            {
                "url": "https://example.com/trunkline.git",
                "vcs_info": {"vcs": "git", "commit_id": COMMIT},
            },
            {"git": "https://example.com/trunkline.git", "rev": COMMIT},
            f"git+https://example.com/trunkline.git@{COMMIT}",
        ),
    ],
    ids=["wheel", "wheel on the web", "editable", "folder", "git"],
)
def test_the_source_is_that_of_the_installer(
    direct_url: dict[str, object], uv: dict[str, object], pip: str
) -> None:
    source = InstallSource.parse(direct_url)
    assert tomllib.loads(f"trunkline = {source.uv}")["trunkline"] == uv
    assert source.pip == pip


def test_a_file_that_is_no_longer_there_is_noticed(tmp_path: Path) -> None:
    wheel = tmp_path / "trunkline-1-py3-none-any.whl"
    wheel.touch()
    direct_url = {"url": wheel.as_uri(), "archive_info": {}}
    assert not InstallSource.parse(direct_url).is_gone
    wheel.unlink()
    source = InstallSource.parse(direct_url)
    assert (source.is_gone, source.place) == (True, str(wheel))
