"""Join labels from another file or table with scores: by the prompt and response, or by their texts."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib._util.display import count
from rmcalib._util.texts import did_you_mean
from rmcalib.scores import _files
from rmcalib.scores._labels import id_text, is_empty
from rmcalib.scores._roles import KNOWN, LONGEST_ID, listed
from rmcalib.scores._schema import as_number
from rmcalib.scores._scores import Scores
from rmcalib.scores.scale import as_record

INCLUSION, SECOND = "inclusion", "second"
"""Further columns of scores: the probability that a prompt was drawn, and a second judge's P(first choice right)."""
_PERSON = ("person", "annotator", "rater", "labeler", "labeller", "worker")
_RESPONSE_TEXT = ("response_id", "response_text", "completion", "answer", "output", "generation", "text")
_WORDS: dict[str, float] = {word: value for value, words in KNOWN["words"].items() for word in words}
Ballot = dict[int, float]
"""What one person said about responses of a prompt, by the number of the response within it."""


@dataclass(frozen=True)
class _Sheet:
    """Labels by prompt and person, the probabilities that prompts were drawn, and what was asked if it is stated."""

    ballots: dict[int, dict[str, Ballot]]
    inclusion: dict[int, float]
    ask: str | None


def join_labels(scores: Scores, labels: Any) -> Scores:
    """Return scores with the labels of another table, which replace their own.

    Rows without a label are not labelled yet. Where several people labelled a prompt, their labels become votes
    (which response is the best) or the majority decides (whether a response is correct).
    """
    table = _files.read_frame(labels, "labels") if _files.is_frame(labels) else _files.read_table(labels)
    sheet = _read(table, scores)
    if not sheet.ballots:
        raise ValueError(
            f"{table.source}: no row has a label; fill the column `label`, or save it from label.html"
        )
    sizes = np.diff(scores.offsets)
    ask = sheet.ask or _meaning(sheet, sizes)
    people = {who for own in sheet.ballots.values() for who in own}
    several = any(len(own) > 1 for own in sheet.ballots.values())
    columns = dict(scores.columns())
    for name in ("is_correct", "label", "votes", "ties", INCLUSION):
        columns.pop(name, None)
    about: dict[str, Any] = {"prompts": len(sheet.ballots), "people": len(people)}
    if ask == "correct":
        columns["label"] = _majority(sheet, scores)
    else:
        votes, ties, label = _votes(sheet, scores)
        columns |= {"votes": votes, "ties": ties} if several else {"label": label}
    if several:
        about["agreement"] = _agreement(sheet, ask)
    if sheet.inclusion:
        each = np.full(scores.n_items, np.nan)
        each[list(sheet.inclusion)] = list(sheet.inclusion.values())
        columns[INCLUSION] = np.repeat(each, sizes)
    manifest = {name: value for name, value in scores.manifest.items() if name != "labels"}
    manifest["labelling"] = about
    if notes := [*manifest.get("notes", []), *_notes(about, scores, table.source)]:
        manifest["notes"] = notes
    if not scores.scale.assumed:
        manifest["scale"] = as_record(scores.scale)
    are_votes = ask == "best" and several
    manifest["labels"] = {"kind": "votes" if are_votes else ask, "from": "the labels that were joined"}
    return Scores.from_columns(columns, manifest, source=table.source)


def _notes(about: Mapping[str, Any], scores: Scores, source: str) -> list[str]:
    found = []
    if about.get("agreement") is not None:
        found.append(
            f"{count(about['people'], 'person')} labelled some prompts twice or more and agree in "
            f"{100 * about['agreement']:.0f}% of the pairs of labels.".replace("persons", "people")
        )
    unused = int((~np.isnan(np.fmax.reduceat(scores.label, scores.offsets[:-1]))).sum())
    if unused:
        found.append(
            f"Labels are those of {source}; the scores' own labels ({count(unused, 'prompt')}) are not used."
        )
    return found


