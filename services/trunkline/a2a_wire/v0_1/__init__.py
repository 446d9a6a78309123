"""The original wire of A2A, with `tasks/send`."""
