"""Notes on the scores of an evaluation: scale, truncation, ties, lengths and the dtype."""

from __future__ import annotations

import numpy as np

from rmcalib._util.terminal import clean_line, count
from rmcalib.benchmarks import Benchmark
from rmcalib.judges import Recipe, scale_note, why_no_calibration
from rmcalib.metrics import disagreements
from rmcalib.scores import Scores

__all__ = ["score_notes", "undecided_notes"]


def undecided_notes(n: int, *, voted: bool) -> list[str]:
    """Return a note on ``n`` prompts whose votes are tied, so that they have no correct response.

    >>> undecided_notes(1, voted=False)
    ['1 prompt is left out: as many people preferred one response as another.']
    """
    left_out = "1 prompt is" if n == 1 else f"{n:,} prompts are"
    where = " where a correct response is needed" if voted else ""
    return [f"{left_out} left out{where}: as many people preferred one response as another."] if n else []


def score_notes(
    scores: Scores, benchmark: Benchmark | None, recipe: Recipe, *, in_characters: bool
) -> list[str]:
    """Return notes on scale, cut and empty responses, equal rewards, lengths and the dtype.

    Parameters
    ----------
    scores : Scores
        The scores of one model.
    benchmark : Benchmark, optional
        Where the texts come from; None if they are not available.
    recipe : Recipe
        How the model was trained.
    in_characters : bool
        Whether lengths are characters; else tokens.
    """
    notes = []
    reason = why_no_calibration(recipe)
    if reason:
        only_pairs = recipe.scale == "pairs"
        start = "Top-1 calibration" if only_pairs else "Calibration"
        notes.append(f"{start} is not measured: {reason}. Accuracy does not need it.")
    elif scale_note(recipe):
        mark = scale_note(recipe)
        notes.append(f"{mark[0].upper()}{mark[1:]}.")
    notes += [clean_line(str(note)) for note in scores.manifest.get("notes") or ()]
    cut = int(scores.truncated.sum())
    if cut:
        limit = scores.manifest.get("max_length")
        at = f" at {limit} tokens" if limit else ""
        notes.append(
            f"{cut} of {len(scores)} responses ({cut / len(scores):.1%}) were cut{at} and scored without "
            "their end."
        )
    empty = benchmark.n_empty if benchmark is not None else scores.manifest.get("counts", {}).get("empty", 0)
    if empty:
        were = "is empty; it was" if empty == 1 else "are empty; they were"
        notes.append(f"{count(empty, 'response')} {were} scored like the others.")
    if recipe.scale != "pairs":  # verdicts on pairs are often equal
        notes += _shared_rewards(scores)
    if benchmark is not None:
        notes += disagreements(scores, benchmark)
    if in_characters:
        notes.append("Lengths are in characters of the response.")
    elif (scores.n_tokens >= 0).all():
        notes.append("Lengths are in tokens of prompt and response.")
    if "dtype" in scores.manifest:
        notes.append(
            f"Scored in {scores.manifest['dtype']}. Other dtypes can change probabilities by a few "
            "hundredths."
        )
    return notes


def _shared_rewards(scores: Scores) -> list[str]:
    prompt = np.repeat(np.arange(scores.n_items), np.diff(scores.offsets))
    _, sharing = np.unique(np.column_stack([prompt, scores.reward]), axis=0, return_counts=True)
    if not (sharing > 1).any():
        return []
    return [
        f"{int(sharing[sharing > 1].sum())} responses share their reward with another response to the "
        "same prompt (common with 16-bit dtypes). A tie of t responses counts as 1/t right."
    ]
