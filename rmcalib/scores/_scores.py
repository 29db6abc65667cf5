"""`Scores`: a table of rewards with one row per response."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rmcalib._util import arrays
from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib.benchmarks._official import entry_of, tied_categories
from rmcalib.scores import _files, _schema
from rmcalib.scores._schema import Place, row_place
from rmcalib.scores.scale import (
    Labels,
    Scale,
    Use,
    View,
    as_scale,
    meaning_of_labels,
    refusal,
    scale_of_manifest,
    view_of,
)

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike


_OF_THE_RUN = ("hash", "asked", "scores_sha256")  # of a manifest; they hold for the unchanged rewards only
_OPTIONAL = ("votes", "ties", "beats", "cluster")
_DETAIL = "judge_"
_BY_BENCHMARK: dict[str, Labels] = {"one": "best", "pairs": "best", "correct": "correct", "votes": "votes"}


@dataclass(frozen=True)
class Scores:
    """The rewards of a benchmark's responses, with a manifest of how they were made.

    Use :func:`rmcalib.score`, :func:`rmcalib.load_scores` or one of the ``from_`` methods to make one.

    The responses of a prompt are next to each other, in the order of ``response``. Every reward is finite. A
    prompt may have no, some or only correct responses, or no labels; :meth:`decided` selects the prompts that
    have a correct and a wrong one.

    Attributes
    ----------
    item_id : str (N,)
        The id of the prompt of each response.
    category : str (N,)
        The category of the prompt.
    response : int (N,)
        The number of the response in its prompt: 0, 1, ...
    label : float (N,)
        1 for a correct response, 0 for a wrong one, a share in between for a graded one or for one of several
        that share first place, NaN if unknown.
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
        For judges that compare two responses: the probabilities that the response beats response 0, 1, ... of
        its prompt, None where one is unknown.
    cluster : str (N,), optional
        Which prompts belong together, such as paraphrases of one question; None if each is on its own.
    extra : dict of arrays (N,)
        Any further columns of the source, by name. Names of other numbers in a judge's answer begin with
        ``judge_``; see `details`.

    Examples
    --------
    >>> scores = Scores.from_arrays([[2.5, -1.0], [0.0, 3.0]], correct=[0, 1], category=["Math", "Chat"])
    >>> len(scores), scores.n_items, scores.reward.tolist(), scores.offsets.tolist()
    (4, 2, [2.5, -1.0, 0.0, 3.0], [0, 2, 4])
    """

    item_id: npt.NDArray[np.str_]
    category: npt.NDArray[np.str_]
    response: IntArray
    label: FloatArray
    reward: FloatArray
    n_tokens: IntArray
    truncated: BoolArray
    manifest: dict[str, Any] = field(default_factory=dict)
    votes: IntArray | None = None
    ties: IntArray | None = None
    beats: npt.NDArray[np.object_] | None = None
    cluster: npt.NDArray[np.str_] | None = None
    extra: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of responses."""
        return len(self.reward)

    def __repr__(self) -> str:
        """Return a summary: the numbers of prompts and responses."""
        about = " on ".join(
            str(self.manifest[name]) for name in ("model", "benchmark") if self.manifest.get(name)
        )
        sizes = f"{self.n_items} prompts, {len(self)} responses"
        labels = f"labels {self.labels}" if self.labels else "no labels"
        return f"Scores({about and f'{about}: '}{sizes}, scale {self.scale.kind}, {labels})"

    @property
    def name(self) -> str:
        """Name of the model for messages."""
        return str(self.manifest.get("model") or "scores")

    @cached_property
    def scale(self) -> Scale:
        """The scale of the rewards. The registry overrides the run's record, because a recipe may have been corrected.

        >>> Scores.from_arrays([[1.0, 0.0]], scale="log_odds").scale.kind
        'log_odds'
        """
        return scale_of_manifest(self.manifest)

    @property
    def labels(self) -> Labels | None:
        """What the labels mean: "best", "correct" (response by response) or "votes"; None without labels.

        >>> Scores.from_arrays([[1.0, 0.0]], correct=[[True, True]]).labels
        'correct'
        """
        kind: Labels | None = self.manifest.get("labels", {}).get("kind")
        return kind

    @property
    def view(self) -> View:
        """How the labels are read: "top_1", one response of a prompt is the best, or "pointwise"."""
        return view_of(self.labels)

    def refusal(self, use: Use | None = None) -> str | None:
        """Return why these scores cannot be used in some way (default: in their view); None if they can.

        >>> Scores.from_arrays([[1.0, 0.0]], scale="pairs").refusal()
        'it compares two responses at a time: only pairs are measured'
        """
        return refusal(self.scale, self.labels, use or self.view)

    def with_scale(self, scale: Scale) -> Scores:
        """Return the same numbers, which are now known to be on this scale."""
        about = {**self.manifest, "scale": asdict(scale)}
        about.setdefault("score_kind", scale.kind)
        return replace(self, manifest=about)

    def labelled_as(self, labels_are: str) -> Scores:
        """Return the same scores with labels that mean "best" or "correct"."""
        arrays.check_choice(labels_are, "labels_are", ("best", "correct"))
        if self.labels in (None, "votes"):
            what = "there are no labels" if self.labels is None else "the labels are votes"
            raise ValueError(f"labels_are: {labels_are!r} has no effect: {what}")
        return replace(
            self, manifest={**self.manifest, "labels": {"kind": labels_are, "from": "as you said"}}
        )

    @cached_property
    def offsets(self) -> IntArray:
        """Index of the first response of each prompt, and N at the end: int (n_items + 1,)."""
        return np.append(_schema.starts_of(self.item_id), len(self)).astype(np.int64)

    @property
    def n_items(self) -> int:
        """Number of prompts."""
        return len(self.offsets) - 1

    @cached_property
    def is_correct(self) -> BoolArray:
        """Whether the label of each response is 1: bool (N,)."""
        return np.asarray(self.label == 1)

    @cached_property
    def probabilities(self) -> FloatArray:
        """P(the response is the best of its prompt), the softmax of the prompt's rewards: float (N,).

        These are the top-1 marginals of a Plackett-Luce distribution with the rewards as log-utilities.

        >>> Scores.from_arrays([[np.log(3.0), 0.0]]).probabilities.round(4).tolist()
        [0.75, 0.25]
        """
        return np.exp(arrays.segment_log_softmax(self.reward, np.diff(self.offsets)))

    @property
    def n_votes(self) -> IntArray:
        """Number of people who voted on each prompt, ties included: int (n_items,); zeros without votes."""
        if self.votes is None or self.ties is None:
            return np.zeros(self.n_items, dtype=np.int64)
        starts = self.offsets[:-1]
        total: IntArray = np.add.reduceat(self.votes, starts) + self.ties[starts]
        return total

    @property
    def details(self) -> dict[str, FloatArray]:
        """Other numbers of the judge's answer by name, such as its own votes: float (N,), NaN where unknown."""
        return {
            name.removeprefix(_DETAIL): array
            for name, array in self.extra.items()
            if name.startswith(_DETAIL) and array.dtype.kind == "f"
        }

    @cached_property
    def pair_probabilities(self) -> FloatArray | None:
        """P(i beats j) as one flattened matrix per prompt: float (Σ m²,), NaN where unknown; None without."""
        return None if self.beats is None else _schema.flat_beats(self.beats, np.diff(self.offsets))

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of a file by name, without those that are empty.

        ``is_correct`` is always one of them. ``label`` is one only if some label is neither 0 nor 1.
        """
        plain = bool(np.isin(self.label, (0.0, 1.0)).all())
        optional = {name: getattr(self, name) for name in _OPTIONAL}
        return {
            "item_id": self.item_id,
            "category": self.category,
            "response": self.response,
            "is_correct": self.is_correct,
            "reward": self.reward,
            "n_tokens": self.n_tokens,
            "truncated": self.truncated,
            **({} if plain else {"label": self.label}),
            **{name: array for name, array in optional.items() if array is not None},
            **self.extra,
        }

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
        if mask.dtype != bool or mask.shape != (self.n_items,):
            given = f"{mask.dtype} of shape {mask.shape}"
            raise ValueError(
                f"items: expected a truth value for each of the {self.n_items} prompts, got {given}"
            )
        if not mask.any():
            raise ValueError(f"items: none of the {self.n_items} prompts is kept")
        rows = np.repeat(mask, np.diff(self.offsets))
        kept = {name: array[rows] for name, array in self.columns().items()}
        return replace(self, **_fields(kept | {"label": self.label[rows]}))

    def part(self, part: str) -> Scores:
        """Return part K of N of the prompts, such as ``"1/2"``: the same prompts as ``load_benchmark(part=...)``.

        >>> scores = Scores.from_arrays([[1.0, 0.0]] * 10)
        >>> scores.part("1/2").n_items + scores.part("2/2").n_items
        10
        """
        from rmcalib.benchmarks._load import in_part

        kept = np.array(in_part(self.item_id[self.offsets[:-1]].tolist(), part), dtype=bool)
        if not kept.any():
            raise ValueError(f"part: part {part} of the scores contains no prompts")
        about = {
            **self.manifest,
            "benchmark": f"{self.manifest.get('benchmark') or 'scores'}-{part.replace('/', 'of')}",
        }
        return replace(self.take(kept), manifest=about)

    def decided(self) -> Scores:
        """Return the prompts with a correct and a wrong response, all of whose labels are known.

        These are the prompts on which one response can be the best. Prompts with tied votes are not among
        them.

        >>> Scores.from_arrays([[1.0, 0.0], [2.0, 0.0]], votes=[[2, 2], [3, 1]]).decided().n_items
        1
        """
        starts = self.offsets[:-1]
        has_correct = np.logical_or.reduceat(self.is_correct, starts)
        has_wrong = np.minimum.reduceat(self.label, starts) < 1  # False if a label is NaN
        kept = has_correct & has_wrong
        if not kept.any():
            raise ValueError(
                "no prompt has both a correct and a wrong response"
                + (": there are no labels" if np.isnan(self.label).all() else "")
                + (": the votes on all of them are tied" if (self.n_votes > 0).all() else "")
            )
        return self if kept.all() else self.take(kept)

    def at_temperature(self, temperature: float) -> Scores:
        """Return the scores with all rewards divided by a temperature.

        P(i first) = exp(r_i / T) / Σ_j exp(r_j / T): T > 1 makes forecasts less confident. The manifest
        records the temperature.

        >>> Scores.from_arrays([[3.0, 1.0]]).at_temperature(2.0).reward.tolist()
        [1.5, 0.5]
        """
        if not np.isfinite(temperature) or temperature <= 0:
            raise ValueError(f"temperature: {temperature!r} is not a positive finite number")
        with np.errstate(over="ignore"):
            reward = self.reward / temperature
        if np.abs(reward).max() > _schema.LARGEST_REWARD:
            raise ValueError(f"temperature: {temperature!r} makes a reward too large")
        about = {key: value for key, value in self.manifest.items() if key not in _OF_THE_RUN}
        about["temperature"] = float(about.get("temperature", 1.0)) * float(temperature)
        beats = None if self.beats is None else _softened(self.beats, temperature)
        return replace(self, reward=reward, beats=beats, manifest=about)

    @classmethod
    def from_arrays(
        cls,
        rewards: ArrayLike,
        correct: ArrayLike | None = None,
        category: str | Iterable[str] | None = None,
        *,
        item_id: Iterable[str] | None = None,
        cluster: Iterable[str] | None = None,
        votes: ArrayLike | None = None,
        ties: ArrayLike | None = None,
        scale: Scale | str | None = None,
        labels_are: str | None = None,
        manifest: Mapping[str, Any] | None = None,
    ) -> Scores:
        """Build scores from an array of rewards, one row per prompt.

        Parameters
        ----------
        rewards : float (n, m)
            The rewards of each prompt's m responses.
        correct : array, optional
            Which responses are correct: one index for all prompts; int (n,), one index per prompt; or (n, m)
            with true and false, or labels from 0 to 1 (NaN if unknown). Default: the response with most votes
            if there are votes, else the first.
        category : str | Iterable[str], optional
            One name for all prompts, or one per prompt (n,); default ``"all"``.
        item_id : Iterable[str], optional
            Ids of the prompts (n,); default their numbers.
        cluster : Iterable[str], optional
            Which prompts belong together (n,); default each on its own.
        votes : int (n, m), optional
            How many people preferred each response.
        ties : int (n,), optional
            How many found them equally good; default 0.
        scale : Scale or str, optional
            What the rewards are: "utility", "log_odds", "rating", "pairs" or "none"; see `Scale`. Nothing is
            converted: for numbers on other scales, use `load_scores`.
        labels_are : {"best", "correct"}, optional
            What the labels mean. Default: "best" for indices; truth values name the best response if at least
            nine of ten prompts have exactly one, and say otherwise of each response whether it is correct.
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
        reward = arrays.as_floats(rewards, "rewards", ndim=2)
        n, m = reward.shape
        columns: dict[str, Any] = {
            "item_id": np.repeat(_shaped(range(n) if item_id is None else item_id, "item_id", n), m),
            "category": np.repeat(_shaped("all" if category is None else category, "category", n), m),
            "response": np.tile(np.arange(m), n),
            "reward": reward.ravel(),
        }
        if cluster is not None:
            columns["cluster"] = np.repeat(_shaped(cluster, "cluster", n), m)
        if votes is not None:
            columns["votes"] = _shaped(votes, "votes", n, m).ravel()
            columns["ties"] = np.repeat(_shaped(0 if ties is None else ties, "ties", n), m)
        elif ties is not None:
            raise ValueError("ties: give votes too")
        if correct is not None or votes is None:  # otherwise votes decide
            columns["label"] = _labels(correct, (n, m)).ravel()
        named: Labels | None = (
            "best" if votes is None and np.ndim(0 if correct is None else correct) < 2 else None
        )
        made = cls.from_columns(columns, manifest, labels=named)
        if scale is not None:
            made = made.with_scale(as_scale(scale, "as you said"))
        return made if labels_are is None else made.labelled_as(labels_are)

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[str, Any],
        manifest: Mapping[str, Any] | None = None,
        *,
        labels: Labels | None = None,
        source: str = "scores",
        place: Place = row_place,
    ) -> Scores:
        """Build scores from columns. Prompts keep the order of their first row.

        Parameters
        ----------
        columns : mapping of names to values (N,)
            ``item_id``, ``response`` and ``reward``, and optionally ``label`` or ``is_correct`` (without
            them, votes decide, or labels are unknown), ``category``, ``n_tokens``, ``truncated``, ``votes``, ``ties``,
            ``beats``, ``cluster``, and any others, which become `extra`. Without ``reward``, the reward is
            the mean of a response's known ``beats``.
        manifest : Mapping[str, Any], optional
            Information about how the scores were made.
        labels : {"best", "correct", "votes"}, optional
            What the labels mean, if the source defines it; otherwise the manifest or the labels decide.
        source, place
            Name the data and the row in error messages.

        Returns
        -------
        Scores

        Raises
        ------
        ValueError
            Lists all problems.

        Examples
        --------
        >>> columns = {"item_id": ["a", "a"], "response": [0, 1], "label": [True, False], "reward": [2, 0.5]}
        >>> scores = Scores.from_columns(columns)
        >>> scores.reward.tolist(), scores.is_correct.tolist()
        ([2.0, 0.5], [True, False])
        """
        given = dict(columns)
        n = len(given["item_id"]) if "item_id" in given else 0
        correct = given.pop("is_correct", None)
        given.setdefault("label", np.full(n, np.nan) if correct is None else correct)
        given.setdefault("category", np.full(n, "all"))
        given.setdefault("n_tokens", np.full(n, _schema.UNKNOWN_LENGTH))
        given.setdefault("truncated", np.zeros(n, dtype=bool))
        if "votes" in given:
            given.setdefault("ties", np.zeros(n, dtype=np.int64))
        about = dict(manifest or {})
        if "beats" in given and "reward" not in given:
            given["reward"] = [_mean_win(row) for row in given["beats"]]
        if "beats" in given and "score_kind" not in about:
            about |= {"score_kind": "pairs", "scale": asdict(Scale("pairs", "probabilities of pairs"))}
        checked = _schema.checked(given, source=source, place=place)
        if "votes" in checked:
            starts = _schema.starts_of(checked["item_id"])
            checked["label"] = _schema.voted_labels(checked["label"], checked["votes"], starts)
        return cls(**_fields(checked), manifest=about)._with_labels(labels)

    def _with_labels(self, named: Labels | None) -> Scores:
        """Return the scores with what their labels mean in the manifest, unless it is there already."""
        if isinstance(self.manifest.get("labels"), dict):
            return self
        starts = self.offsets[:-1]
        if self.votes is not None and self.n_votes.any():
            kind: Labels | None = "votes"
            reason = "people voted"
        else:
            entry = entry_of(self.manifest)
            if named is None and entry is not None:
                named = _BY_BENCHMARK.get(entry.labels)
            untied = ~np.isin(self.category[starts], sorted(tied_categories(self)))
            kind, reason = meaning_of_labels(self.label, starts, named, untied=untied)
        about = {} if kind is None else {"labels": {"kind": kind, "from": reason}}
        return replace(self, manifest={**self.manifest, **about})

    def to_pandas(self) -> pd.DataFrame:
        """Return the scores as a table, one row per response.

        >>> Scores.from_arrays([[1.0, 0.0]]).to_pandas()["reward"].tolist()
        [1.0, 0.0]
        """
        import pandas as pd

        return pd.DataFrame(
            {k: v.astype(object) if v.dtype.kind == "U" else v for k, v in self.columns().items()}
        )

    def content_hash(self) -> str:
        """Return a SHA-256 of the columns, without the manifest.

        >>> one, other = (Scores.from_arrays([[1.0, 0.0]], manifest={"model": name}) for name in "ab")
        >>> one.content_hash() == other.content_hash()
        True
        """
        digest = hashlib.sha256()
        for name, values in sorted(self.columns().items()):
            texts, numbers = [], values
            if values.dtype.kind == "U":  # equal neighbours count once
                numbers = _schema.starts_of(values)
                texts = values[numbers].tolist()
            elif values.dtype.kind == "O":
                texts, numbers = values.tolist(), values[:0].astype(np.float64)
            digest.update(json.dumps([name, len(values), texts]).encode())
            digest.update(numbers.tobytes())
        return digest.hexdigest()

    @classmethod
    def from_parquet(cls, path: str | Path) -> Scores:
        """Read a Parquet file with our columns, and its manifest if it has one."""
        columns, manifest = _files.read_parquet(path)
        return cls.from_columns(columns, manifest, source=str(path))

    def to_parquet(self, path: str | Path) -> dict[str, Any]:
        """Write a Parquet file with the manifest; return the manifest with a digest of the content."""
        return _files.write_parquet(path, self.columns(), self.manifest)


