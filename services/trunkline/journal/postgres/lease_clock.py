"""The clock in the database by which leases end.

Each reader moves the clock on by the time since the last reading, but by at most a quarter of
the shortest lease that is held. Each host reads it several times a lease. So the clock stands still
while nobody can reach the database: no host can renew its lease then, and none loses it. A step of
the server's clock ends no lease either.
"""

from typing import Final

from trunkline.core.postgres import PostgresDatabase

LEASE_CLOCK: Final = (
    """CREATE TABLE trunkline_lease_clock (
        one integer PRIMARY KEY CHECK (one = 1),
        time_s double precision NOT NULL,
        read_at timestamptz NOT NULL
    )""",
    "INSERT INTO trunkline_lease_clock (one, time_s, read_at) VALUES (1, 0, now())",
)
"""The statements that create its table."""
# The arguments of `least` that are NULL do not count.
_READ: Final = (
    "UPDATE trunkline_lease_clock SET read_at = clock_timestamp(), time_s = time_s + greatest(0, "
    "least(extract(epoch FROM clock_timestamp() - read_at)::float8, "
    "(SELECT min(lease_s) / 4 FROM trunkline_leases WHERE host <> '' AND until_s > time_s))) "
    "RETURNING time_s"
)


async def read_lease_clock(database: PostgresDatabase) -> float:
    """Return the time in seconds with which the ends of leases are compared.

    Raises:
        JournalUnavailableError: the database can't be reached.
    """
    ((time_s,),) = await database.fetch(_READ)
    return float(time_s)
