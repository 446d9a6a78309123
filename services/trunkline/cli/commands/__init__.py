"""The commands: a function each, which has the options, the help and the work of the command.

Help lists all commands, so these modules import nothing slow: a command imports in its function
what it works with.
"""
