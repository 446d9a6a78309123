"""The rules of a mesh without a model: patterns of tools, tags and examples of cards.

It reads no prose. A request is answered if a declared pattern of a tool matches it, if it names a
tool with `name: value` arguments, or if it names its agent; a request with several parts, if each
part is for another agent, or matches on its own. Nothing below `trunkline.mesh` imports it.
"""
