"""Commands that serve: a whole mesh, or one service of it, until they are told to stop."""
