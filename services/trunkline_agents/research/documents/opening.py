"""Opens the documents of a mesh, where its settings store them."""

import logging
import math
import time
from typing import Final

from trunkline.core.encryption import KEY_SETTINGS, Cipher
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError
from trunkline_agents.research.documents.sqlite_store import SqliteDocumentStore
from trunkline_agents.research.documents.store import DocumentStore
from trunkline_agents.research.settings import (
    DOCUMENTS_FILE,
    documents_path,
    open_documents_key,
    read_documents_url,
)

logger = logging.getLogger(__name__)

_CHECK_S: Final = 30.0


def open_documents(settings: Settings) -> DocumentStore:
    """Open the documents, and create their store if it does not exist.

    Raises:
        ConfigurationError: the store can't be used.
    """
    if settings.store:
        if any(getattr(settings, name) for name in KEY_SETTINGS):
            problem = "can't be used with an encryption key yet; let the database encrypt its disk"
            raise ConfigurationError("store", problem)
        return open_database_documents(settings.store)
    cipher = _open_cipher(settings)
    return SqliteDocumentStore.open(documents_path(settings.data_dir), cipher)


def open_existing_documents(settings: Settings) -> DocumentStore | None:
    """Open the documents, or return None if there is no file of them.

    Raises:
        ConfigurationError: the store can't be used.
    """
    if settings.store or documents_path(settings.data_dir).is_file():
        return open_documents(settings)
    return None


class DocumentsCheck:
    """Checks whether a mesh has documents, again and again. Only one thread may use it."""

    def __init__(self) -> None:
        # The last result for a database, and its time.
        self._has_documents = False
        self._checked_at = -math.inf

    def has_documents(self, settings: Settings) -> bool:
        """Return whether agents can read any documents.

        It blocks. A database is asked every 30 seconds.
        A database that can't be reached has what it had before.
        """
        if not settings.store:
            return documents_path(settings.data_dir).is_file()
        if time.monotonic() - self._checked_at >= _CHECK_S:
            self._checked_at = time.monotonic()
            try:
                if url := read_documents_url(settings):
                    with open_database_documents(url) as store:
                        self._has_documents = store.count_documents() > 0
            except ConfigurationError as error:
                logger.debug("documents.not_read", extra={"problem": str(error)})
        return self._has_documents


def open_database_documents(url: str) -> DocumentStore:
    """Return the documents in the database of a URL.

    Raises:
        ConfigurationError: the package for PostgreSQL is missing.
    """
    try:
        from trunkline_agents.research.documents.postgres_store import PostgresDocumentStore
    except ImportError:
        problem = "needs the package asyncpg; install `trunkline[postgres]`"
        raise ConfigurationError("store", problem) from None
    return PostgresDocumentStore(url)


def _open_cipher(settings: Settings) -> Cipher | None:
    key = open_documents_key(settings)
    return None if key is None else key.cipher(name=DOCUMENTS_FILE)
