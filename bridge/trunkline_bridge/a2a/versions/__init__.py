"""The codecs of each A2A version, and its tables of methods over the shared operations."""
