"""An offline page: one HTML file, whose policy lets in its style and its script alone.

Arrives: names of files of this folder, values of a template.  Leaves: the page's text.  It
deliberately does not know what a page shows.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup


def offline_page(
    template: str, styles: Sequence[str], scripts: Sequence[str], **values: object
) -> str:
    """`values`: texts, which are escaped, but for `Markup`."""
    style = "".join(map(_part, styles))
    script = "".join(map(_part, scripts)).encode("ascii", "backslashreplace").decode()
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_part(template)).render(
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        **values,
    )


def json_in_html(value: Any, in_ascii: bool = True) -> Markup:
    """JSON that no HTML parser finds an element in."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=in_ascii)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _part(name: str) -> str:
    return files("miron_jax.report.html").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Of a script or style as its element holds it, for the policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
