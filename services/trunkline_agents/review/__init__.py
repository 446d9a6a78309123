"""The writer and the reviewer, with the workflows `review` and `direct-broadcast`."""
