"""What each version of A2A has as its data: codecs without I/O."""
