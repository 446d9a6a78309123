"""What a request may hold, by whatever binding it comes."""

from typing import Final

VALUES: Final = 50_000
"""In all. What looks at each takes up to ten microseconds, and meanwhile nobody else is served."""
TOO_MANY_VALUES: Final = f"more than {VALUES} values; send large data as raw, or by url"
READ_HERE_BYTES: Final = 64 * 1024
"""Bodies up to here are read at once, larger ones in a thread."""
