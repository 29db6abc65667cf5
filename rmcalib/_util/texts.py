"""Read JSON, YAML and typed values strictly. Errors are one line and name the place and the problem.

What a file may contain is limited here, once: nesting, repeated keys, YAML's aliases, lone surrogates. So
code that walks the values needs no limits of its own.
"""

from __future__ import annotations

import base64
import codecs
import difflib
import functools
import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character. UTF-8 and tokenizers cannot encode it, but JSON can contain it as an escape."""

LONGEST_NAME = 256
"""Most characters of a name in a file, such as a category. Arrays of texts take this much for every row."""

LONGEST_ID = 3 * LONGEST_NAME
"""Most characters of an id, which may join several names."""

DEEPEST = 100
"""Most levels of nesting in a file."""

LARGEST_YAML = 1_000_000
"""Most bytes of a YAML file: they are written by hand, and read slowly."""

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


_MOST_NAMES = 12  # of a list in a message


def nearest(name: object, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """Return up to three known names that resemble one, whatever their case; the nearest first.

    >>> nearest("Gap_Math", ["gap", "gap_math"]), nearest("x", ["ece"])
    (['gap_math'], [])
    """
    have: dict[str, str] = {}
    for one in known:
        have.setdefault(one.lower(), one)
    near = difflib.get_close_matches(str(name).lower(), have, n=3, cutoff=cutoff)
    best = difflib.SequenceMatcher(None, str(name).lower(), near[0]).ratio() if near else 0.0
    close = [
        one for one in near if difflib.SequenceMatcher(None, str(name).lower(), one).ratio() > best - 0.1
    ]
    return [have[one] for one in close]


def did_you_mean(name: object, known: Iterable[str], otherwise: str = "") -> str:
    """Return the remedy for an unknown name: the nearest known ones, or else all of them, or ``otherwise``.

    >>> did_you_mean("eec", ["ece", "nll"]), did_you_mean("x", ["ece", "nll"])
    ("did you mean 'ece'?", 'have: ece, nll')
    """
    have = list(known)
    near = nearest(name, have)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    left = f" and {len(have) - _MOST_NAMES} more" if len(have) > _MOST_NAMES else ""
    return otherwise or f"have: {', '.join(have[:_MOST_NAMES]) or 'none'}{left}"


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
        raise ValueError(f"{where}: the key {brief(error.args[0])} appears twice") from None
    except RecursionError:
        raise ValueError(f"{where}: nested too deeply") from None
    except ValueError as error:  # also a number with thousands of digits
        raise ValueError(f"{where}: not JSON: {error}") from error
    # Most lines have fewer brackets than levels are allowed; only the others are searched.
    if text.count("[") + text.count("{") > DEEPEST and _is_deep(value):
        raise ValueError(f"{where}: nested too deeply (more than {DEEPEST} levels)")
    if "\\u" in text and _ESCAPED_SURROGATE.search(text) and _has_lone_surrogate(value):
        raise ValueError(f"{where}: a lone surrogate (\\ud800 to \\udfff) in a text: fix the text")
    return value


def json_lines(content: bytes, source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the object of every line of a JSONL file. Empty lines are skipped, but counted.

    >>> list(json_lines(b'{"id": 1}\\n\\n{"id": 2}', "x.jsonl"))
    [('line 1', {'id': 1}), ('line 3', {'id': 2})]
    """
    if _is_utf_16(content):
        decoded(content, source)
    # Only \n ends a line of JSONL: U+2028 and similar characters may be inside a text.
    for number, line in enumerate(io.BytesIO(content), start=1):
        if line.strip():
            row = parse_json(line, f"{source}, line {number}")
            if not isinstance(row, dict):
                raise ValueError(f"{source}, line {number}: expected an object {{...}}")
            yield f"line {number}", row


