"""The v0_1 package."""
