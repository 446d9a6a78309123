"""Other implementations that Trunkline is compared with."""
