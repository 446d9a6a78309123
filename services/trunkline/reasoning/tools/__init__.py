"""The tools of a turn: where they are, what models call them, and what they have given."""
