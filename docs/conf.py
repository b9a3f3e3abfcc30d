"""Sphinx builds these pages: `make docs`, without a network; a warning is an error."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from miron_jax import __version__
from miron_jax.cli import COMMANDS, TAKES
from miron_jax.cli.flags import EVERY, OF_COMMAND
from miron_jax.cli.help import TOPICS, default_of, usage_of

project, author, release = "miron_jax", "the miron_jax authors", __version__
copyright = f"2026, {author}"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
suppress_warnings = ["misc.highlighting_failure"]
nitpicky = False
default_role = "code"  # docstrings have `names` in single backquotes, as Markdown has
html_theme, html_title = "sphinx_book_theme", "miron_jax"
html_theme_options = {"show_navbar_depth": 1, "show_toc_level": 2}
html_copy_source, html_show_sourcelink = False, False
myst_heading_anchors, myst_enable_extensions = 3, ["deflist"]
autodoc_member_order, autodoc_typehints, autodoc_typehints_format = "bysource", "signature", "short"
autodoc_preserve_defaults = python_use_unqualified_type_names = True
autoclass_content = "class"


def command_reference() -> str:
    """Markdown of every command with its flags, from their declarations."""
    parts = list[str]()
    for command, text in COMMANDS.items():
        parts.append(
            f"## miron-jax {command}\n\n`miron-jax {command} {TAKES.get(command, '')}[flags]`: "
            f"{text}."
        )
        for topic, heading in TOPICS.items():
            names = [name for name in OF_COMMAND[command] if EVERY[name].topic == topic]
            rows = [
                f"`{usage_of(name)}`\n: {_escaped(EVERY[name].help + default_of(EVERY[name]))}"
                for name in names
            ]
            if command in ("plan", "bench") and topic != "devices" and names:
                rows = [
                    "As those of [eval](#miron-jax-eval): "
                    f"{', '.join(f'`--{name}`' for name in names)}."
                ]
            if rows:
                parts.append("\n\n".join([f"**{heading}**", *rows]))
    return "\n\n".join(parts)


def _escaped(text: str) -> str:
    return text.replace("*", r"\*").replace("_", r"\_").replace("<", r"\<")


def _generate(app: Any, name: str, source: list[str]) -> None:
    if name == "commands":
        source[0] += f"\n\n{command_reference()}\n"


def setup(app: Any) -> None:
    app.connect("source-read", _generate)
