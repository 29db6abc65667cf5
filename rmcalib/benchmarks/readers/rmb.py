"""RMB: best-of-n sets and pairs, in many JSON files."""

from __future__ import annotations

from rmcalib.benchmarks._entry import BenchmarkEntry
from rmcalib.benchmarks._items import Item
from rmcalib.benchmarks._rows import Row, chat_prompt, each
from rmcalib.benchmarks._winning import accuracy

__all__ = ["ENTRIES"]

_SETS = ("BoN_set", "Pairwise_set")
_HOMEPAGE = "https://github.com/Zhou-Zoey/RMB-Reward-Model-Benchmark"


def read_best_of_n(row: Row) -> Item:
    """Read a prompt with its best response and the others."""
    best, losers = row.row("bon_best"), row.rows("loser_list")
    if not losers:
        raise row.error("'loser_list' is empty; a prompt needs at least one other response")
    responses = (best.text("answer"), *(loser.text("answer") for loser in losers))
    return _item(row, "bon_uid", responses)


def read_pair(row: Row) -> Item:
    """Read a prompt with a better and a worse response."""
    return _item(row, "pair_uid", (row.row("chosen").text("answer"), row.row("reject").text("answer")))


def _item(row: Row, identifier: str, responses: tuple[str, ...]) -> Item:
    parts = [part for part in row.name("category_path").removesuffix(".json").split("/") if part not in _SETS]
    prompt = chat_prompt(row.messages("conversation_input"), row)
    languages = [part.values.get("language") for part in row.rows("conversation_input")]
    more = {"category_path": row.name("category_path"), "task": "/".join(parts[1:])}
    if isinstance(languages[-1], str):
        more["language"] = languages[-1]
    category = parts[0] if parts else "all"
    return Item(row.name(identifier), category, prompt, responses, 1, columns=more)


ENTRIES = (
    BenchmarkEntry(
        name="rmb",
        title="RMB, best of n",
        labels="one",
        columns=("bon_uid", "conversation_input", "bon_best", "loser_list", "category_path"),
        read=each(read_best_of_n),
        homepage=_HOMEPAGE,
        prompts=3786,
        responses="3 to 7",
        categories=("Helpfulness", "Harmlessness"),
        official=accuracy,
        official_about="fraction of prompts where the best response beats all others",
        folder="BoN_set",
    ),
    BenchmarkEntry(
        name="rmb-pairwise",
        title="RMB, pairs",
        labels="pairs",
        columns=("pair_uid", "conversation_input", "chosen", "reject", "category_path"),
        read=each(read_pair),
        homepage=_HOMEPAGE,
        prompts=18000,
        responses="2",
        categories=("Helpfulness", "Harmlessness"),
        official=accuracy,
        official_about="fraction of pairs where the better response has the larger reward",
        folder="Pairwise_set",
    ),
)
