"""An agent with typed settings, files and tests."""
