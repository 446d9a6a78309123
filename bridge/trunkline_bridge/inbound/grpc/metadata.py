"""A call's metadata as A2A's service parameters."""

from collections.abc import Iterable


class Metadata:
    """Metadata by key; what is given twice is one list. Values that are no text aren't A2A's."""

    __slots__ = ("_values",)

    def __init__(self, pairs: Iterable[tuple[str, str | bytes]] | None) -> None:
        values: dict[str, str] = {}
        for key, value in pairs or ():
            if isinstance(value, str):
                values[key] = value if key not in values else f"{values[key]}, {value}"
        self._values = values

    def get(self, name: bytes) -> str | None:
        """Return a value by its key in lower case."""
        return self._values.get(name.decode("ascii"))

    def carrier(self) -> dict[str, str]:
        """Return what W3C Trace Context has there."""
        return {
            key: self._values[key] for key in ("traceparent", "tracestate") if key in self._values
        }
