"""Read PrefLib files (preflib.org): strict or tied, complete or incomplete orders with counts."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmcalib._util.arrays import IntArray
from rmcalib.ranking._partial import PartialRankings

__all__ = ["Profile", "read_preflib"]

_SUFFIXES = (".soc", ".soi", ".toc", ".toi")
_ENTRY = re.compile(r"\{[^{}]*\}|[^,{}]+")


@dataclass(frozen=True, eq=False)
class Profile:
    """The rankings of a group of voters.

    Parameters
    ----------
    alternatives : tuple of str
        Names of the m alternatives.
    rankings : PartialRankings
        The distinct rankings, (R, m).
    counts : int array (R,)
        How many voters gave each ranking.

    Examples
    --------
    >>> profile = Profile(("tea", "coffee"), PartialRankings([[0, 1], [1, 0]]), np.array([2, 1]))
    >>> len(profile)
    3
    """

    alternatives: tuple[str, ...]
    rankings: PartialRankings
    counts: IntArray

    def __len__(self) -> int:
        """Return the number of voters."""
        return int(self.counts.sum())

    def per_voter(self) -> PartialRankings:
        """Return one ranking per voter, as the calibration notions need them: (voters, m).

        >>> profile = Profile(("a", "b"), PartialRankings([[0, 1], [1, 0]]), np.array([2, 1]))
        >>> profile.per_voter().buckets.tolist()
        [[0, 1], [0, 1], [1, 0]]
        """
        return self.rankings.take(np.repeat(np.arange(len(self.counts)), self.counts))


def read_preflib(path: str | Path) -> Profile:
    """Read a PrefLib file: ``.soc``, ``.soi``, ``.toc`` or ``.toi``.

    Nothing is guessed about alternatives that an incomplete order does not list. If the voters meant that
    these come last, say so with ``profile.rankings.with_unlisted_last()``.

    Parameters
    ----------
    path : str or Path
        The file. Lines that start with ``#`` are metadata; every other line is ``count: order``, with
        alternatives numbered from 1 and ties in braces, such as ``10: 1,2,{3,4}``.

    Returns
    -------
    Profile
        Names, distinct rankings (items numbered from 0) and counts.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> text = "# NUMBER ALTERNATIVES: 3\\n# ALTERNATIVE NAME 1: tea\\n2: 1,{2,3}\\n1: 3,1,2\\n"
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "votes.toc").write_text(text)
    ...     profile = read_preflib(Path(folder) / "votes.toc")
    >>> profile.alternatives, profile.rankings.buckets.tolist(), profile.counts.tolist()
    (('tea', '2', '3'), [[0, 1, 1], [1, 2, 0]], [2, 1])
    """
    source = Path(path)
    suffix = source.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ValueError(f"{source}: not a PrefLib file of orders; expected a name that ends in {_listed()}")
    try:
        lines = source.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise ValueError(f"{source}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{source}: not a text file in UTF-8") from error
    metadata = dict(_metadata(lines))
    m = _whole(metadata.get("NUMBER ALTERNATIVES", ""))
    if m is None or m < 2:
        raise ValueError(f"{source}: expected a line '# NUMBER ALTERNATIVES: m' with m of at least 2")
    rows, counts = [], []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            count, ranking = _vote(line, m, f"{source}: line {number}")
            _check_kind(ranking, m, suffix, f"{source}: line {number}")
            rows.append([[item - 1 for item in bag] for bag in ranking])
            counts.append(count)
    if not rows:
        raise ValueError(f"{source}: has no orders")
    _check_totals(metadata, counts, source)
    names = tuple(metadata.get(f"ALTERNATIVE NAME {number}", str(number)) for number in range(1, m + 1))
    return Profile(names, PartialRankings.from_lists(rows, n_items=m), np.array(counts, dtype=np.int64))


def _metadata(lines: list[str]) -> list[tuple[str, str]]:
    pairs = [line.lstrip()[1:].partition(":") for line in lines if line.lstrip().startswith("#")]
    return [(key.strip().upper(), value.strip()) for key, _, value in pairs]


def _vote(line: str, m: int, where: str) -> tuple[int, list[list[int]]]:
    """Parse 'count: order' into the count and the bags of alternatives, numbered from 1."""
    head, _, order = line.partition(":")
    count, order = _whole(head), re.sub(r"\s", "", order)
    if not order or count is None or count < 1:
        raise ValueError(f"{where} is '{_short(line)}'; expected 'count: order', such as '10: 1,2,{{3,4}}'")
    entries = _ENTRY.findall(order)
    if order != ",".join(entries):
        raise ValueError(f"{where} is '{_short(line)}'; braces and commas do not match")
    ranking: list[list[int]] = []
    seen: set[int] = set()
    for entry in entries:
        bag = []
        for text in entry.strip("{}").split(","):
            item = _whole(text)
            if item is None or not 1 <= item <= m:
                raise ValueError(f"{where} has '{_short(text)}'; expected an alternative from 1 to {m}")
            if item in seen:
                raise ValueError(f"{where} lists alternative {item} twice")
            seen.add(item)
            bag.append(item)
        ranking.append(bag)
    return count, ranking


def _check_kind(ranking: list[list[int]], m: int, suffix: str, where: str) -> None:
    if suffix[1] == "s" and any(len(bag) > 1 for bag in ranking):
        raise ValueError(
            f"{where} has a tie, but {suffix} files hold strict orders (.toc and .toi have ties)"
        )
    if suffix[3] == "c" and sum(map(len, ranking)) != m:
        raise ValueError(
            f"{where} lists {sum(map(len, ranking))} of {m} alternatives, but {suffix} files hold complete "
            "orders (.soi and .toi are incomplete)"
        )


def _check_totals(metadata: dict[str, str], counts: list[int], source: Path) -> None:
    """Compare with the numbers in the header, to detect files that were cut off."""
    found = {"NUMBER VOTERS": sum(counts), "NUMBER UNIQUE ORDERS": len(counts)}
    for name, value in found.items():
        stated = _whole(metadata.get(name, ""))
        if stated is not None and stated != value:
            raise ValueError(
                f"{source}: the header says {name}: {stated}, but the file has {value}; is it complete?"
            )


def _whole(text: str) -> int | None:
    cleaned = text.strip()
    return int(cleaned) if cleaned.isascii() and cleaned.isdigit() and len(cleaned) < 18 else None


def _listed() -> str:
    return f"{', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}"


def _short(text: str) -> str:
    printable = "".join(character if character.isprintable() else "?" for character in text)
    return printable if len(printable) <= 40 else printable[:37] + "..."
