"""What operators do with journals: check them, copy them, trim them."""
