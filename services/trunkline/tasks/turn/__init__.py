"""One turn of a task: what its agent sees, and how what it writes gets into the journal."""
