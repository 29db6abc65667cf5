"""The files of a published evaluation: written to a folder, or added to the Hub by a pull request."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmcalib._util.files import write_bytes
from rmcalib._util.hub import check_repo_id, folder_name, translated
from rmcalib._util.storage import as_path
from rmcalib.publish._badge import badge_svg
from rmcalib.publish._card import BADGE, FIGURE, card_section, insert_section
from rmcalib.publish._every_eval import Evaluator, every_eval_ever
from rmcalib.publish._hub_results import eval_results
from rmcalib.report import Evaluation, figure_png, reliability_figure

__all__ = ["Card", "make_card", "push_card", "write_card"]

CARD, RECORD = "card.md", "every_eval_ever.json"


@dataclass(frozen=True)
class Card:
    """The result of :func:`make_card`: everything that is published about an evaluation.

    Attributes
    ----------
    model, benchmark : str
        The names of the model and of the benchmark.
    section : str
        The section of the model card, in Markdown.
    files : dict[str, bytes]
        Contents by path, as they are in a model repository: images, and `.eval_results/*.yaml` if the
        benchmark is a data set of the Hub.
    record : dict[str, Any]
        The evaluation in the schema of Every Eval Ever.

    Examples
    --------
    >>> from rmcalib.report import evaluate
    >>> from rmcalib.scores import Scores
    >>> card = make_card(evaluate(Scores.from_arrays([[2.0, 0.0]] * 30), model="org/rm", resamples=20))
    >>> card.section.splitlines()[1], card.record["schema_version"]
    ('## Calibration', '0.3.0')
    """

    model: str
    benchmark: str
    section: str
    files: dict[str, bytes]
    record: dict[str, Any]


def make_card(
    evaluation: Evaluation,
    *,
    source: str | None = None,
    evaluator: Evaluator | None = None,
    now: float | None = None,
) -> Card:
    """Make everything that is published about an evaluation; nothing is written.

    Parameters
    ----------
    evaluation : Evaluation
        The result of :func:`rmcalib.evaluate`.
    source : str, optional
        URL of a page with more about the evaluation, for `.eval_results`.
    evaluator : Evaluator, optional
        Who ran the evaluation, for the record of Every Eval Ever.
    now : float, optional
        Time of that record in seconds since 1970; default the current time.

    Returns
    -------
    Card

    Examples
    --------
    >>> from rmcalib.report import evaluate
    >>> from rmcalib.scores import Scores
    >>> report = evaluate(Scores.from_arrays([[2.0, 0.0], [0.0, 2.0]]), model="org/rm", resamples=20)
    >>> sorted(make_card(report).files)
    ['calibration/badge.svg', 'calibration/reliability.png']
    """
    import yaml

    files = {BADGE: _utf8(badge_svg(evaluation))}
    if evaluation.reliability:
        files[FIGURE] = figure_png(reliability_figure(evaluation.reliability))
    entries = eval_results(evaluation, source=source)
    if entries:
        name = folder_name(evaluation.benchmark)
        text = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True)
        files[f".eval_results/rmcalib_{name}.yaml"] = _utf8(text)
    record = every_eval_ever(evaluation, evaluator=evaluator, now=now)
    return Card(evaluation.model, evaluation.benchmark, card_section(evaluation), files, record)


def write_card(card: Card, folder: str | Path) -> list[Path]:
    """Write card.md, every_eval_ever.json and the other files of a card to a folder.

    Parameters
    ----------
    card : Card
        The result of `make_card`.
    folder : str | Path
        A folder or URL.

    Returns
    -------
    list of Path
        The files that were written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> card = Card("org/rm", "bench", "## Calibration", {}, {})
    >>> with TemporaryDirectory() as folder:
    ...     [path.name for path in write_card(card, folder)]
    ['card.md', 'every_eval_ever.json']
    """
    out = as_path(folder)
    record = json.dumps(card.record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    contents = {CARD: _utf8(card.section), **card.files, RECORD: _utf8(record)}
    return [write_bytes(out / name, content) for name, content in contents.items()]


def push_card(card: Card, repository: str) -> str:
    """Open a pull request on the Hub that adds the card to a model repository.

    The section is added to README.md, in place of an earlier one. Uses the login of `hf auth login` or
    HF_TOKEN. Nothing changes until somebody merges the pull request. It is used like this::

        push_card(make_card(evaluation), "org/name")

    Parameters
    ----------
    card : Card
        The result of `make_card`.
    repository : str
        The model repository, `org/name`.

    Returns
    -------
    str
        The URL of the pull request.

    Raises
    ------
    ValueError
        If the Hub refuses the request; the message says why in one line.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    name = check_repo_id(repository)
    with translated(name, upload=True):
        api = HfApi()
        api.model_info(name, timeout=10)  # fails at once if the Hub is down; a download would try for long
        contents = {"README.md": _utf8(insert_section(_readme(name), card.section)), **card.files}
        commit = api.create_commit(
            name,
            operations=[
                CommitOperationAdd(path_in_repo=path, path_or_fileobj=content)
                for path, content in contents.items()
            ],
            commit_message=f"Add calibration on {' '.join(card.benchmark.split())[:60]} (rmcalib)",
            commit_description="Model-card section, badge, figure and results, written by `rmcalib card`.",
            create_pr=True,
        )
    return str(commit.pr_url)


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


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")
