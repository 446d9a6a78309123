"""The journal: the ordered, gap-free, durable list of each task's events."""
