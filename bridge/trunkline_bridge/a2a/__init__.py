"""A2A: the operations of the standard, in all its versions and bindings."""
