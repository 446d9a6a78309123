"""The v0_3 package."""
