"""Reads the docstrings below the attributes of a class, which describe them in JSON schemas.

They are read from the source, so only when a schema is made: for each class, that takes as long as
importing several modules.
"""

import ast
import inspect
import itertools
import textwrap
from typing import Any

from pydantic import BaseModel


def read_attribute_docs(kind: type) -> dict[str, str]:
    """Return the docstrings below the attributes of a class, by attribute, on one line each."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    docs: dict[str, str] = {}
    statements = body.body if isinstance(body, ast.ClassDef) else []
    for statement, following in itertools.pairwise(statements):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                docs[name] = " ".join(text.split())
    return docs


def describe_properties(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Describe the properties of a model's JSON schema by its docstrings, also inherited ones.

    A model has them if this is the `json_schema_extra` of its configuration.
    """
    docs: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            docs |= read_attribute_docs(base)
    for name, text in docs.items():
        key = model.model_fields[name].alias or name
        schema["properties"][key].setdefault("description", text)
