"""Damage files of all our kinds at random, and read them: each must be read, or refused in one line, quickly.

    python scripts/fuzz_files.py --files 1000 --seed 1

Values are replaced by others of any type, and bytes are changed, cut or repeated. Whatever raises something
else than a ValueError of one line, or takes over ten seconds, is kept and listed; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the small files of the tests

from rmcalib._util.files import read_csv_table  # noqa: E402
from rmcalib.benchmarks import known_entry, load_benchmark  # noqa: E402
from rmcalib.repair import Calibrator  # noqa: E402
from rmcalib.scores import Scores, load_scores  # noqa: E402
from tests.benchmarks.shapes import SHAPES, write  # noqa: E402

SLOW = 10.0  # seconds
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 10**30, 10**400, 1e308, float("nan"), float("inf")),
    *("", "x" * 70_000, "\0", "[", "[1]", "{}", "1e5", "nan", "-3", "\u202e", "\x1b[31m", "../../x"),
    *([], {}, [[]], [None], [[[["x"]]]], ["\ud800"], {"": None}, {"role": "user"}),
    [{"role": "assistant", "content": "x"}],
    [{"role": "user", "content": [{"text": 1}]}],
)


def changed(value: Any, rng: random.Random) -> Any:
    """Return a value of which one part, at any depth, is another."""
    if not isinstance(value, (list, dict)) or not value or rng.random() < 0.3:
        return rng.choice(VALUES)
    value = copy.copy(value)
    key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    how = rng.random()
    if how < 0.15:
        del value[key]
    elif how < 0.3 and isinstance(value, list):
        value.append(copy.deepcopy(value[key]))
    else:
        value[key] = changed(value[key], rng)
    return value


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return bytes with a few flipped bits, cuts, repetitions and foreign bytes."""
    found = bytearray(content)
    for _ in range(rng.randrange(1, 5)):
        if not found:
            break
        at = rng.randrange(len(found))
        how = rng.random()
        if how < 0.5:
            found[at] ^= 1 << rng.randrange(8)
        elif how < 0.7:
            del found[at:]
        elif how < 0.85:
            found[at:at] = found[at : at + rng.randrange(50)]
        else:
            found[at : at + 3] = rng.randbytes(3)
    return bytes(found)


def one_file(folder: Path, rng: random.Random) -> tuple[Path, Callable[[Path], object]]:
    """Write a file of some kind, with changed values, and return it with the function that reads it."""
    kind = rng.choice(("benchmark", "benchmark", "scores", "calibrator", "entry", "table"))
    if kind == "calibrator":
        content = json.loads(Calibrator(2.0, 1.8, 2.3).save(folder / "c.json").read_text())
        path = folder / "c.json"
        path.write_text(json.dumps(changed(content, rng)))
        return path, Calibrator.load
    if kind == "entry":
        path = folder / "e.yaml"
        path.write_bytes(
            rng.choice(sorted((ROOT / "rmcalib/benchmarks/library").glob("*.yaml"))).read_bytes()
        )
        return path, lambda path: known_entry(str(path))
    if kind == "scores" and rng.random() < 0.5:
        path = folder / "s.parquet"
        Scores.from_arrays([[1.0, 2.0], [3.0, 1.0]], category=["a", "b"]).to_parquet(path)
        return path, load_scores
    name = rng.choice(list(SHAPES))
    rows: Any = copy.deepcopy(SHAPES[name])
    if kind == "scores":
        rows = Scores.from_arrays([[1.0, 2.0], [3.0, 1.0]]).to_pandas().to_dict("records")
    for _ in range(rng.randrange(3)):
        rows = changed(rows, rng)
    path = (
        folder / f"x{rng.choice(('.csv',) if kind == 'table' else ('.jsonl', '.json', '.parquet', '.csv'))}"
    )
    try:
        write(path, rows)
    except Exception:  # such values cannot be in a table
        path = folder / "x.json"
        path.write_text(json.dumps(rows))
    if kind == "table" and path.suffix == ".csv":
        return path, read_csv_table
    format = rng.choice([name, None, rng.choice(list(SHAPES))])
    return path, load_scores if kind == "scores" else lambda path: load_benchmark(str(path), format=format)


def surprise(path: Path, read: Callable[[Path], object]) -> str:
    """Return what is wrong with how a file is read; empty if nothing is."""
    start = time.monotonic()
    try:
        read(path)
    except ValueError as error:
        if "\n" in str(error) or len(str(error)) > 3000:
            return f"a message that is not one line: {str(error)[:200]!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - start
    return f"{seconds:.0f} s" if seconds > SLOW else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    warnings.simplefilter("ignore")
    surprises = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.files):
            path, read = one_file(Path(folder), rng)
            if rng.random() < 0.5:
                path.write_bytes(damaged(path.read_bytes(), rng))
            if found := surprise(path, read):
                surprises += 1
                kept = Path(f"surprise-{args.seed}-{number}{path.suffix}")
                kept.write_bytes(path.read_bytes())
                print(f"{kept}: {found}")
    print(f"{args.files} files, {surprises} surprises")
    return int(surprises > 0)


if __name__ == "__main__":
    sys.exit(main())
