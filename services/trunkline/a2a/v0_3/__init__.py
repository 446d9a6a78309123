"""Generated from proto/trunkline/a2a/v0_3; never edited."""
