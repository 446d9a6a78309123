"""Commands about what a mesh keeps on disk: its data, and its documents."""
