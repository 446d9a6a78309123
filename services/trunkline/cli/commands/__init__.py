"""The commands: a function each, which has the options, the help and the work of the command.

The group `trunkline NAME` is the module NAME, which is imported when the group is used. Modules of
commands outside of groups are imported by every command, so they import nothing slow.
"""
