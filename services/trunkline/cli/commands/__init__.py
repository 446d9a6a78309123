"""The arguments and options of each command. The work is in the modules of the parent package."""
