"""How processes of a mesh find and call each other: registry, channels, servers."""
