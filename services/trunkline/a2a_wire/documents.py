"""Fetches small documents that the operator configures, such as key sets and cards."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from trunkline.errors import ConfigurationError, PeerUnavailableError
from trunkline.private_files import read_private_file

_TIMEOUT_S = 5.0
_LIMIT_BYTES = 1024 * 1024


async def fetch_document(source: str, *, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the content of a URL or a file that other users can't change.

    `headers` are sent to a URL.

    Raises:
        PeerUnavailableError: it cannot be read, or other users may change it; or a URL sends more
            than 1 MiB or needs more than 5 s.
    """
    if not source.startswith(("http://", "https://")):
        try:
            return await asyncio.to_thread(read_private_file, Path(source), is_secret=False)
        except ConfigurationError as error:
            raise PeerUnavailableError(source, error.problem) from error
        except OSError as error:
            raise PeerUnavailableError(source, f"cannot be read: {error.strerror}") from error
    import httpx2

    all_headers = {"accept": "application/json", **(headers or {})}
    try:
        async with (
            asyncio.timeout(_TIMEOUT_S),
            httpx2.AsyncClient(timeout=_TIMEOUT_S) as client,
            client.stream("GET", source, headers=all_headers) as response,
        ):
            if response.status_code != 200:
                raise PeerUnavailableError(source, f"responds with HTTP {response.status_code}")
            content = b""
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > _LIMIT_BYTES:
                    raise PeerUnavailableError(source, f"sends more than {_LIMIT_BYTES} bytes")
            return content
    except TimeoutError as error:
        raise PeerUnavailableError(source, f"did not respond within {_TIMEOUT_S:g} s") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise PeerUnavailableError(source, str(error) or type(error).__name__) from error
