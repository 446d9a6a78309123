"""Currency: conversions at the reference rates of the European Central Bank."""
