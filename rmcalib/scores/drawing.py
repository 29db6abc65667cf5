"""`label`: draw prompts for people to label, each with a known probability, as a page and as a sheet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, check_choice, check_integer
from rmcalib._util.files import write_csv, write_text
from rmcalib.benchmarks import Benchmark, load_benchmark
from rmcalib.benchmarks._official import has_largest_reward
from rmcalib.scores._joining import (
    BEST_OF,
    CHOSEN,
    FROM_STEP,
    ID,
    INCLUSION,
    TEXT,
    Ask,
    are_labelled,
    are_numbered,
    chosen_of,
    groups_of,
    id_columns,
    plain_text,
    second_opinion,
)
from rmcalib.scores._label_page import label_page
from rmcalib.scores._label_texts import Texts, texts_of
from rmcalib.scores._load import Loaded, load_scores, load_with_rows
from rmcalib.scores._scores import Scores

if TYPE_CHECKING:
    import pandas as pd

_STRATA = 5  # of confidence, for a second draw
_WORST_SPREAD = 0.5  # standard deviation of right or wrong at an accuracy of 1/2
_NORMAL_95 = 1.96


@dataclass(frozen=True, repr=False)
class LabelSheet:
    """Prompts that were drawn to be labelled.

    Attributes
    ----------
    rows : list of dict
        One row per response, prompts in random order: prompt, response, inclusion (the probability that the
        prompt was drawn), label (None: to be filled), ask, category, response_id (if the source has
        one), prompt_text, response_text; from_step if only the last steps were drawn from.
    ask : {"best", "correct", "chosen"}
        Which response is the best, whether each response is correct, or whether the one with the largest reward is.
    n, of : int
        Numbers of drawn prompts, and of all prompts.
    how : str
        How they were drawn.
    seed : int
        Seed of the draw.

    Examples
    --------
    >>> sheet = label(Scores.from_arrays([[1.0, 0.0]] * 50), n=10)
    >>> sheet.n, float(sheet.table["inclusion"][0])
    (10, 0.2)
    """

    rows: list[dict[str, Any]]
    ask: Ask
    n: int
    of: int
    how: str
    seed: int
    has_texts: bool = field(default=False)
    of_rollouts: bool = field(default=False)

    @property
    def table(self) -> pd.DataFrame:
        """The rows as a table; fill the column ``label`` and give it to ``load_scores(..., labels=table)``."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    @property
    def plan(self) -> str:
        """What the labels will show."""
        sizes = dict.fromkeys(n for n in (self.n, 4 * self.n) if n <= self.of)
        shown = "; ".join(
            f"{size:,} labels: the gap to about ±{100 * expected_margin(size):.0f} points" for size in sizes
        )
        return shown or f"{self.n} labels"

    def to_csv(self, path: str | Path) -> Path:
        """Write the rows as a sheet, whose column ``label`` is empty."""
        return write_csv(path, self.rows)

    def to_html(self, path: str | Path) -> Path:
        """Write a page to label with; it needs no network, and saves ``labels.jsonl``."""
        return write_text(path, label_page(self.rows, ask=self.ask, seed=self.seed))

    def __repr__(self) -> str:
        """Return how many prompts were drawn, and how."""
        return f"LabelSheet({self.n:,} of {self.of:,} prompts, {self.how}; {self.plan})"


