"""Observation of a mesh: traces, metrics, logs and the audit log."""
