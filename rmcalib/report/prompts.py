"""The prompts of an evaluation for the page's script: rewards of all of them, and as many texts as fit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.terminal import REPLACEMENT, clean_line
from rmcalib.benchmarks import Item
from rmcalib.metrics.rewardbench import tied_categories

if TYPE_CHECKING:
    from rmcalib.report.evaluation import Evaluation

__all__ = ["prompt_data"]

MOST_PROMPTS = 20_000
"""With more prompts than this, the page lists the wrong or surprising ones and a sample of the others."""
TEXT_BYTES = 2_200_000
"""How many bytes of texts a page holds."""
_CUTS = (4000, 2000, 1000, 700, 500, 350, 250)
_UNSHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def prompt_data(evaluation: Evaluation) -> dict[str, Any]:
    """Return what the script shows: one entry per prompt, the least expected outcome first.

    Each entry is [id, category, rewards, labels, one, texts or nothing]: labels are 1, 0 or -1 (unknown), and
    ``one`` is 1 if the prompt has a single right answer, which says, right and gap are about. Texts are cut so
    that they fit; if they do not, the prompts with the least expected outcomes keep theirs.
    """
    scores = evaluation.scores
    starts, n = scores.offsets[:-1], scores.n_items
    log_p = np.log(np.maximum(scores.probabilities, 1e-300))
    label = scores.label
    best = np.maximum.reduceat(np.where(label == 1, log_p, -np.inf), starts)  # of the correct response
    first = np.maximum.reduceat(log_p, starts)
    surprise = np.where(np.isfinite(best), -best, -1.0)
    wrong = np.isfinite(best) & (best < first)
    rest = np.random.default_rng(evaluation.settings.seed).permutation(n)
    order = [*np.flatnonzero(wrong)[np.argsort(-surprise[wrong], kind="stable")], *rest[~wrong[rest]]]
    kept, n_wrong = np.array(order[:MOST_PROMPTS], dtype=np.int64), int(wrong.sum())
    single = (np.add.reduceat(label == 1, starts) == 1) & ~np.isnan(np.add.reduceat(label, starts))
    single &= ~np.isin(scores.category[starts], sorted(tied_categories(scores)))
    texts, cut = _texts(evaluation, kept, n_wrong)
    categories = list(dict.fromkeys(scores.category[starts].tolist()))
    place = {name: i for i, name in enumerate(categories)}
    entries = []
    for rank, i in enumerate(kept.tolist()):
        rows = slice(int(scores.offsets[i]), int(scores.offsets[i + 1]))
        labels = np.nan_to_num(label[rows], nan=-1.0).astype(int).tolist()
        entry: list[Any] = [clean_line(scores.item_id[rows.start]), place[scores.category[rows.start]]]
        entry += [[float(f"{reward:.6g}") for reward in scores.reward[rows].tolist()], labels, int(single[i])]
        entries.append([*entry, texts[rank]] if rank in texts else entry)
    best_t = next((row["value"] for row in evaluation.rows if row["metric"] == "temperature"), None)
    return {
        "categories": [clean_line(name) for name in categories],
        "prompts": entries,
        "total": n,
        "wrong": n_wrong,
        # Each of the others stands for so many that the page leaves out; 0 if there is none.
        "weight": (n - n_wrong) / (len(kept) - n_wrong)
        if len(kept) > n_wrong
        else 0.0
        if n > len(kept)
        else 1.0,
        "texts": len(texts),
        "cut": cut,
        "temperature": best_t,
        "calibrated": evaluation.facts["no_calibration"] is None and evaluation.facts["view"] == "top_1",
    }


def _texts(evaluation: Evaluation, kept: Any, n_wrong: int) -> tuple[dict[int, list[str]], int]:
    """Return the texts of prompts by their place, and the length at which the longest of them are cut."""
    if evaluation.texts is None:
        return {}, 0
    items = {item.id: item for item in evaluation.texts.items}
    scores = evaluation.scores
    sizes, ids = np.diff(scores.offsets), scores.item_id[scores.offsets[:-1]]
    own = {
        rank: item
        for rank, i in enumerate(kept.tolist())
        if (item := items.get(str(ids[i]))) is not None and len(item.responses) == sizes[i]
    }
    made: dict[int, list[str]] = {}
    for longest in _CUTS:
        # Wrong choices are what people read, so their texts are cut last.
        made, left = {}, TEXT_BYTES
        for rank, item in own.items():
            texts = _cut(item, longest if rank < n_wrong else longest // 2)
            left -= sum(len(text.encode("utf-8", "replace")) + 4 + text.count("\n") for text in texts)
            if left < 0:
                break
            made[rank] = texts
        if len(made) == len(own):
            return made, longest
    return made, _CUTS[-1]


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
