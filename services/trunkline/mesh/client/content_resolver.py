"""Opens the content that parts refer to by URL, on other hosts and on the web."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trunkline.errors import InvalidArgumentError
from trunkline.mesh.client.artifacts import ArtifactClient, parse_reference
from trunkline.mesh.client.directory import Directory

if TYPE_CHECKING:
    from trunkline.mesh.client.safe_fetch.file_fetcher import FileFetcher


class ContentResolver:
    """Reads content that is not stored with the host's own journal."""

    def __init__(self, directory: Directory, allow_fetch: Sequence[str] = ()) -> None:
        """`allow_fetch` are hosts (HOST or HOST:PORT) allowed in addition to public https ones.

        Raises:
            ConfigurationError: an entry is invalid.
        """
        self._artifacts = ArtifactClient(directory)
        self._allow_fetch = tuple(allow_fetch)
        # Invalid entries must fail at the start. Without entries the HTTP client loads later.
        self._web = self._open_web() if allow_fetch else None

    @asynccontextmanager
    async def open(self, url: str, account: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open the content of a URL that an account may read.

        Raises:
            InvalidArgumentError: nothing is fetched from such a URL.
            TrunklineError: it can't be read; see `ArtifactClient.open` and `FileFetcher.open`.
        """
        reference = parse_reference(url)
        if reference is not None:
            async with self._artifacts.open(reference, account=account) as download:
                yield aiter(download)
        elif url.startswith(("https://", "http://")):
            self._web = self._web or self._open_web()
            async with self._web.open(url) as pieces:
                yield pieces
        else:
            raise InvalidArgumentError("part.url", "must begin with https://")

    def _open_web(self) -> "FileFetcher":
        # Loads an HTTP client, which most hosts never need.
        from trunkline.mesh.client.safe_fetch.address_guard import FILE_WORDING, AddressGuard
        from trunkline.mesh.client.safe_fetch.file_fetcher import FileFetcher

        return FileFetcher(AddressGuard(self._allow_fetch, wording=FILE_WORDING))
