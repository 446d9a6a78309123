"""Programs that drive real clients of other makers: see harness/partners.py."""
