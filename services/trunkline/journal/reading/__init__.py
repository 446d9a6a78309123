"""What readers of a journal are served from: the latest batches, folds, and who waits for news."""
