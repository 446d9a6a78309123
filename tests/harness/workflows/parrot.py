"""A workflow file that repeats a text through the agent `echo`."""

from typing import Final

PARROT: Final = """
name: parrot
description: Repeats a sentence in a loud voice.
tags: [parrot]
nodes:
  - {id: start, type: start}
  - {id: ask, type: agent, agent: echo, message: "polly says ${input.text}"}
  - {id: end, type: end, output: "${nodes.ask.text}"}
edges:
  - {from: start, to: ask}
  - {from: ask, to: end}
"""
