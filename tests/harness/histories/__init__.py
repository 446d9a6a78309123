"""Recorded histories of a mesh under faults, and a checker of the promises that reads them."""
