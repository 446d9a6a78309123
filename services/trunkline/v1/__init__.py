"""Generated from proto/trunkline/v1; never edited."""
