"""Starts the exports of the metrics and the log of a process."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from trunkline.core.settings import MetricsSettings, Settings
from trunkline.errors import ConfigurationError
from trunkline.observe.log_export import configure_log_export
from trunkline.observe.metrics.sdk import configure_metrics


@asynccontextmanager
async def export_signals(settings: Settings, service: str) -> AsyncIterator[Mapping[str, str]]:
    """Export the metrics and the log of this process in a block.

    Both go to a collector that the environment names, and metrics also to `[metrics] address`.

    Yield the URL of `/metrics` under the key `metrics`, if this process serves it.

    Raises:
        ConfigurationError: the address can't be listened on, or is exposed without `public`.
    """
    check_metrics_address(settings.metrics)
    end_log_export = configure_log_export(service)
    exports = configure_metrics(service)
    try:
        if settings.metrics.address is None:
            yield {}
        else:
            # Loaded here, because most processes don't serve them.
            from trunkline.observe.metrics.prometheus import open_prometheus_metrics
            from trunkline.observe.metrics.server import serve_metrics

            metrics = open_prometheus_metrics(service)
            address, is_public = settings.metrics.address, settings.metrics.public
            async with serve_metrics(metrics, address, is_public=is_public) as url:
                yield {"metrics": url}
    finally:
        exports.shutdown()
        end_log_export()


def check_metrics_address(settings: MetricsSettings) -> None:
    """Check that other machines can reach the address only if the metrics are public.

    Raises:
        ConfigurationError: it is not loopback, and the metrics are not public.
    """
    address = settings.address
    if address is not None and not (address.is_loopback or settings.public):
        problem = (
            f"{address} can be reached from other machines without credentials; use 127.0.0.1, or "
            "set public = true in [metrics] if the network may read the metrics"
        )
        raise ConfigurationError("[metrics] address", problem)
