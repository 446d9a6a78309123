"""What both ends of a trunk know: the methods that it carries, and its numbers of statements."""
