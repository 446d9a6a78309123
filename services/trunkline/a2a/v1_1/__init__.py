"""Generated from proto/trunkline/a2a/v1_1; never edited."""
