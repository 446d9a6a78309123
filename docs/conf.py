"""Sphinx settings of the documentation site: `make docs` builds it into build/docs."""

from pygments.lexers import TextLexer
from sphinx.application import Sphinx

project = "Trunkline"
author = "The Trunkline authors"
copyright = "The Trunkline authors"  # noqa: A001  Sphinx dictates the name

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "Trunkline"
exclude_patterns = ["_build"]


def setup(app: Sphinx) -> None:
    """Show drawings as their text: Pygments knows no Mermaid, and the site loads no scripts."""
    app.add_lexer("mermaid", TextLexer)
