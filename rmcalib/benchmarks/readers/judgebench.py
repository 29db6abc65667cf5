"""JudgeBench: pairs of responses to hard questions, one of them objectively correct."""

from __future__ import annotations

from rmcalib.benchmarks._entry import BenchmarkEntry, HubSource
from rmcalib.benchmarks._items import Item
from rmcalib.benchmarks._rows import Row, each
from rmcalib.benchmarks._winning import accuracy

__all__ = ["ENTRIES"]

_FAMILIES = ("mmlu-pro", "livebench-reasoning", "livebench-math", "livecodebench")


def read(row: Row) -> Item:
    """Read a pair; the correct response comes first."""
    a_is_better = row.choice("label", {"A>B": True, "B>A": False})
    names = ("response_A", "response_B") if a_is_better else ("response_B", "response_A")
    source = row.name("source")
    family = next((name for name in _FAMILIES if source.startswith(name)), source)
    responses = tuple(row.text(name) for name in names)
    more = row.columns("source", "original_id", "response_model")
    return Item(row.name("pair_id"), family, row.text("question"), responses, 1, columns=more)


ENTRIES = (
    BenchmarkEntry(
        name="judgebench",
        title="JudgeBench",
        labels="pairs",
        columns=("pair_id", "source", "question", "response_A", "response_B", "label"),
        read=each(read),
        homepage="https://huggingface.co/datasets/ScalerLab/JudgeBench",
        prompts=620,
        responses="2",
        hub=(HubSource("ScalerLab/JudgeBench", "gpt"), HubSource("ScalerLab/JudgeBench", "claude")),
        categories=_FAMILIES,
        official=accuracy,
        official_about="fraction of pairs where the correct response has the larger reward",
    ),
)