def label(
    scores: Any,
    n: int = 100,
    seed: int = 0,
    by: str | None = None,
    *,
    ask: Ask | None = None,
    more: bool = False,
    second: Any = None,
    last: int | None = None,
    benchmark: str | Benchmark | None = None,
    columns: str | Mapping[str, Any] | None = None,
    labels: Any = None,
) -> LabelSheet:
    """Draw prompts for people to label, each with a known probability.

    Every prompt has the same probability by default, so that labelled prompts are like all others. With ``by``,
    each category is drawn in proportion. Never label only the prompts that a judge is least sure of and average the
    result: this was wrong by 26 to 34 points of accuracy.

    Parameters
    ----------
    scores : Scores, DataFrame or path
        The rewards, with or without labels; see `load_scores`. Texts are taken from its columns.
    n : int
        How many prompts to draw; all of them if there are fewer.
    seed : int
        The same seed draws the same prompts.
    by : str, optional
        Draw in proportion to the groups of this column: "category", or a further column, such as "step".
    ask : {"best", "correct", "chosen"}, optional
        Which response is the best, or whether each one is correct. Default: what labels of the scores mean;
        "correct" if prompts have a single response. "chosen": whether the response with the largest reward is
        correct; the others are not shown. This is the cheapest label for the best of n.
    more : bool
        Draw n further prompts where labels so far show the most errors; needs ``labels`` that were drawn at random.
    second : Scores, DataFrame or path, optional
        A second judge's scores of the same prompts. Prompts where it is unsure are drawn more often: half
        of the probability is equal, half is proportional to √(p(1 − p)), where p is its probability of the
        first choice, or that a response is correct. It helps the gap; the model's own confidence does not.
    last : int, optional
        Draw from the last steps of a training run only, this many; results are then about these steps.
    benchmark : str or Benchmark, optional
        Where the texts are, if not in the scores.
    columns, labels
        As for `load_scores`.

    Returns
    -------
    LabelSheet
        ``table``, ``to_html(path)``, ``to_csv(path)``.

    References
    ----------
    Neyman, J. (1934). On the two different aspects of the representative method. Journal of the Royal
    Statistical Society 97.

    Examples
    --------
    >>> sheet = label(Scores.from_arrays([[1.0, 0.0]] * 400), n=100)
    >>> sheet.plan
    '100 labels: the gap to about ±10 points; 400 labels: the gap to about ±5 points'
    >>> list(sheet.table.columns[:4]), len(sheet.table)
    (['prompt', 'response', 'inclusion', 'label'], 200)
    """
    check_integer(n, "n", 1)
    loaded, from_step = _last_steps(load_with_rows(scores, columns, labels=labels), last)
    labelled = loaded.scores
    if more and from_step is None and "step" in labelled.extra:
        # Labels of the last steps leave out the others.
        from_step = float(np.min(labelled.extra["step"]))
    bench = load_benchmark(benchmark) if isinstance(benchmark, str) else benchmark
    texts = texts_of(*loaded, bench)
    of_rollouts = loaded.table.manifest is None and Path(loaded.table.source).is_dir()
    response = labelled.response
    if labels is not None and BEST_OF in labelled.extra:
        # Labels of chosen responses leave out the others, which count in the source.
        response = labelled.extra[CHOSEN]
    numbered = are_numbered(labelled, loaded.table)
    ids = None if numbered else next(iter(id_columns(labelled).values()), None)
    asked = _asked(labelled) if ask is None else ask
    check_choice(asked, "ask", get_args(Ask))
    rng = np.random.default_rng(seed)
    if more:
        inclusion, drawn, how = _second_phase(labelled, n, rng)
    elif second is not None:
        inclusion = unequal_inclusion(_unsure(labelled, load_scores(second), asked), n)
        how = "more where a second judge is less confident"
        drawn = systematic(inclusion, rng.permutation(labelled.n_items), rng)
    else:
        inclusion = np.full(labelled.n_items, min(n / labelled.n_items, 1.0))
        drawn, how = _equal(labelled, min(n, labelled.n_items), by, rng)
    rows = _rows(labelled, response, rng.permutation(drawn), inclusion, asked, texts, ids, keep=more)
    if from_step is not None:
        rows = [row | {FROM_STEP: from_step} for row in rows]
    return LabelSheet(rows, asked, len(drawn), labelled.n_items, how, seed, texts is not None, of_rollouts)


def expected_margin(n: int) -> float:
    """Return the half-width of the gap's 95% interval with n labels, at most: 1.96 · 0.5/√n."""
    return _NORMAL_95 * _WORST_SPREAD / float(np.sqrt(n))


def unequal_inclusion(size: FloatArray, n: int) -> FloatArray:
    """Return probabilities (N,) that sum to n: half equal, half proportional to ``size`` (N,), at most 1.

    >>> unequal_inclusion(np.array([0.0, 0.0, 1.0, 1.0]), 2)
    array([0.25, 0.25, 0.75, 0.75])
    """
    total = len(size)
    if n >= total:
        return np.ones(total)
    wanted = np.full(total, 0.5 / total) + 0.5 * (size / size.sum() if size.sum() > 0 else 1 / total)
    certain = np.zeros(total, dtype=bool)
    while True:
        inclusion = np.where(certain, 1.0, (n - certain.sum()) * wanted / wanted[~certain].sum())
        above = (inclusion > 1) & ~certain
        if not above.any():
            return inclusion
        certain |= above


