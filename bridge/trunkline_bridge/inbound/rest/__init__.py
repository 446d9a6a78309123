"""A2A's HTTP+JSON binding: one path for each operation, bodies and answers without an envelope."""
