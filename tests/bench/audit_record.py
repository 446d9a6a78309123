"""Measures the CPU of one record of the audit log, with its share of the writes to the disk.

`.venv/bin/python tests/bench/audit_record.py` records acts as a busy bridge does, in bursts with
pauses, and the same bursts without the log. The row "audit log on and off" of the speed table has
the cost of a whole call, which is noisier.
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

from trunkline.audit import Action, Actor, ActorKind, AuditLog, open_audit_log
from trunkline.settings import Settings

_BURST = 50
_PAUSE_S = 0.05


async def record_acts(log: AuditLog | None, records: int) -> None:
    """Record acts; without a log, make the same pauses."""
    for number in range(records):
        if number % _BURST == 0:
            await asyncio.sleep(_PAUSE_S)
        if log is None:
            continue
        actor = Actor(
            kind=ActorKind.API_KEY, account="acme", name="ci", key_id="0123", address="127.0.0.1"
        )
        log.record(Action.MESSAGE_SEND, actor, agent="echo", task=f"t-{number:030}", context="c")


async def measure(records: int, *, is_on: bool) -> float:
    """Return the CPU seconds of the process for some acts, until all of them are written."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), audit=is_on)
        started_s = time.process_time()
        async with open_audit_log(settings, process="bench") as log:
            await record_acts(log, records)
        return time.process_time() - started_s


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    for _ in range(options.repetitions):
        idle_s = await measure(options.records, is_on=False)
        used_s = await measure(options.records, is_on=True)
        record_us = (used_s - idle_s) / options.records * 1e6
        print(f"{record_us:.1f} µs CPU a record; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    asyncio.run(main())
