"""Read JSON and YAML strictly: errors name the place of a wrong encoding, key or character."""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["LONE_SURROGATE", "decoded", "json_lines", "parse_json", "parse_yaml", "refuse_url"]

LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character. UTF-8 and tokenizers cannot encode it, but JSON can contain it as an escape."""

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def refuse_url(path: str | Path) -> None:
    """Raise a ValueError if `path` is a URL; only local files can be read.

    >>> refuse_url("http://example.org/scores.jsonl")
    Traceback (most recent call last):
    ValueError: http://example.org/scores.jsonl: a URL; download the file and give its path
    """
    if isinstance(path, str) and _URL.match(path):
        raise ValueError(f"{path}: a URL; download the file and give its path")


def decoded(content: bytes, where: str) -> str:
    """Decode UTF-8, with or without a byte order mark.

    >>> decoded("π".encode("utf-16"), "x.json")
    Traceback (most recent call last):
    ValueError: x.json: not UTF-8 text (it looks like UTF-16): save it as UTF-8
    """
    if _is_utf_16(content):
        raise ValueError(f"{where}: not UTF-8 text (it looks like UTF-16): save it as UTF-8")
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: not UTF-8 text (byte {error.start}): save it as UTF-8") from error


def parse_json(content: bytes, where: str) -> Any:
    """Parse one JSON value; errors begin with `where`.

    >>> parse_json(b'{"id": 1, "id": 2}', "x.jsonl, line 3")
    Traceback (most recent call last):
    ValueError: x.jsonl, line 3: the key 'id' appears twice
    """
    text = decoded(content, where)
    try:
        value = json.loads(text, object_pairs_hook=_object)
    except _RepeatedKeyError as error:
        raise ValueError(f"{where}: the key {error.args[0]!r} appears twice") from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # also nesting too deep, or a number too long
        several = where.endswith(".json") and "Extra data" in str(error)
        hint = " (one object per line? then its name should end in .jsonl)" if several else ""
        raise ValueError(f"{where}: not JSON: {error}{hint}") from error
    if "\\u" in text and _ESCAPED_SURROGATE.search(text) and _has_lone_surrogate(value):
        raise ValueError(f"{where}: a lone surrogate (\\ud800 to \\udfff) in a text: fix the text")
    return value


def parse_yaml(content: bytes, where: str) -> Any:
    """Parse a YAML file; an error says where it is.

    >>> parse_yaml(b"seed: 1\\nseed: 2", "c.yaml")
    Traceback (most recent call last):
    ValueError: c.yaml, line 2: the key 'seed' appears twice
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                name = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else None
                if name in seen and name is not None:
                    raise _RepeatedKeyError(key.value, key.start_mark.line + 1)
                seen.add(name)
            return super().construct_mapping(node, deep)

    text = decoded(content, where)
    try:
        return yaml.load(text, Loader)
    except _RepeatedKeyError as error:
        raise ValueError(f"{where}, line {error.args[1]}: the key {error.args[0]!r} appears twice") from None
    except (yaml.YAMLError, ValueError) as error:  # a ValueError for dates such as 2024-99-99
        raise ValueError(f"{where}: not YAML: {' '.join(str(error).split())[:200]}") from error
    except RecursionError as error:
        raise ValueError(f"{where}: not YAML: nested too deeply") from error


def json_lines(content: bytes, source: str) -> Iterator[tuple[str, Any]]:
    """Yield the place and the value of every line of a JSONL file. Empty lines are skipped, but counted.

    >>> list(json_lines(b'{"id": 1}\\n\\n{"id": 2}', "x.jsonl"))
    [('line 1', {'id': 1}), ('line 3', {'id': 2})]
    """
    if _is_utf_16(content):
        decoded(content, source)
    # Only \n ends a line of JSONL: U+2028 and similar characters may be inside a text.
    for number, line in enumerate(io.BytesIO(content), start=1):
        if line.strip():
            yield f"line {number}", parse_json(line, f"{source}, line {number}")


class _RepeatedKeyError(Exception):
    """An object has the same key twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKeyError(next(key for key in keys if keys.count(key) > 1))
    return found


def _is_utf_16(content: bytes) -> bool:
    return content[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in content[:4]


def _has_lone_surrogate(value: Any) -> bool:
    if isinstance(value, str):
        return LONE_SURROGATE.search(value) is not None
    if isinstance(value, dict):
        return any(_has_lone_surrogate(part) for pair in value.items() for part in pair)
    return isinstance(value, list) and any(map(_has_lone_surrogate, value))
