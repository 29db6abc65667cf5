"""`Scores`: a table of rewards with one row per response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, check_choice
from rmcalib.scores import _files, _rewardbench
from rmcalib.scores._arrays import columns_of_arrays
from rmcalib.scores._beats import flat_beats, soften
from rmcalib.scores._columns import (
    COLUMNS,
    DETAIL,
    NEEDED,
    VOTE_COLUMNS,
    Place,
    checked_columns,
    columns_of_rows,
    row_place,
)
from rmcalib.scores._consistency import check, is_ordered, starts_of
from rmcalib.scores._kinds import Reading, plain_columns

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

__all__ = ["UNKNOWN_LENGTH", "Scores"]

UNKNOWN_LENGTH = -1
"""`n_tokens` of scores that were not made by rmcalib."""
_OF_THE_RUN = (
    "hash",
    "asked",
    "scores_sha256",
)  # entries of a manifest that hold for the unchanged rewards only


@dataclass(frozen=True)
class Scores:
    """The rewards of a benchmark's responses, with a manifest of how they were made.

    Use :func:`rmcalib.score`, :func:`rmcalib.load_scores` or one of the ``from_`` methods to make one.

    The responses of a prompt are next to each other, in the order of ``response``. Every reward is finite.
    Every prompt has at least one wrong response, and at least one correct response unless people voted on it.

    Attributes
    ----------
    item_id : str (N,)
        The id of the prompt of each response.
    category : str (N,)
        The category of the prompt.
    response : int (N,)
        The number of the response in its prompt: 0, 1, ...
    is_correct : bool (N,)
        Whether the response is correct.
    reward : float (N,)
        The reward.
    n_tokens : int (N,)
        The number of tokens; -1 if it is unknown.
    truncated : bool (N,)
        Whether the text was cut to the maximum length.
    manifest : dict[str, Any]
        How the scores were made.
    votes : int (N,), optional
        How many people preferred the response; None without votes.
    ties : int (N,), optional
        How many people found the responses of the prompt equally good, repeated on each of its rows; None
        without votes.
    beats : object array (N,), optional
        For judges that compare two responses or whose rewards are distributions: the
        probabilities that the response beats response 0, 1, ... of its prompt, None where one is unknown.
    details : dict of float (N,)
        Other numbers of the judge's answer by name, such as its own votes, with NaN where there is none. In
        files, the names of these columns begin with ``judge_``.

    Examples
    --------
    >>> scores = Scores.from_arrays([[2.5, -1.0], [0.0, 3.0]], correct=[0, 1], category=["Math", "Chat"])
    >>> len(scores), scores.n_items, scores.reward.tolist(), scores.offsets.tolist()
    (4, 2, [2.5, -1.0, 0.0, 3.0], [0, 2, 4])
    """

    item_id: npt.NDArray[np.str_]
    category: npt.NDArray[np.str_]
    response: IntArray
    is_correct: BoolArray
    reward: FloatArray
    n_tokens: IntArray
    truncated: BoolArray
    manifest: dict[str, Any] = field(default_factory=dict)
    votes: IntArray | None = None
    ties: IntArray | None = None
    beats: npt.NDArray[np.object_] | None = None
    details: dict[str, FloatArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check what every metric assumes."""
        check(self)

    def __len__(self) -> int:
        """Return the number of responses."""
        return len(self.reward)

    def __repr__(self) -> str:
        """Return a summary: the numbers of prompts and responses."""
        about = {name: self.manifest[name] for name in ("model", "benchmark") if name in self.manifest}
        return f"Scores({self.n_items} prompts, {len(self)} responses, {about})"

    @cached_property
    def offsets(self) -> IntArray:
        """Index of the first response of each prompt, and N at the end: int (n_items + 1,)."""
        return np.append(starts_of(self.item_id), len(self)).astype(np.int64)

    @property
    def n_items(self) -> int:
        """Number of prompts."""
        return len(self.offsets) - 1

    @property
    def has_votes(self) -> bool:
        """Whether people's votes are known."""
        return self.votes is not None

    @property
    def n_votes(self) -> IntArray:
        """Number of people who voted on each prompt, ties included: int (n_items,); zeros without votes."""
        if self.votes is None or self.ties is None:
            return np.zeros(self.n_items, dtype=np.int64)
        starts = self.offsets[:-1]
        total: IntArray = np.add.reduceat(self.votes, starts) + self.ties[starts]
        return total

    def vote_shares(self, *, ties: Literal["drop", "split", "keep"] = "drop") -> FloatArray:
        """Return the fraction of people who preferred each response.

        Parameters
        ----------
        ties : {"drop", "split", "keep"}
            What to do with people who preferred none: ``"drop"`` leaves them out, ``"split"`` divides each of
            them among the prompt's responses, ``"keep"`` counts them in the total only, so that the
            fractions, with that of the ties, sum to 1.

        Returns
        -------
        float (N,)
            NaN if nobody voted on the prompt.

        Examples
        --------
        >>> scores = Scores.from_arrays([[1.0, 0.0]], votes=[[2, 1]], ties=[1])
        >>> [scores.vote_shares(ties=way).tolist() for way in ("split", "keep")]
        [[0.625, 0.375], [0.5, 0.25]]
        """
        check_choice(ties, "ties", ("drop", "split", "keep"))
        if self.votes is None or self.ties is None:
            return np.full(len(self), np.nan)
        sizes = np.diff(self.offsets)
        total = np.repeat(self.n_votes, sizes) - (self.ties if ties == "drop" else 0)
        own = self.votes + (self.ties / np.repeat(sizes, sizes) if ties == "split" else 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares: FloatArray = own / total
        return shares

    @cached_property
    def pair_probabilities(self) -> FloatArray | None:
        """P(i beats j) as one flattened matrix per prompt: float (Σ m²,), NaN where unknown; None without."""
        return None if self.beats is None else flat_beats(self.beats, np.diff(self.offsets))

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of a file by name. Votes, pairs and details are included if there are any."""
        names = COLUMNS if self.votes is None else (*COLUMNS, *VOTE_COLUMNS)
        names = names if self.beats is None else (*names, "beats")
        details = {f"{DETAIL}{name}": array for name, array in self.details.items()}
        return {**{name: getattr(self, name) for name in names}, **details}

    def take(self, items: ArrayLike) -> Scores:
        """Return the scores of some prompts, in unchanged order.

        Parameters
        ----------
        items : bool (n_items,)
            Which prompts to keep.

        Returns
        -------
        Scores

        Examples
        --------
        >>> Scores.from_arrays([[1.0, 0.0], [2.0, 0.0]]).take([False, True]).reward.tolist()
        [2.0, 0.0]
        """
        mask = np.asarray(items)
        if mask.dtype != bool or mask.shape != (self.n_items,) or not mask.any():
            raise ValueError(f"items: expected {self.n_items} truth values, at least one of them true")
        rows = np.repeat(mask, np.diff(self.offsets))
        return replace(self, **_fields({name: array[rows] for name, array in self.columns().items()}))

    def decided(self) -> Scores:
        """Return the prompts that have a correct response. Prompts with tied votes have none.

        >>> Scores.from_arrays([[1.0, 0.0], [2.0, 0.0]], votes=[[2, 2], [3, 1]]).decided().n_items
        1
        """
        has_one = np.logical_or.reduceat(self.is_correct, self.offsets[:-1])
        if not has_one.any():
            raise ValueError("no prompt with a correct response: the votes on all of them are tied")
        return self if has_one.all() else self.take(has_one)

    def at_temperature(self, temperature: float) -> Scores:
        """Return the scores with all rewards divided by a temperature.

        P(i first) = exp(r_i / T) / Σ_j exp(r_j / T): T > 1 makes forecasts less confident. The manifest
        records the temperature.

        >>> Scores.from_arrays([[3.0, 1.0]]).at_temperature(2.0).reward.tolist()
        [1.5, 0.5]
        """
        if not np.isfinite(temperature) or temperature <= 0:
            raise ValueError(f"temperature: {temperature!r} is not a positive finite number")
        about = {key: value for key, value in self.manifest.items() if key not in _OF_THE_RUN}
        about["temperature"] = float(about.get("temperature", 1.0)) * float(temperature)
        columns = {**self.columns(), "reward": self.reward / temperature}
        if self.beats is not None:
            columns["beats"] = soften(self.beats, temperature)
        return Scores.from_columns(columns, about, source=f"scores at temperature {temperature:g}")

    @classmethod
    def from_arrays(
        cls,
        rewards: ArrayLike,
        correct: ArrayLike | None = None,
        category: str | Iterable[str] | None = None,
        *,
        item_id: Iterable[str] | None = None,
        votes: ArrayLike | None = None,
        ties: ArrayLike | None = None,
        manifest: Mapping[str, Any] | None = None,
    ) -> Scores:
        """Build scores from an array of rewards, one row per prompt.

        Parameters
        ----------
        rewards : float (n, m)
            The rewards of each prompt's m responses.
        correct : array, optional
            Which response is correct: one index for all prompts, int (n,), or bool (n, m) if several are.
            Default: the response with most votes if there are votes, else the first.
        category : str | Iterable[str], optional
            One name for all prompts, or one per prompt (n,); default ``"all"``.
        item_id : Iterable[str], optional
            Ids of the prompts (n,); default their numbers.
        votes : int (n, m), optional
            How many people preferred each response.
        ties : int (n,), optional
            How many found them equally good; default 0.
        manifest : Mapping[str, Any], optional
            Information about how the scores were made.

        Returns
        -------
        Scores

        Examples
        --------
        >>> Scores.from_arrays([[0.5, 1.5, 0.0]], correct=1).is_correct.tolist()
        [False, True, False]
        """
        columns = columns_of_arrays(rewards, correct, category, item_id, votes, ties)
        return cls.from_columns(columns, manifest)

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[str, Any],
        manifest: Mapping[str, Any] | None = None,
        *,
        source: str = "scores",
        place: Place = row_place,
        reading: Reading | None = None,
    ) -> Scores:
        """Build scores from columns. Prompts keep the order of their first row.

        Parameters
        ----------
        columns : mapping of names to values (N,)
            ``n_tokens``, ``truncated``, ``votes``, ``ties`` and ``beats`` are optional. ``steps``,
            ``quantiles`` or ``beats`` can replace ``reward``, and ``spread`` can be given with it.
        manifest : Mapping[str, Any], optional
            Information about how the scores were made.
        source, place
            Name the data and the row in error messages.
        reading : Reading, optional
            How to turn other kinds of scores into rewards.

        Returns
        -------
        Scores

        Examples
        --------
        >>> columns = {"item_id": ["a", "a"], "category": ["x", "x"], "response": [0, 1],
        ...            "is_correct": [True, False], "steps": [[0.9, 0.8], [0.9, 0.1]]}
        >>> scores = Scores.from_columns(columns, reading=Reading(steps="min"))
        >>> scores.reward.round(2).tolist(), scores.manifest["steps"]
        ([1.39, -2.2], 'min')
        """
        columns, kind = plain_columns(columns, reading or Reading(), source=source, place=place)
        absent = [name for name in NEEDED if name not in columns]
        if absent:
            raise ValueError(f"{source}: no column {', '.join(absent)} (has {', '.join(map(str, columns))})")
        n = len(columns["reward"])
        if n == 0 and "missing" in kind:
            raise ValueError(f"{source}: no prompt has a score for each of its responses")
        if n == 0:
            raise ValueError(f"{source}: contains no scores")
        given = {"n_tokens": np.full(n, UNKNOWN_LENGTH), "truncated": np.zeros(n, dtype=bool), **columns}
        if "votes" in given:
            given.setdefault("ties", np.zeros(n, dtype=np.int64))
        elif "ties" in given:
            raise ValueError(f"{source}: a column ties, but no column votes")
        arrays = checked_columns(given, source=source, place=place)
        if not is_ordered(arrays["item_id"], arrays["response"]):
            _, first, inverse = np.unique(arrays["item_id"], return_index=True, return_inverse=True)
            order = np.lexsort((arrays["response"], first[inverse]))
            arrays = {name: array[order] for name, array in arrays.items()}
        try:
            return cls(**_fields(arrays), manifest={**(manifest or {}), **kind})
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Mapping[str, Any]],
        manifest: Mapping[str, Any] | None = None,
        *,
        source: str = "scores",
        place: Place = row_place,
        reading: Reading | None = None,
    ) -> Scores:
        """Build scores from rows, which are mappings with the names of the columns; see `from_columns`."""
        absent = reading is not None and reading.missing != "refuse"
        columns = columns_of_rows(rows, source=source, place=place, missing=absent)
        return cls.from_columns(columns, manifest, source=source, place=place, reading=reading)

    @classmethod
    def from_pandas(
        cls,
        table: pd.DataFrame,
        manifest: Mapping[str, Any] | None = None,
        *,
        reading: Reading | None = None,
    ) -> Scores:
        """Build scores from a table with the columns of `from_columns`; others are ignored.

        >>> import pandas as pd
        >>> table = pd.DataFrame({"item_id": ["a", "a"], "category": "Math", "response": [0, 1],
        ...                       "is_correct": [True, False], "reward": [1.0, 0.0]})
        >>> Scores.from_pandas(table).n_items
        1
        """
        columns = {str(name): table[name].to_numpy() for name in table.columns}
        return cls.from_columns(columns, manifest, source="table", reading=reading)

    def to_pandas(self) -> pd.DataFrame:
        """Return the scores as a table, one row per response.

        >>> Scores.from_arrays([[1.0, 0.0]]).to_pandas()["reward"].tolist()
        [1.0, 0.0]
        """
        import pandas as pd

        return pd.DataFrame(
            {k: v.astype(object) if v.dtype.kind == "U" else v for k, v in self.columns().items()}
        )

    @classmethod
    def from_parquet(cls, path: str | Path, *, reading: Reading | None = None) -> Scores:
        """Read a Parquet file with our columns, and its manifest if it has one."""
        columns, manifest = _files.read_parquet(path)
        return cls.from_columns(columns, manifest, source=str(path), reading=reading)

    def to_parquet(self, path: str | Path) -> dict[str, Any]:
        """Write a Parquet file with the manifest; return the manifest with a digest of the content."""
        return _files.write_parquet(path, self.columns(), self.manifest)

    @classmethod
    def from_jsonl(cls, path: str | Path, *, reading: Reading | None = None) -> Scores:
        """Read JSONL: one object per response, with our columns."""
        places: list[str] = []
        rows = _files.read_jsonl(path, places)
        return cls.from_rows(rows, source=str(path), place=places.__getitem__, reading=reading)

    def to_jsonl(self, path: str | Path) -> None:
        """Write JSONL, one object per response."""
        _files.write_jsonl(path, self.columns())

    @classmethod
    def from_rewardbench_json(cls, path: str | Path) -> Scores:
        """Read a file of RewardBench's `eval-set-scores`. Correct responses come first in its lists."""
        return cls.from_rewardbench(_files.read_json(path), source=str(path))

    @classmethod
    def from_rewardbench(cls, content: Any, *, source: str) -> Scores:
        """Build scores from the content of an `eval-set-scores` file (columns as lists)."""
        columns, places, about = _rewardbench.read_columns(content, source)
        return cls.from_columns(columns, about, source=source, place=places.__getitem__)

    def to_rewardbench_json(self, path: str | Path) -> None:
        """Write a file in the format of RewardBench's `eval-set-scores`, without the texts."""
        _files.write_json(path, _rewardbench.content(self.columns(), self.offsets, self.manifest))


def _fields(columns: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Turn columns into fields of `Scores`. All columns of details are one field."""
    details = {name.removeprefix(DETAIL): array for name, array in columns.items() if name.startswith(DETAIL)}
    own = {name: array for name, array in columns.items() if not name.startswith(DETAIL)}
    return {**own, "details": details}
