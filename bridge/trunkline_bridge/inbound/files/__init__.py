"""Files that tasks refer to, by GET: whole, in ranges, and gone on with after a cut."""
