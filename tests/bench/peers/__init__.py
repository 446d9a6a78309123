"""What Trunkline is compared with."""