def _read(table: _files.Table, scores: Scores) -> _Sheet:
    """Read labels row by row; unknown prompts and responses are an error that names them."""
    prompt = _column(table, KNOWN["names"]["prompt"])
    value = _column(table, KNOWN["names"]["label"])
    if prompt is None or value is None:
        missing = "prompt" if prompt is None else "label"
        raise ValueError(
            f"{table.source}: no column `{missing}` (has {listed(table.columns)}); labels need the columns prompt, "
            "response and label"
        )
    response = _column(table, ["response", *_RESPONSE_TEXT, *KNOWN["names"]["response"]])
    person, drawn, asked = _column(table, _PERSON), _column(table, ["inclusion"]), _column(table, ["ask"])
    places = _places(scores)
    ballots: dict[int, dict[str, Ballot]] = {}
    inclusion: dict[int, float] = {}
    unknown: list[str] = []
    for row in range(len(table)):
        item = _text(table.columns[prompt][row])
        where = _find_prompt(places, item)
        if where is None:
            unknown.append(f"prompt {item[:60]!r}")
            continue
        index, responses = where
        if drawn is not None and (pi := as_number(table.columns[drawn][row])) is not None:
            if not 0 < pi <= 1:
                raise table.error(row, drawn, "a probability above 0, and at most 1")
            inclusion[index] = pi
        if not _text(table.columns[value][row]):
            continue
        who = "" if person is None else _text(table.columns[person][row])
        ballot = ballots.setdefault(index, {}).setdefault(who, {})
        if response is None:  # the label is the number of the best response
            name = _text(table.columns[value][row])
            if name not in responses:
                unknown.append(f"response {name[:60]!r} of prompt {item[:60]!r}")
                continue
            ballot.update(dict.fromkeys(responses.values(), 0.0) | {responses[name]: 1.0})
            continue
        name = _text(table.columns[response][row])
        if name not in responses:
            unknown.append(f"response {name[:60]!r} of prompt {item[:60]!r}")
            continue
        if responses[name] in ballot:
            raise table.error(
                row, response, "this person labelled it before; leave one row out, or add a column person"
            )
        ballot[responses[name]] = _number(table, row, value)
    if unknown:
        raise ValueError(f"{table.source}: not in the scores: {listed(dict.fromkeys(unknown), 5)}")
    named = None if asked is None else {text for one in table.columns[asked] if (text := _text(one))}
    return _Sheet(ballots, inclusion, named.pop() if named and len(named) == 1 else None)


def _column(table: _files.Table, names: Any) -> str | None:
    plain = {name.strip().lower(): name for name in table.columns}
    return next((plain[name] for name in names if name in plain), None)


def _places(scores: Scores) -> dict[str, tuple[int, dict[str, int]]]:
    """Return the index of each prompt by its id, and the places of its responses by number, id or text."""
    names = [name for name in _RESPONSE_TEXT if name in scores.extra]
    numbers = scores.response.tolist()
    texts = [scores.extra[name].tolist() for name in names]
    found: dict[str, tuple[int, dict[str, int]]] = {}
    for index, item in enumerate(scores.item_id[scores.offsets[:-1]].tolist()):
        first, last = int(scores.offsets[index]), int(scores.offsets[index + 1])
        responses: dict[str, int] = {}
        for column in texts:
            own = Counter(map(str, column[first:last]))
            responses |= {
                str(column[row]): row - first for row in range(first, last) if own[str(column[row])] == 1
            }
        responses |= {str(numbers[row]): row - first for row in range(first, last)}
        found[item] = (index, responses)
    return found


def _find_prompt(
    places: Mapping[str, tuple[int, dict[str, int]]], text: str
) -> tuple[int, dict[str, int]] | None:
    """Return where a prompt is, by its id or its text: the id of a long text is its digest."""
    if text not in places:
        text = text.removeprefix("'")  # a sheet has one before what a spreadsheet would take for a formula
    if text not in places and len(text) > LONGEST_ID:
        text = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return places.get(text)


def _text(value: Any) -> str:
    return "" if is_empty(value) else id_text(value).strip()


def _number(table: _files.Table, row: int, name: str) -> float:
    value = table.columns[name][row]
    found = _WORDS.get(str(value).strip().lower(), as_number(value))
    if found is None or not 0 <= found <= 1:
        raise table.error(
            row, name, "no label: 1 or 0, true or false, best, correct, wrong, tie; or leave it empty"
        )
    return float(found)


def _meaning(sheet: _Sheet, sizes: Any) -> str:
    """Return "best" if every person named one best response of each prompt, or a tie; otherwise "correct"."""
    for index, own in sheet.ballots.items():
        for ballot in own.values():
            chosen = sum(value == 1 for value in ballot.values())
            if sizes[index] == 1 or (chosen != 1 and not _is_tie(ballot)):
                return "correct"
    return "best"


def _is_tie(ballot: Ballot) -> bool:
    return 1.0 not in ballot.values() and max(ballot.values()) > 0


