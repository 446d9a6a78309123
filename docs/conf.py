"""Sphinx settings of the documentation site: `make docs` builds it into build/docs."""

project = "Trunkline"
author = "The Trunkline authors"
copyright = "The Trunkline authors"  # noqa: A001  Sphinx dictates the name

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "Trunkline"
exclude_patterns = ["_build"]
