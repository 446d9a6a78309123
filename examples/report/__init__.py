"""An agent with typed settings, files, and tests of its own."""
