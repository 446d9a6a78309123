"""`trunkline a2a`: the command line of A2A's standard for clients (a2a-cli 0.2).

`program` runs a command. Nothing here imports code of servers, except `demo_server`.
"""
