"""Assembles services into processes: a whole mesh in one process, or one service of it."""