def parse_yaml(content: bytes, where: str) -> Any:
    """Parse a YAML file. Aliases are refused: a few lines of them can stand for gigabytes.

    >>> parse_yaml(b"seed: 1\\nseed: 2", "c.yaml")
    Traceback (most recent call last):
    ValueError: c.yaml, line 2: the key 'seed' appears twice
    """
    import yaml

    if len(content) > LARGEST_YAML:
        raise ValueError(f"{where}: {len(content):,} bytes; a YAML file may have {LARGEST_YAML:,}")
    text = decoded(content, where)
    try:
        _check_events(text)
        value = yaml.load(text, _yaml_loader())
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark or error.context_mark, error.problem or error.context
        place = where if mark is None else f"{where}, line {mark.line + 1}"
        raise ValueError(f"{place}: {' '.join(str(problem).split())[:200]}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two for dates such as 2024-99-99
        raise ValueError(f"{where}: not YAML: {' '.join(str(error).split())[:200]}") from error
    return value


def _check_events(text: str) -> None:
    """Refuse aliases and deep nesting, before anything is built from the text."""
    import yaml

    depth = 0
    for event in yaml.parse(text, _yaml_loader()):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST + 1:
            _refuse(f"nested too deeply (more than {DEEPEST} levels)", event)
        if isinstance(event, yaml.AliasEvent):
            _refuse("an alias (*name): write the value again", event)


def _refuse(problem: str, at: Any) -> None:
    import yaml

    raise yaml.constructor.ConstructorError(None, None, problem, at.start_mark)


@functools.cache
def _yaml_loader() -> Any:
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """The loader in C is ten times as fast; a few builds of PyYAML lack it."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                name = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else None
                if name is not None and name in seen:
                    _refuse(f"the key {brief(key.value)} appears twice", key)
                seen.add(name)
            return super().construct_mapping(node, deep)

        def construct_yaml_int(self, node: Any) -> int:
            if len(node.value) > 100:  # 1:0:0:... is a number in base 60, computed slowly
                _refuse("a number of more than 100 characters", node)
            return super().construct_yaml_int(node)

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)
    return Loader


def typed(kind: type[T], value: object, where: str) -> T:
    """Return a value as the type `kind` (checked by pydantic), or name all problems in one line.

    >>> typed(dict[str, int], {"a": 1, "b": "x"}, "run.json")
    Traceback (most recent call last):
    ValueError: run.json: b is 'x': Input should be a valid integer, unable to parse string as an integer
    """
    from pydantic import ValidationError

    try:
        result: T = adapter(kind).validate_python(value)  # type: ignore[arg-type]
        return result
    except ValidationError as error:
        raise ValueError(f"{where}: {'; '.join(problems_of(error))}") from None


@functools.cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return what checks values of a type; it is made once."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def problems_of(error: ValidationError, *, place: str = "", most: int = 5) -> list[str]:
    """Return the problems that pydantic found in a value, each with its place in it and what is there."""
    missing, lines = [], []
    outer = [place] if place else []
    for problem in error.errors(include_url=False):
        place = ".".join([*outer, *map(str, problem["loc"])])
        text = problem["msg"].removeprefix("Value error, ")
        text = re.sub(r"\d[\d.]{19,}", lambda digits: f"{float(digits[0]):g}", text)
        if problem["type"] == "missing":
            missing.append(place)
        else:
            lines.append(f"{place} is {brief(problem['input'])}: {text}" if place else text)
    if missing:
        lines.insert(0, f"no value for {', '.join(missing)}")
    return [*lines[:most], *([f"{len(lines) - most} more problems"] if len(lines) > most else [])]


def brief(value: Any) -> str:
    """Return a value for a message, without what is too long.

    >>> brief("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    text = repr(value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def repeated(values: Iterable[T]) -> T | None:
    """Return the first value that occurs a second time, None if all are different.

    >>> repeated("abcb"), repeated("abc")
    ('b', None)
    """
    seen = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


class _RepeatedKeyError(Exception):
    """An object has the same key twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise _RepeatedKeyError(repeated(key for key, _ in pairs))
    return result


def _is_utf_16(content: bytes) -> bool:
    return content[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in content[:4]


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, (list, set, tuple)) else ()


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [part for outer in level for part in _parts(outer)]
        if not level:
            return False
    return True


def _has_lone_surrogate(value: Any) -> bool:
    if isinstance(value, str):
        return LONE_SURROGATE.search(value) is not None
    return any(map(_has_lone_surrogate, _parts(value)))


def script_json(data: Any) -> str:
    """Return data as JSON that cannot end the element of a page that holds it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def digest_of(text: str) -> str:
    """Return the id of a long text.

    >>> digest_of("long")
    'fc66f021c67d064c'
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def source_hash(text: str) -> str:
    """Return a script or style as a page's security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
