"""Bare redis-py: reads a stream by a consumer group, handles and acknowledges each message.

Run as a script: URL COUNT DONE_FILE.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from redis.asyncio import Redis


async def main(url: str, count: int, done: Path) -> None:
    """Consume until `count` messages were handled."""
    seen: set[bytes] = set()
    async with Redis.from_url(url) as client:
        await asyncio.to_thread(done.with_suffix(".ready").touch)
        while len(seen) < count:
            read: Any = await client.xreadgroup(
                "workers", "bare", {"bench": ">"}, count=10, block=1_000
            )
            pages = read.items() if isinstance(read, dict) else read
            for _, entries in pages:
                for entry, fields in entries[0] if isinstance(read, dict) else entries:
                    seen.add(fields[b"data"])
                    await client.xack("bench", "workers", entry)
    await asyncio.to_thread(done.touch)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
