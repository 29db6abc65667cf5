"""Publish an evaluation: the section of a model card, and results for the Hub."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rmcalib import __version__
from rmcalib._util.display import count, markdown_text
from rmcalib._util.files import write_bytes
from rmcalib._util.hub import check_repo_id, folder_name, translated
from rmcalib._util.storage import as_path
from rmcalib.report.document import to_markdown
from rmcalib.report.evaluation import Evaluation
from rmcalib.report.figures import figure_bytes
from rmcalib.report.pages import evaluation_document
from rmcalib.report.sentences import HEADLINE, UNNAMED, glossary, overall_values

MARK = "<!-- rmcalib -->"
"""The first line of every summary. A workflow can find its own comment by it."""
FIGURE = "calibration/reliability.png"
_HUB_ID, _COMMIT = re.compile(r"[\w.-]+/[\w.-]+"), re.compile(r"[0-9a-f]{40}")
_BEGIN, _END = "<!-- rmcalib:begin -->", "<!-- rmcalib:end -->"


@dataclass(frozen=True)
class Card:
    """Everything that is published about an evaluation.

    Attributes
    ----------
    model, benchmark : str
        Their names.
    section : str
        The section of the model card, in Markdown.
    files : dict of str to bytes
        Contents by path in a model repository: the figure, and `.eval_results/*.yaml` if the benchmark is a
        data set of the Hub.
    """

    model: str
    benchmark: str
    section: str
    files: dict[str, bytes]

    def write(self, folder: str | Path) -> list[Path]:
        """Write card.md and the other files to a folder or URL; return their paths."""
        out = as_path(folder)
        contents = {"card.md": _utf8(self.section), **self.files}
        return [write_bytes(out / name, content) for name, content in contents.items()]

    def push(self, repository: str) -> str:
        """Open a pull request on a model of the Hub that adds the card, and return its URL.

        The section is added to README.md, in place of an earlier one. Uses the login of `hf auth login` or
        HF_TOKEN. Nothing changes until somebody merges the pull request. A ValueError says why the Hub refuses.
        """
        from huggingface_hub import CommitOperationAdd, HfApi

        name = check_repo_id(repository)
        with translated(name):
            api = HfApi()
            api.model_info(
                name, timeout=10
            )  # fails at once if the Hub is down; a download would try for long
            contents = {"README.md": _utf8(insert_section(_readme(name), self.section)), **self.files}
            commit = api.create_commit(
                name,
                operations=[
                    CommitOperationAdd(path_in_repo=path, path_or_fileobj=content)
                    for path, content in contents.items()
                ],
                commit_message=f"Add calibration on {' '.join(self.benchmark.split())[:60]} (rmcalib)",
                commit_description="Model-card section, figure and results, written by `rmcalib card`.",
                create_pr=True,
            )
        return str(commit.pr_url)


def make_card(evaluation: Evaluation, *, source: str | None = None) -> Card:
    """Make everything that is published about an evaluation; nothing is written.

    Parameters
    ----------
    evaluation : Evaluation
        The result of `evaluate`.
    source : str, optional
        URL of a page with more about the evaluation, for `.eval_results`.

    Returns
    -------
    Card

    Examples
    --------
    >>> from rmcalib import Scores, evaluate
    >>> report = evaluate(Scores.from_arrays([[2.0, 0.0], [0.0, 2.0]]), model="org/rm", resamples=20)
    >>> sorted(make_card(report).files)
    ['calibration/reliability.png']
    """
    import yaml

    files: dict[str, bytes] = {}
    if evaluation.reliability_rows:
        files[FIGURE] = figure_bytes(evaluation.diagrams(), "png")
    entries = _eval_results(evaluation, source)
    if entries:
        text = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True)
        files[f".eval_results/rmcalib_{folder_name(evaluation.benchmark)}.yaml"] = _utf8(text)
    return Card(evaluation.model, evaluation.benchmark, _section(evaluation), files)


def markdown_summary(documents: Any, failed: Any = ()) -> str:
    """Return documents as Markdown for a pull request or a workflow's summary; what failed comes first."""
    lines = [MARK, *(line for text in failed for line in (f"**Failed:** {markdown_text(text)}", ""))]
    return "\n".join([*lines, *(to_markdown(document, level=3) for document in documents)]).rstrip() + "\n"


def insert_section(card: str, section: str) -> str:
    """Return a model card with the section in place of an earlier one, or else at the end."""
    start, end = card.find(_BEGIN), card.find(_END)
    section = section.strip()
    if 0 <= start < end:
        return card[:start] + section + card[end + len(_END) :]
    before = card.rstrip()
    return f"{before}\n\n{section}\n" if before else f"{section}\n"


def _section(evaluation: Evaluation) -> str:
    """Return the section: sentences, table, figure, and how it was measured, between two comments."""
    manifest = evaluation.manifest
    document = replace(evaluation_document(evaluation), title="Calibration", subtitle="", footer="")
    figure = (
        [f"![Reliability: predicted probability against observed frequency]({FIGURE})", ""]
        if evaluation.reliability_rows
        else []
    )
    where = "" if evaluation.benchmark == UNNAMED else f" on {markdown_text(evaluation.benchmark)}"
    words = glossary(evaluation.facts["view"], evaluation.rows)
    measured = (
        f"Measured with rmcalib {__version__}{where}{_revision(manifest, 'benchmark_revision')}; model "
        f"{markdown_text(evaluation.model)}{_revision(manifest, 'model_revision')}. "
    ) + " ".join(f"{word.capitalize()}: {words[word]}." for word in ("says", "right") if word in words)
    return "\n".join([_BEGIN, to_markdown(document, level=2), *figure, measured, _END, ""])


def _eval_results(evaluation: Evaluation, source: str | None) -> list[dict[str, Any]]:
    """Return the headline metrics as entries of the Hub's `.eval_results`, which need a data set of the Hub."""
    revision = str(evaluation.manifest.get("benchmark_revision"))
    if not (_HUB_ID.fullmatch(evaluation.benchmark) and _COMMIT.fullmatch(revision)):
        return []
    date = str((evaluation.manifest.get("timings") or {}).get("finished") or "")
    entries = []
    at = overall_values(evaluation.rows)
    for name in (name for name in (*HEADLINE, "ece") if name in at):
        row, limits = at[name], ""
        if row["low"] is not None:
            limits = f", {evaluation.settings.level:.0%} interval [{row['low']:.4f}, {row['high']:.4f}]"
        entries.append(
            {
                "dataset": {"id": evaluation.benchmark, "revision": revision, "task_id": name},
                "value": round(float(row["value"]), 6),
                "notes": f"rmcalib, {count(row['n'], 'prompt')}{limits}",
                **({"date": date} if date else {}),
                **({"source": {"url": source}} if source else {}),
            }
        )
    return entries


def _readme(name: str) -> str:
    """Return the model card of a repository; empty if it has none."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(name, "README.md")).read_text(encoding="utf-8")
    except LocalEntryNotFoundError:
        raise  # the Hub was not reached; an empty card would replace the real one
    except EntryNotFoundError:
        return ""


def _revision(manifest: Any, key: str) -> str:
    value = manifest.get(key)
    return f" at {markdown_text(str(value)[:12])}" if value else ""


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")
