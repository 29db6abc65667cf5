"""MultiPref: two responses, compared by normal and expert annotators."""

from __future__ import annotations

from rmcalib.benchmarks._entry import BenchmarkEntry, HubSource
from rmcalib.benchmarks._items import Item, voted_item
from rmcalib.benchmarks._rows import Row, each

__all__ = ["ENTRIES"]

_PREFERENCES = {
    "A-is-clearly-better": "A",
    "A-is-slightly-better": "A",
    "Tie": "tie",
    "B-is-slightly-better": "B",
    "B-is-clearly-better": "B",
}
_ANNOTATORS = ("normal_worker_annotations", "expert_worker_annotations")


def read(row: Row) -> Item | str:
    """Read a comparison; every annotator has one vote. The column `overall_pref` keeps their answers."""
    annotations = [one for name in _ANNOTATORS if row.has(name) for one in row.rows(name)]
    if not annotations:
        return "nobody annotated the comparison"
    given = [one.choice("overall_pref", _PREFERENCES) for one in annotations]
    more = row.columns("prompt_id", "model_a", "model_b")
    more["overall_pref"] = " ".join(one.text("overall_pref") for one in annotations)
    return voted_item(
        row.name("comparison_id"),
        row.name("category", default="all"),
        row.prompt("text"),
        (row.text("completion_a"), row.text("completion_b")),
        (given.count("A"), given.count("B")),
        ties=given.count("tie"),
        columns=more,
    )


ENTRIES = (
    BenchmarkEntry(
        name="multipref",
        title="MultiPref",
        labels="votes",
        columns=("comparison_id", "text", "completion_a", "completion_b", *_ANNOTATORS),
        read=each(read),
        licence="ODC-By",
        homepage="https://huggingface.co/datasets/allenai/multipref",
        prompts=10461,
        responses="2",
        hub=(HubSource("allenai/multipref", "train", "default"),),
    ),
)
