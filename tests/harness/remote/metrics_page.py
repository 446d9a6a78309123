"""The metrics of a process, read from its `/metrics` as Prometheus does."""

from collections.abc import Callable

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from harness.polling import poll


class MetricsPage:
    """The `/metrics` of one process."""

    def __init__(self, url: str) -> None:
        """`url` is that of the page, or of a bridge."""
        self.url = url if url.endswith("/metrics") else f"{url}/metrics"

    async def read(self, name: str, **labels: str) -> float | None:
        """Return the sum of the series of a metric that have these labels; None: there are none.

        A label of "" is one that the series must not have.
        """
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            text = (await client.get(self.url)).text
        values = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
            and all(sample.labels.get(label, "") == value for label, value in labels.items())
        ]
        return sum(values) if values else None

    async def wait_for(
        self, name: str, is_wanted: Callable[[float], object], **labels: str
    ) -> float:
        """Return what `read` returns, once there are series and their sum is as wanted."""

        async def read() -> float | None:
            return await self.read(name, **labels)

        value = await poll(read, lambda found: found is not None and is_wanted(found))
        assert value is not None
        return value
