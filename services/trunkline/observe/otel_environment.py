"""The resource and the exporters of a process, by OpenTelemetry's standard variables."""

import logging
import os
import uuid
from collections.abc import Iterator
from importlib.metadata import entry_points, version
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from trunkline.core.network import is_this_machine
from trunkline.observe import telemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

logger = logging.getLogger(__name__)

Signal: TypeAlias = Literal["traces", "metrics", "logs"]

# One for all signals of this process.
_INSTANCE_ID: Final = str(uuid.uuid4())
_PROTOCOLS: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


def is_sdk_disabled() -> bool:
    """Return True if `OTEL_SDK_DISABLED` turns the SDK off."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def make_resource(service_name: str) -> "Resource":
    """Return the resource of this process; `service_name` is only the default."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    defaults = {
        telemetry.SERVICE_NAME: service_name,
        telemetry.SERVICE_VERSION: version("trunkline"),
        # Two replicas of an agent have the same name, and must not write the same series.
        telemetry.SERVICE_INSTANCE_ID: _INSTANCE_ID,
    }
    configured = OTELResourceDetector().detect().attributes
    return Resource.create({key: defaults[key] for key in defaults if key not in configured})


def make_exporters(signal: Signal) -> Iterator[tuple[str, Any]]:
    """Yield the exporters that the environment asks for, each with the target it exports to.

    `OTEL_TRACES_EXPORTER`, and so on for metrics and logs, lists them by name; without it there is
    one for OTLP if `OTEL_EXPORTER_OTLP_ENDPOINT`, or its variant for the signal, is set. An
    exporter that is unknown or can't be made is logged and left out.
    """
    if not any(name.startswith("OTEL_") for name in os.environ):
        # Most processes need no exporters, which load slowly.
        return
    # OpenTelemetry's exporters log every failed attempt; ours log an outage once.
    logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)
    endpoint = _first_value(_otlp_variables(signal, "ENDPOINT"))
    configured = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER")
    names = configured or ("otlp" if endpoint else "none")
    for name in map(str.strip, names.split(",")):
        if name not in ("", "none"):
            exporter = _make_exporter(signal, name, endpoint)
            if exporter is not None:
                yield endpoint if name.startswith("otlp") and endpoint else name, exporter


def _make_exporter(signal: Signal, name: str, endpoint: str) -> Any:  # noqa: ANN401  of any signal
    if name == "otlp":
        protocol = _first_value(_otlp_variables(signal, "PROTOCOL")) or "grpc"
        if protocol not in _PROTOCOLS:
            logger.warning("%s.protocol_not_supported", signal, extra={"protocol": protocol})
            return None
        name = _PROTOCOLS[protocol]
    group = f"opentelemetry_{signal}_exporter"
    entry_point = next(iter(entry_points(group=group, name=name)), None)
    if entry_point is None:
        logger.warning("%s.exporter_not_found", signal, extra={"exporter": name})
        return None
    try:
        return entry_point.load()(**_local_options(name, endpoint))
    # Exporters raise any kind of exception for a malformed variable.
    except Exception as error:
        extra = {"exporter": name, "error": type(error).__name__}
        logger.warning("%s.exporter_not_made", signal, exc_info=error, extra=extra)
        return None


def _local_options(name: str, endpoint: str) -> dict[str, Any]:
    """Return options that keep the environment's proxy away from an endpoint on this machine."""
    if not is_this_machine(endpoint):
        return {}
    if name == "otlp_proto_grpc":
        return {"channel_options": (("grpc.enable_http_proxy", 0),)}
    if name == "otlp_proto_http":
        import requests

        session = requests.Session()
        session.trust_env = False
        return {"session": session}
    return {}


def _otlp_variables(signal: Signal, name: str) -> tuple[str, ...]:
    """Return the variables of an OTLP option, the signal's variable first."""
    return (f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}", f"OTEL_EXPORTER_OTLP_{name}")


def _first_value(variables: tuple[str, ...]) -> str:
    return next((value for name in variables if (value := os.environ.get(name))), "")