def systematic(inclusion: FloatArray, order: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw prompts with these probabilities (N,): every whole step of their running sum in this order.

    The number drawn is the sum of the probabilities, rounded up or down.
    """
    reached = np.cumsum(inclusion[order])
    reached[-1] = round(reached[-1], 9)
    steps = np.floor(reached + rng.random() + 1e-12)
    return order[np.diff(steps, prepend=0.0) > 0]


def _unsure(scores: Scores, second: Scores, ask: Ask) -> FloatArray:
    """Return the standard deviation of a prompt's labels (n,) if a second judge's probabilities are right."""
    p = np.clip(second_opinion(scores, second, singly=ask != "best"), 0.0, 1.0)
    variance = p * (1 - p)
    if ask == "chosen":
        return np.sqrt(variance[chosen_of(scores)])
    return np.sqrt(np.add.reduceat(variance, scores.offsets[:-1]) / np.diff(scores.offsets))


def _last_steps(loaded: Loaded, last: int | None) -> tuple[Loaded, float | None]:
    """Return the scores of the last steps, and the first of these steps; everything if ``last`` is None."""
    if last is None:
        return loaded, None
    scores, table, row = loaded
    steps = scores.extra.get("step")
    if steps is None:
        raise ValueError("last: the scores have no steps")
    first = float(np.unique(steps)[-min(check_integer(last, "last", 1), len(np.unique(steps)))])
    kept = steps >= first
    return Loaded(scores.take(kept[scores.offsets[:-1]]), table, row[kept]), first


def _asked(scores: Scores) -> Ask:
    if BEST_OF in scores.extra:
        return "chosen"
    if scores.labels == "correct" or scores.scale.states_correct or (np.diff(scores.offsets) == 1).any():
        return "correct"
    return "best"


def _equal(scores: Scores, n: int, by: str | None, rng: np.random.Generator) -> tuple[IntArray, str]:
    """Draw n prompts with equal probabilities; with ``by``, every group has its share, rounded up or down."""
    total = scores.n_items
    if by is None:
        return rng.choice(total, n, replace=False), "at random"
    names, group = groups_of(scores, by, "by")
    order = np.lexsort((rng.random(total), rng.permutation(len(names))[group]))
    return systematic(np.full(total, n / total), order, rng), f"at random, in proportion to {by}"


def _second_phase(scores: Scores, n: int, rng: np.random.Generator) -> tuple[FloatArray, IntArray, str]:
    """Draw n further prompts, most where first choices were wrong most often: by fifths of the confidence.

    A prompt of fifth h then had the probability n_h/N_h to be labelled (Neyman's allocation).
    """
    starts, labelled = scores.offsets[:-1], are_labelled(scores)
    inclusion = scores.extra.get(INCLUSION)
    if inclusion is None or not labelled.any() or np.ptp(inclusion[starts][labelled]) > 1e-9:
        raise ValueError(
            'more: needs labels of an earlier draw that was at random (its filled sheet: labels="FILE")'
        )
    confidence, total = np.maximum.reduceat(scores.probabilities, starts), scores.n_items
    first_label = np.where(has_largest_reward(scores), np.nan_to_num(scores.label), 0.0)
    right = np.maximum.reduceat(first_label, starts)
    stratum = np.minimum(np.argsort(np.argsort(confidence, kind="stable")) * _STRATA // total, _STRATA - 1)
    size, have = np.bincount(stratum, minlength=_STRATA), np.bincount(stratum[labelled], minlength=_STRATA)
    wrong = (np.bincount(stratum[labelled], 1 - right[labelled], minlength=_STRATA) + 1) / (have + 2)
    wanted = size * np.sqrt(wrong * (1 - wrong))
    wanted = wanted / wanted.sum() * (labelled.sum() + n)
    missing = np.clip(wanted - have, 0.0, size - have)
    extra = _whole_numbers(missing, min(n, total - int(labelled.sum())))
    extra = np.minimum(np.maximum(extra, 2 - np.minimum(have, 2)), size - have)
    new = [
        rng.choice(np.flatnonzero((stratum == h) & ~labelled), extra[h], replace=False)
        for h in range(_STRATA)
    ]
    share = (have + extra) / np.maximum(size, 1)
    return (
        share[stratum],
        np.concatenate([np.flatnonzero(labelled), *new]),
        "more where first choices were wrong",
    )


def _whole_numbers(wanted: FloatArray, total: int) -> IntArray:
    """Return whole numbers in proportion to ``wanted`` that sum to ``total``: the largest remainders are rounded up."""
    exact = wanted / max(float(wanted.sum()), 1e-12) * total
    numbers = np.floor(exact).astype(np.int64)
    left = np.argsort(numbers - exact, kind="stable")[: total - int(numbers.sum())]
    numbers[left] += 1
    return numbers


def _rows(
    scores: Scores,
    response: IntArray,
    drawn: IntArray,
    inclusion: FloatArray,
    ask: Ask,
    texts: Texts | None,
    ids: list[str] | None,
    *,
    keep: bool,
) -> list[dict[str, Any]]:
    """Return one row per response of the drawn prompts; labels that there are already stay only if ``keep``."""
    rows, chosen = [], chosen_of(scores) if ask == "chosen" else None
    for prompt in drawn.tolist():
        first, last = int(scores.offsets[prompt]), int(scores.offsets[prompt + 1])
        for row in range(first, last) if chosen is None else [int(chosen[prompt])]:
            value = scores.label[row]
            about: dict[str, Any] = {
                "prompt": str(scores.item_id[row]),
                "response": int(response[row]),
                INCLUSION: float(inclusion[prompt]),
                "label": float(value) if keep and value == value else None,
                "ask": ask,
                "category": str(scores.category[row]),
            }
            if ids is not None and (texts is None or ids[row] != plain_text(texts.response[row])):
                about[ID] = ids[row]
            if texts is not None:
                about |= {"prompt_text": texts.prompt[row], TEXT: texts.response[row]}
            rows.append(about)
    return rows
