"""A2A's versions, as major and minor: patches don't count."""

from typing import Final

V1_0: Final = "1.0"
V0_3: Final = "0.3"
"""And v0.2, which has the same wire."""
V0_1: Final = "0.1"
"""The original wire: JSON-RPC alone."""
