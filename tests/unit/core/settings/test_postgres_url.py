"""What is shown of the URL of a PostgreSQL database."""

import pytest

from trunkline.core.settings.postgres_url import describe_postgres_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://db/trunkline", "postgresql://db/trunkline"),
        ("postgres://user@db:5432/x?sslmode=require", "postgresql://db:5432/x"),
        ("postgresql://user:p%2Fa%40s%23s@db/x", "postgresql://db/x"),
        ("postgresql://u:secret@db1:5432,db2:5433/x", "postgresql://db1:5432,db2:5433/x"),
        ("postgresql://u:secret@[::1]:5432/x?search_path=a", "postgresql://[::1]:5432/x"),
        ("postgresql:///x?host=/run/postgresql", "postgresql:///x"),
    ],
)
def test_the_hosts_and_the_database_are_shown(url: str, shown: str) -> None:
    assert describe_postgres_url(url) == shown


@pytest.mark.parametrize("option", ["sslmode=on", "target_session_attrs=rw"])
def test_an_option_with_an_unknown_value_is_refused_with_those_that_are_known(option: str) -> None:
    with pytest.raises(ValueError, match=r"needs one of .*(require|read-write)"):
        describe_postgres_url(f"postgresql://db/trunkline?{option}")
