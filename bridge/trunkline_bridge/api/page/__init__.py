"""The page at `/ui`: its files, and the API that they call."""
