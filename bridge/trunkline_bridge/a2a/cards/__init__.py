"""Agent cards and the keys that sign them."""
