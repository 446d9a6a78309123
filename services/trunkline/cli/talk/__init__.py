"""What the command line does as a client of A2A, on the mesh's public side."""
