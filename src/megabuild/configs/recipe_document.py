"""A recipe's YAML as it is written, parsed once for all who read it."""

import functools
from typing import Any

from ruamel.yaml import YAML


@functools.lru_cache(maxsize=32)
def parse_recipe(text: str) -> Any:
    """Return the document of a recipe's text; its readers share it, and none may change it.

    Raises YAMLError, ValueError, RecursionError: The text is no YAML.
    """
    return YAML(typ="safe", pure=True).load(text)
