"""The prompts of an evaluation for the page's script: their rewards, and as many texts as fit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.display import REPLACEMENT, clean_line
from rmcalib._util.texts import script_json
from rmcalib.benchmarks import Item
from rmcalib.benchmarks._official import tied_categories
from rmcalib.report.figures import FIRST_CHOICE
from rmcalib.report.sentences import offers_temperature

if TYPE_CHECKING:
    from rmcalib.report.evaluation import Evaluation
    from rmcalib.scores import Scores

ENTRY_BYTES = 1_500_000
"""How many bytes of prompts a page holds without their texts. If there are more, the page has a sample of them."""
PAGE_BYTES = 2_500_000
"""How many bytes of prompts and texts a page holds."""
_CUTS = (4000, 2000, 1000, 700, 500, 350, 250)
_UNSHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_Places = npt.NDArray[np.int64]


def prompt_data(evaluation: Evaluation) -> dict[str, Any]:
    """Return what the script shows: one entry per prompt, wrong ones first.

    Each entry is [id, category, rewards, labels, one, texts or nothing]. ``labels`` has one sign per response: 1,
    0, or - if it is unknown. ``one`` is 1 if the prompt has a single right answer: says, right and gap are about
    these. ``strata`` says how many prompts of the data each entry stands for: [[entries, weight], ...]. Texts are
    cut until they fit; if they do not, the first entries keep theirs.
    """
    scores = evaluation.scores
    starts, label = scores.offsets[:-1], scores.label
    strata = _strata(scores, evaluation.settings.seed)
    kept = np.concatenate([places for places, _ in strata])
    single = (np.add.reduceat(label == 1, starts) == 1) & ~np.isnan(np.add.reduceat(label, starts))
    single &= ~np.isin(scores.category[starts], sorted(tied_categories(scores)))
    categories = list(dict.fromkeys(scores.category[starts].tolist()))
    place = {name: i for i, name in enumerate(categories)}
    entries: list[list[Any]] = []
    for i in kept.tolist():
        rows = slice(int(scores.offsets[i]), int(scores.offsets[i + 1]))
        labels = "".join("-" if value != value else str(int(value)) for value in label[rows].tolist())
        rewards = [float(f"{reward:.6g}") for reward in scores.reward[rows].tolist()]
        name, category = clean_line(scores.item_id[rows.start]), place[scores.category[rows.start]]
        entries.append([name, category, rewards, labels, int(single[i])])
    texts = _texts(
        evaluation, kept, sum(len(places) for places, _ in strata[:-1]), PAGE_BYTES - _bytes(entries)
    )
    for rank, of_prompt in texts.items():
        entries[rank].append(of_prompt)
    best = next((row["value"] for row in evaluation.rows if row["metric"] == "temperature"), None)
    return {
        "categories": [clean_line(name) for name in categories],
        "prompts": entries,
        "total": scores.n_items,
        "strata": [[len(places), weight] for places, weight in strata],
        "texts": len(texts),
        "temperature": best,
        "repairs": offers_temperature(evaluation),
        "diagram": FIRST_CHOICE,
        "calibrated": evaluation.facts["no_calibration"] is None and evaluation.facts["view"] == "top_1",
    }


def _strata(scores: Scores, seed: int) -> list[tuple[_Places, float]]:
    """Return the prompts of the page in two parts, and how many prompts each entry stands for.

    The parts are wrong choices, the least expected first, as many as fit on half of the page; and the others, or
    a sample of them.
    """
    starts, n = scores.offsets[:-1], scores.n_items
    log_p = np.log(np.maximum(scores.probabilities, 1e-300))
    best = np.maximum.reduceat(np.where(scores.label == 1, log_p, -np.inf), starts)  # of the correct response
    wrong = np.flatnonzero(np.isfinite(best) & (best < np.maximum.reduceat(log_p, starts)))
    wrong = wrong[np.argsort(best[wrong], kind="stable")]
    size = np.char.str_len(scores.item_id[starts]) + 10 * np.diff(scores.offsets) + 20
    if size.sum() > ENTRY_BYTES:
        wrong = wrong[: _fitting(size[wrong], ENTRY_BYTES / 2)]
    others = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(n), wrong))
    kept = others[: max(1, _fitting(size[others], ENTRY_BYTES - size[wrong].sum()))]
    return [(wrong, 1.0), (kept, len(others) / max(len(kept), 1))]


def _fitting(sizes: npt.NDArray[Any], most: float) -> int:
    return int(np.searchsorted(np.cumsum(sizes), most, side="right"))


def _texts(evaluation: Evaluation, kept: _Places, n_wrong: int, most: int) -> dict[int, list[str]]:
    """Return the texts of prompts by their place in the page, cut so that they fit if they can."""
    if evaluation.texts is None:
        return {}
    items = {item.id: item for item in evaluation.texts.items}
    scores = evaluation.scores
    sizes, ids = np.diff(scores.offsets), scores.item_id[scores.offsets[:-1]]
    matching = {
        rank: item
        for rank, i in enumerate(kept.tolist())
        if (item := items.get(str(ids[i]))) is not None and len(item.responses) == sizes[i]
    }
    made: dict[int, list[str]] = {}
    for longest in _CUTS:
        made, left = {}, most
        for rank, item in matching.items():
            texts = _cut(item, longest if rank < n_wrong else longest // 2)  # people read wrong choices first
            left -= _bytes(texts) + 1
            if left < 0:
                break
            made[rank] = texts
        if len(made) == len(matching):
            break
    return made


def _bytes(content: Any) -> int:
    """Return how many bytes something takes in the page."""
    return len(script_json(content).encode("utf-8", "replace"))


def _cut(item: Item, longest: int) -> list[str]:
    prompt = item.prompt
    if not isinstance(prompt, str):
        prompt = "\n\n".join(f"[{message['role']}] {message['content']}" for message in prompt)
    return [_short(text, longest) for text in (prompt, *item.responses)]


def _short(text: str, longest: int) -> str:
    text = _UNSHOWN.sub(REPLACEMENT, text.replace("\r\n", "\n").strip()) or "(empty)"
    return (
        text
        if len(text) <= longest
        else f"{text[:longest].rstrip()} … ({len(text) - longest:,} more characters)"
    )
