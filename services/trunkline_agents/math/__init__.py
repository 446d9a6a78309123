"""Math: exact arithmetic and algebra by SymPy, in a process that can be killed."""
