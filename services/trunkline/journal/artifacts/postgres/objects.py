"""Bytes of files in an S3 bucket, or in a store with the same interface."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from trunkline.errors import JournalUnavailableError

_OBJECT_BYTES: Final = 8 * 1024 * 1024
_TIMEOUT_S: Final = 60.0
_RETRIES: Final = 10
_RETRY_S: Final = 20.0
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


class ObjectBucket:
    """Objects below a prefix of a bucket.

    An object is written once under a random name. Objects are small enough for one request each: a
    multipart upload could not be resumed by another process, and its parts stay hidden in the
    bucket if nobody ends it.

    All methods raise JournalUnavailableError if the bucket can't be reached.
    """

    def __init__(self, url: str, *, object_bytes: int = _OBJECT_BYTES) -> None:
        """`url` is s3://BUCKET/PREFIX. Endpoint and credentials are in the variables of AWS.

        Raises:
            ValueError: a variable has an invalid value.
        """
        self.name: str = url
        self.object_bytes: int = object_bytes
        """The size of an object. An upload has as many bytes in memory."""
        parts = urlsplit(url)
        endpoint = next(filter(None, map(os.environ.get, _ENDPOINTS)), "")
        self._store = S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            client_options={"allow_http": endpoint.startswith("http://")},
            retry_config={
                "max_retries": _RETRIES,
                "retry_timeout": timedelta(seconds=_RETRY_S),
            },
        )

    async def put(self, name: str, data: bytes) -> None:
        """Write an object."""
        async with self._translate_errors():
            await obstore.put_async(self._store, name, data, use_multipart=False)

    async def read(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes of an object in a range.

        Raises:
            FileNotFoundError: the object is missing.
        """
        async with self._translate_errors():
            data = await obstore.get_range_async(self._store, name, start=start, end=end)
            return data.to_bytes()

    async def delete(self, names: Sequence[str]) -> None:
        """Delete objects, of which some may be missing."""
        async with self._translate_errors():
            await obstore.delete_async(self._store, names)

    @asynccontextmanager
    async def _translate_errors(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                yield
        except TimeoutError as error:
            problem = f"it did not answer within {_TIMEOUT_S:.0f} s"
            raise JournalUnavailableError(self.name, problem) from error
        except BaseError as error:
            raise JournalUnavailableError(self.name, _summarize(error)) from error


def _summarize(error: BaseError) -> str:
    """Return the cause in an error, whose text also has the request and the whole response."""
    line = str(error).partition("\n")[0].partition(": <?xml")[0]
    return line.rpartition(" - ")[2]
