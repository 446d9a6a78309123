"""Which failures of a database pass, so that a wait is of use."""

import ssl

import asyncpg
import pytest

from trunkline.core.postgres.errors import build_error
from trunkline.errors import JournalUnusableError


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.ConnectionFailureError("08006"),
        asyncpg.IdleInTransactionSessionTimeoutError("25P03"),
        asyncpg.SerializationError("40001"),
        asyncpg.TooManyConnectionsError("53300"),
        asyncpg.ObjectInUseError("55006"),
        asyncpg.QueryCanceledError("57014"),
        asyncpg.AdminShutdownError("57P01"),
        asyncpg.PostgresIOError("58030"),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
        ConnectionRefusedError("refused"),
        TimeoutError(),
        ssl.SSLEOFError("the peer has ended"),
    ],
    ids=repr,
)
def test_a_failure_that_passes(error: Exception) -> None:
    assert not isinstance(build_error("db", error), JournalUnusableError)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InvalidPasswordError("28P01"),
        asyncpg.InvalidCatalogNameError("3D000"),
        asyncpg.InsufficientPrivilegeError("42501"),
        asyncpg.UndefinedTableError("42P01"),
        asyncpg.ClientConfigurationError("no such option"),
        asyncpg.UnsupportedClientFeatureError("no such method"),
        ssl.SSLCertVerificationError("unknown issuer"),
        FileNotFoundError("no such file"),
    ],
    ids=repr,
)
def test_a_failure_that_stays(error: Exception) -> None:
    assert isinstance(build_error("db", error), JournalUnusableError)
