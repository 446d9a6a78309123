"""FastStream on Redis Streams: the same work. It runs in an environment of its own.

Run as a script: URL COUNT DONE_FILE.
"""

import asyncio
import sys
from pathlib import Path

from faststream import FastStream  # type: ignore[import-not-found]
from faststream.redis import RedisBroker, StreamSub  # type: ignore[import-not-found]

URL, COUNT, DONE = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
broker = RedisBroker(URL, logger=None)
app = FastStream(broker)
seen: set[bytes] = set()


@broker.subscriber(stream=StreamSub("bench", group="workers", consumer="fast", max_records=10))  # type: ignore[untyped-decorator]
async def handle(body: bytes) -> None:
    """Count a message: FastStream hands over the field `data` of the stream's entry."""
    seen.add(body)
    if len(seen) == COUNT:
        await asyncio.to_thread(DONE.touch)


@app.after_startup  # type: ignore[untyped-decorator]
async def announce() -> None:
    """Tell that it reads."""
    await asyncio.to_thread(DONE.with_suffix(".ready").touch)


if __name__ == "__main__":
    asyncio.run(app.run())
