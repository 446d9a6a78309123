"""The v1_0 package."""
