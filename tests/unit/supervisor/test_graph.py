"""The supervisor's graph."""

from pathlib import Path

from trunkline.supervisor.graph import compile_graph

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_drawing_in_the_docs_is_that_of_the_compiled_graph() -> None:
    drawing = compile_graph().get_graph().draw_mermaid(with_styles=False).expandtabs(4)

    text = (DOCS / "supervisors.md").read_text(encoding="utf-8")

    assert f"```mermaid\n{drawing}```" in text
