"""What a mesh shows of itself: traces, metrics, logs, the audit log."""