def _votes(sheet: _Sheet, scores: Scores) -> tuple[Any, Any, FloatArray]:
    """Return votes (N,) and ties (N,) of all people, and labels (N,) if there is one person per prompt."""
    votes, ties = np.zeros(len(scores), dtype=np.int64), np.zeros(len(scores), dtype=np.int64)
    label = np.full(len(scores), np.nan)
    for index, own in sheet.ballots.items():
        first, last = int(scores.offsets[index]), int(scores.offsets[index + 1])
        for ballot in own.values():
            best = _choice(ballot)
            if best is not None:
                votes[first + best] += 1
                label[first:last] = 0.0
                label[first + best] = 1.0
            elif max(ballot.values()) > 0:
                ties[first:last] += 1
                label[first:last] = 1 / (last - first)
    return votes, ties, label


def _majority(sheet: _Sheet, scores: Scores) -> FloatArray:
    """Return labels (N,): what most people said of each response; unknown if as many say yes as no."""
    label = np.full(len(scores), np.nan)
    for index, own in sheet.ballots.items():
        first = int(scores.offsets[index])
        for place in {place for ballot in own.values() for place in ballot}:
            said = np.mean([ballot[place] for ballot in own.values() if place in ballot])
            label[first + place] = (
                said if len(own) == 1 else 1.0 if said > 0.5 else 0.0 if said < 0.5 else np.nan
            )
    return label


def _choice(ballot: Ballot) -> int | None:
    """Return the place of the best response; None for a tie."""
    best = [place for place, value in ballot.items() if value == 1]
    return best[0] if len(best) == 1 else None


def _agreement(sheet: _Sheet, ask: str) -> float | None:
    """Return how many of the pairs of labels of two people agree."""
    agree = pairs = 0.0
    for own in sheet.ballots.values():
        said: list[list[Any]] = [[_choice(ballot) for ballot in own.values()]]
        if ask == "correct":
            places = {place for ballot in own.values() for place in ballot}
            said = [[ballot[place] for ballot in own.values() if place in ballot] for place in places]
        for values in said:
            n = len(values)
            pairs += n * (n - 1) / 2
            agree += sum(k * (k - 1) / 2 for k in Counter(values).values())
    return agree / pairs if pairs else None


def second_opinion(scores: Scores, other: Scores) -> FloatArray:
    """Return another judge's probability of each prompt's first choice, on each row of the prompt: (N,)."""
    place = dict(
        zip(
            zip(other.item_id.tolist(), other.response.tolist(), strict=True),
            other.probabilities,
            strict=True,
        )
    )
    starts, sizes = scores.offsets[:-1], np.diff(scores.offsets)
    first = np.flatnonzero(scores.reward == np.repeat(np.maximum.reduceat(scores.reward, starts), sizes))
    prompt = np.repeat(np.arange(scores.n_items), sizes)[first]
    keys = [*zip(scores.item_id[first].tolist(), scores.response[first].tolist(), strict=True)]
    missing = list(dict.fromkeys(name for name, number in keys if (name, number) not in place))
    if missing:
        raise ValueError(f"second: no scores of prompt {missing[0]!r} ({len(missing):,} prompts are missing)")
    p = np.array([place[key] for key in keys], dtype=np.float64)
    return np.repeat(np.bincount(prompt, p) / np.bincount(prompt), sizes)


def with_second(scores: Scores, other: Scores) -> Scores:
    """Return scores that know a second judge's probability of each prompt's first choice."""
    return replace(scores, extra={**scores.extra, SECOND: second_opinion(scores, other)})


def with_shares(scores: Scores, by: str) -> Scores:
    """Return scores whose labelled prompts were drawn at random within the groups of a column: n_h of N_h."""
    columns = {"category": scores.category, **scores.extra}
    if by not in columns:
        raise ValueError(f"labels by: the scores have no column {by!r} ({did_you_mean(by, columns)})")
    starts, sizes = scores.offsets[:-1], np.diff(scores.offsets)
    group = np.unique(columns[by][starts].astype(str), return_inverse=True)[1]
    labelled = ~np.isnan(np.fmax.reduceat(scores.label, starts))
    have = np.bincount(group, labelled)
    if (have == 0).any():
        name = columns[by][starts][group == int(np.argmin(have))][0]
        raise ValueError(f"labels by: no prompt with {by} {str(name)!r} is labelled")
    share = np.where(labelled, (have / np.bincount(group))[group], np.nan)
    return replace(scores, extra={**scores.extra, INCLUSION: np.repeat(share, sizes)})
