"""The remote package."""
