"""The math server: exact arithmetic and algebra, with SymPy in a process that can be killed."""
