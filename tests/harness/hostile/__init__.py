"""The hostile package."""
