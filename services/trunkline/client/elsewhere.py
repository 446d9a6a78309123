"""Opens what parts refer to: content that other hosts keep, and files on the web."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trunkline.client.artifacts import ArtifactClient, find_reference
from trunkline.client.directory import Directory
from trunkline.errors import InvalidArgumentError


class Elsewhere:
    """The way to content that is not beside a host's own journal."""

    def __init__(self, directory: Directory) -> None:
        self._artifacts = ArtifactClient(directory)

    @asynccontextmanager
    async def open(self, url: str, account: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open what a URL leads to, as an account may see it.

        Raises:
            InvalidArgumentError: it leads where nothing is fetched from.
            TrunklineError: it can't be read; see `ArtifactClient.open`.
        """
        reference = find_reference(url)
        if reference is None:
            raise InvalidArgumentError("part.url", "leads nowhere that files are fetched from")
        async with self._artifacts.open(reference, account=account) as download:
            yield aiter(download)
