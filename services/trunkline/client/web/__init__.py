"""The web, as far as callers may send us there."""
