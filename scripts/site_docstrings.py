"""Docstrings as the documentation site shows them: examples as code, and each setting with the text of its help."""

import ast
import re
from typing import Any

from griffe import Attribute, Docstring, Expr, ExprCall, ExprDict, ExprKeyword, Extension, Object

EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?! *$).*)*", flags=re.MULTILINE)


def fenced(text: str) -> str:
    """Each example (from `>>>` to the next empty line) as a block of code; Markdown would take it for a quotation."""
    return EXAMPLE.sub(lambda found: f"{found['indent']}```pycon\n{found[0]}\n{found['indent']}```", text)


def explained(value: Any) -> tuple[Any, str | None]:
    """Default and help of a dataclass's field, which is `_option(default, help)` or `field(metadata={"help": ...})`."""
    if not isinstance(value, ExprCall):
        return value, None
    keywords = {a.name: a.value for a in value.arguments if isinstance(a, ExprKeyword)}
    metadata = keywords.get("metadata")
    if str(value.function) == "_option" and len(value.arguments) == 2:
        return value.arguments[0], _text(value.arguments[1])
    if isinstance(metadata, ExprDict) and "'help'" in map(str, metadata.keys):
        return value, _text(metadata.values[[str(key) for key in metadata.keys].index("'help'")])
    return value, None


def _text(value: str | Expr) -> str:
    return str(ast.literal_eval(str(value)))


class SiteDocstrings(Extension):
    """What mkdocstrings has griffe call for everything it reads."""

    def on_attribute_instance(self, *, attr: Attribute, **more: Any) -> None:
        attr.value, text = explained(attr.value)
        if text is not None and attr.docstring is None:
            attr.docstring = Docstring(text, parent=attr)

    def on_object(self, *, obj: Object, **more: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
