"""Count lines of code by package, without docstrings, comments and blank lines."""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

_SKIPPED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _SKIPPED:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        # A string that is a statement documents what it stands in, or the name above it.
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("rmcalib"))
    root = parser.parse_args().folder
    lines: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for path in sorted(root.rglob("*.py")):
        inner = path.relative_to(root).parts
        package = inner[0] if len(inner) > 1 else "."
        lines[package] += code_lines(path.read_text(encoding="utf-8"))
        modules[package] += 1
    for package in sorted(lines):
        print(f"{package:16} {lines[package]:7,} lines {modules[package]:4} modules")
    print(f"{'all':16} {lines.total():7,} lines {modules.total():4} modules")


if __name__ == "__main__":
    main()
