"""How events, and what is kept beside them, get into a journal: in groups, one write at a time."""
