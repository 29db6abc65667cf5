"""rmcalib's own schema (that of RewardBench 2, or with people's votes), and the built-in demo."""

from __future__ import annotations

from rmcalib.benchmarks._entry import BenchmarkEntry
from rmcalib.benchmarks._items import Item, voted_item
from rmcalib.benchmarks._rows import Row, each
from rmcalib.benchmarks.readers.reward_bench import REWARD_BENCH_2, read_answers

__all__ = ["ENTRIES"]

COLUMNS = ("id", "prompt", "chosen", "rejected", "subset")
VOTED = ("id", "prompt", "responses", "votes", "subset")


def read(row: Row) -> Item:
    """Read a prompt with correct and wrong responses, or with responses and people's votes."""
    if not row.has("votes"):
        return read_answers(row, COLUMNS)
    row = Row(f"{row.where} (id {row.name('id')!r})", row.values)
    responses, votes = row.texts("responses"), row.value("votes")
    if not isinstance(votes, (list, tuple)) or not all(_is_count(count) for count in votes):
        raise row.error("'votes' must be a list of whole numbers, 0 or more")
    if len(responses) < 2 or len(votes) != len(responses):
        raise row.error(f"{len(responses)} responses and {len(votes)} votes; give one each, at least two")
    ties = row.values.get("ties") or 0
    if not _is_count(ties):
        raise row.error("'ties' must be a whole number, 0 or more")
    if not sum(votes) + ties:
        raise row.error("nobody voted")
    more = row.columns(*(name for name in row.values if name not in (*VOTED, "ties")))
    return voted_item(
        row.name("id"), row.name("subset"), row.prompt("prompt"), responses, votes, ties=ties, columns=more
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


ENTRIES = (
    BenchmarkEntry(
        name="rmcalib",
        title="rmcalib's own schema",
        labels="several",
        columns=COLUMNS,
        or_columns=VOTED,
        read=each(read),
        licence="yours",
    ),
    BenchmarkEntry(
        name="demo",
        title="the built-in demo",
        labels="several",
        columns=COLUMNS,
        read=each(read),
        licence="as rmcalib",
        prompts=312,
        responses="4 (more in Ties)",
        categories=REWARD_BENCH_2.categories,
        no_single_answer=REWARD_BENCH_2.no_single_answer,
        official=REWARD_BENCH_2.official,
        official_about=REWARD_BENCH_2.official_about,
    ),
)