def _fields(columns: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Turn columns into fields of `Scores`: all further columns are one field."""
    of_schema = {name: array for name, array in columns.items() if name in _schema.SCHEMA}
    others = {
        name: array for name, array in columns.items() if name not in of_schema and name != "is_correct"
    }
    return {**of_schema, "extra": others}


def _shaped(values: Any, name: str, *shape: int) -> npt.NDArray[np.object_]:
    """Return one value for all, or an array of this shape, as such an array."""
    # As objects, so that the schema can refuse values that are not texts, and name their row.
    array = np.asarray(values if isinstance(values, str | np.ndarray | int) else list(values), dtype=object)
    if array.shape not in ((), shape):
        raise ValueError(f"{name}: expected shape {shape}, like the rewards, got {array.shape}")
    return np.broadcast_to(array, shape)


def _labels(correct: ArrayLike | None, shape: tuple[int, int]) -> FloatArray:
    """Return the labels of responses: (n, m)."""
    n, m = shape
    array = np.asarray(0 if correct is None else correct)
    if array.shape == shape and array.dtype.kind in "biuf":
        return array.astype(np.float64)
    if array.ndim == 0:
        array = np.full(n, array)
    if array.shape != (n,) or array.dtype == bool:
        raise ValueError(
            f"correct: expected an index, one index for each of the {n} prompts, or truth values or labels "
            f"of shape {shape}; got {array.dtype} of shape {array.shape}"
        )
    index = arrays.as_integers(array, "correct", ndim=1)
    bad = np.flatnonzero((index < 0) | (index >= m))
    if len(bad):
        raise ValueError(f"correct: row {bad[0]} is {index[bad[0]]}, but responses are numbered 0 to {m - 1}")
    return np.asarray(np.arange(m) == index[:, None], dtype=np.float64)


def _mean_win(beats: Any) -> float:
    """Return the mean known probability of beating another response; 1/2 if none is known."""
    stated = [p for p in beats if isinstance(p, (int, float)) and p == p] if np.iterable(beats) else []
    return sum(stated) / len(stated) if stated else 0.5


def _softened(beats: npt.NDArray[np.object_], temperature: float) -> npt.NDArray[np.object_]:
    """Divide the log-odds of all pairs by a temperature."""
    from scipy.special import expit, logit

    return _schema.as_lists(
        [[None if p is None else float(expit(logit(p) / temperature)) for p in row] for row in beats]
    )
