"""For the docs site: docstrings say ``Example:``, griffe knows the section as ``Examples:``."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the section, so that its doctest is shown as code."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rename the section in the docstring of an object that was loaded."""
        if obj.docstring is not None:
            named = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = named
