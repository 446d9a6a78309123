"""The currency server: conversions at the European Central Bank's reference rates."""
