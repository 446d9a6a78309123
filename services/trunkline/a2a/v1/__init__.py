"""Generated from proto/trunkline/a2a/v1; never edited."""
