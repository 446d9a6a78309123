"""Metrics of a process: its instruments, OpenTelemetry's SDK, and `/metrics` for Prometheus.

Code that measures imports `instruments` only, which stands on OpenTelemetry's API.
"""
