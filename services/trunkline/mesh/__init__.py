"""Composition: a whole mesh in one process, or one service of it."""
