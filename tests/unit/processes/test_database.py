"""The settings `store` and `files` are refused where they can't be used."""

from pathlib import Path

import pytest

from trunkline.core.settings import Settings, load_settings
from trunkline.errors import ConfigurationError
from trunkline.processes.database import open_database


async def test_a_bucket_needs_a_database() -> None:
    with pytest.raises(ConfigurationError, match="files: needs a database in `store`"):
        async with open_database(Settings(files="s3://bucket/prefix")):
            pass


@pytest.mark.parametrize("url", ["bucket", "https://bucket/x", "s3://", "s3:///prefix"])
def test_a_bucket_is_a_url_of_s3(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"TRUNKLINE_FILES.*s3://BUCKET/PREFIX"):
        load_settings(environment={"TRUNKLINE_FILES": url}, folder=tmp_path)
