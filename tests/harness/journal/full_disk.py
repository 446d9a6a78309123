"""A disk that is full for this process."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness.polling import wait_for
from harness.remote.measurements import measuring

CountFailures = Callable[[], float]


@contextmanager
def full_disk() -> Iterator[CountFailures]:
    """Let no file of this process grow within a block, and count the commits that fail there.

    SQLite sees a write that fails, as on a full disk. Nothing else may write to a file meanwhile.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with measuring() as measured:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        try:
            yield lambda: sum(measured.of("trunkline.journal.commits.failed").values())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def wait_for_failures(count: CountFailures, number: int) -> None:
    """Wait until this number of commits has failed."""
    await wait_for(lambda: count() >= number)
