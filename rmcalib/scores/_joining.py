"""Join labels from another file or table with scores: by the prompt and response, or by their texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib._util.display import count
from rmcalib._util.texts import brief, did_you_mean, digest_of
from rmcalib.benchmarks._official import has_largest_reward
from rmcalib.scores import _files
from rmcalib.scores._label_texts import texts_of
from rmcalib.scores._labels import WORDS, id_text, is_empty
from rmcalib.scores._roles import KNOWN, LONGEST_ID, listed, plain
from rmcalib.scores._schema import as_number
from rmcalib.scores._scores import Scores

Ask = Literal["best", "correct", "chosen"]
"""The question: which response is the best, whether each is correct, or whether that with the largest reward is."""
INCLUSION, SECOND = "inclusion", "second"
"""Further columns of scores: the probability that a prompt was drawn, and a second judge's P(first choice right)."""
FROM_STEP = "from_step"
"""A column of labels: they were drawn from this step of a training run and the later ones."""
BEST_OF, CHOSEN = "best_of", "chosen"
"""Further columns of scores of chosen responses: of how many each one was chosen, and its number among them."""
_PERSON = ("person", "annotator", "rater", "labeler", "labeller", "worker")
ID, TEXT = "response_id", "response_text"
"""Columns of labels: the id that a response has in its source, and its text."""
_RESPONSE_TEXT = (ID, TEXT, "completion", "answer", "output", "generation", "text")
UNSHOWN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069\ufffd]")
"""What pages do not show as it is."""
Ballot = dict[int, float]
"""What one person said about responses of a prompt, by the number of the response within it."""


@dataclass(frozen=True)
class _Sheet:
    """Labels by prompt and person, the probabilities that prompts were drawn, and what was asked if it is stated."""

    ballots: dict[int, dict[str, Ballot]]
    inclusion: dict[int, float]
    ask: str | None


def join_labels(scores: Scores, labels: Any, origin: _files.Table, row: IntArray) -> Scores:
    """Return scores with the labels of another table, which replace their own.

    ``origin`` is the table that the scores are from, and ``row`` the row of it that each response is from (N,): it may
    have the texts of responses. Rows without a label are not labelled yet. Where several people labelled a prompt,
    their labels become votes (which response is the best) or the majority decides (whether a response is correct).
    """
    table = _files.read_frame(labels, "labels") if _files.is_frame(labels) else _files.read_table(labels)
    texts = texts_of(scores, origin, row, None)
    scores, kept, drawn_from = _drawn_from(table, scores)
    responses = _Responses(
        scores,
        None if texts is None else [texts.response[i] for i in np.flatnonzero(kept).tolist()],
        are_numbered(scores, origin),
    )
    sheet = _read(table, responses)
    if not sheet.ballots:
        raise ValueError(
            f"{table.source}: no row has a label; fill the column `label`, or save it from label.html"
        )
    sizes = np.diff(scores.offsets)
    ask = sheet.ask or _meaning(sheet, sizes)
    people = {who for by_person in sheet.ballots.values() for who in by_person}
    several = any(len(by_person) > 1 for by_person in sheet.ballots.values())
    columns = dict(scores.columns())
    for name in ("is_correct", "label", "votes", "ties", INCLUSION):
        columns.pop(name, None)
    about: dict[str, Any] = {"prompts": len(sheet.ballots), "people": len(people)}
    if ask != "best":
        columns["label"] = _majority(sheet, scores)
    else:
        votes, ties, label = _votes(sheet, scores)
        columns |= {"votes": votes, "ties": ties} if several else {"label": label}
        about["without_best"] = len(sheet.ballots) - int(np.isfinite(label[scores.offsets[:-1]]).sum())
    if several:
        about["agreement"] = _agreement(sheet, ask)
    if sheet.inclusion:
        each = np.full(scores.n_items, np.nan)
        each[list(sheet.inclusion)] = list(sheet.inclusion.values())
        columns[INCLUSION] = np.repeat(each, sizes)
    manifest = {name: value for name, value in scores.manifest.items() if name != "labels"}
    manifest["labelling"] = about
    if ask == "chosen" and (sizes > 1).any():
        columns, note = _chosen_alone(columns, scores, table.source)
        drawn_from.append(note)
    if notes := [*manifest.get("notes", []), *_notes(about, scores, table.source), *drawn_from]:
        manifest["notes"] = notes
    if not scores.scale.assumed:
        manifest["scale"] = asdict(scores.scale)
    are_votes = ask == "best" and several
    kind = "votes" if are_votes else "best" if ask == "best" else "correct"
    manifest["labels"] = {"kind": kind, "from": "the labels that were joined"}
    return Scores.from_columns(columns, manifest, source=table.source)


def _drawn_from(table: _files.Table, scores: Scores) -> tuple[Scores, BoolArray, list[str]]:
    """Return the scores of the steps that labels were drawn from, their rows (N,), and a note if these are not all."""
    every = np.ones(len(scores), dtype=bool)
    column = _column(table, FROM_STEP)
    stated = set() if column is None else {as_number(cell) for cell in table.columns[column]} - {None}
    if not stated:
        return scores, every, []
    steps = scores.extra.get("step")
    if len(stated) > 1 or steps is None:
        problem = "the scores have no steps" if steps is None else "there are several"
        raise ValueError(
            f"{table.source}: {column}: {problem}; join the labels of each draw with its own scores"
        )
    first = stated.pop()
    kept = np.asarray(steps >= first)[scores.offsets[:-1]]
    if kept.all() or not kept.any():
        return scores, every, []
    left = count(int((~kept).sum()), "prompt")
    note = f"Labels were drawn from step {first:.15g} on: {left} of earlier steps are left out."
    return scores.take(kept), np.repeat(kept, np.diff(scores.offsets)), [note]


def chosen_of(scores: Scores) -> IntArray:
    """Return the row of the response with the largest reward of each prompt (n,); the first of equal ones."""
    rows = np.where(has_largest_reward(scores), np.arange(len(scores)), len(scores))
    return np.asarray(np.minimum.reduceat(rows, scores.offsets[:-1]))


def _chosen_alone(columns: dict[str, Any], scores: Scores, source: str) -> tuple[dict[str, Any], str]:
    """Return the columns of chosen responses alone, and a note."""
    rows, sizes = chosen_of(scores), np.diff(scores.offsets)
    labelled = ~np.isnan(columns["label"])
    others = np.setdiff1d(np.flatnonzero(labelled), rows)
    if len(others):
        item = str(scores.item_id[others[0]])
        raise ValueError(
            f"{source}: response {scores.response[others[0]]} of prompt {item!r} was labelled as the chosen one, but "
            "another one has the largest reward: join labels with the scores that they were drawn from"
        )
    kept = {name: np.asarray(values)[rows] for name, values in columns.items()}
    several = f"{sizes.max()}" if np.ptp(sizes) == 0 else f"{sizes.min()} to {sizes.max()}"
    kept |= {"response": np.zeros(len(rows), dtype=np.int64), BEST_OF: sizes, CHOSEN: scores.response[rows]}
    return kept, (
        f"Labels say whether the response with the largest reward of {several} is correct: all results are about these "
        "responses."
    )


def _notes(about: Mapping[str, Any], scores: Scores, source: str) -> list[str]:
    notes = []
    if about.get("agreement") is not None:
        notes.append(
            f"{count(about['people'], 'person')} labelled some prompts twice or more and agree in "
            f"{100 * about['agreement']:.0f}% of the pairs of labels.".replace("persons", "people")
        )
    if about.get("without_best"):
        notes.append(
            f"In {count(about['without_best'], 'prompt')}, no response is labelled as the best: not used."
        )
    unused = int(are_labelled(scores).sum())
    if unused:
        notes.append(
            f"Labels are those of {source}; the scores' own labels ({count(unused, 'prompt')}) are not used."
        )
    return notes


@dataclass(frozen=True)
class LabelRow:
    """A row of a file of labels: the person, the response and the label; the response is None if the label names it."""

    row: int
    prompt: str
    response: str | None
    label: str
    person: str
    inclusion: float | None
    second: float | None = None
    """A second judge's score of the response."""
    response_id: str = ""
    text: str = ""
    """What else the row says of the response: its id in the source, and its text."""


def label_rows(table: _files.Table, is_prompt: Callable[[str], bool] | None = None) -> Iterator[LabelRow]:
    """Yield the rows of a file of labels; ``is_prompt`` says which of several columns has the prompts.

    A row without a label is there, too: its prompt was drawn.
    """
    prompts = _columns(table, ["prompt", *KNOWN["names"]["prompt"]])
    labels = label_columns(table)
    second = _column(table, SECOND)
    if not prompts or not (labels or second):
        missing = "label" if prompts else "prompt"
        raise ValueError(
            f"{table.source}: no column `{missing}` (has {listed(table.columns) or 'none'}); labels need the columns "
            "prompt, response and label"
        )
    if is_prompt is not None and len(table):
        prompts.sort(key=lambda name: not is_prompt(_raw(table.columns[name][0])))
    response = _column(table, "response", *_RESPONSE_TEXT, *KNOWN["names"]["response"])
    person, inclusion = _column(table, *_PERSON), _column(table, INCLUSION)
    others = (_column(table, ID), _column(table, TEXT))
    response_id, text = (None if name == response else name for name in others)

    def cell(name: str | None, row: int) -> str:
        return "" if name is None else _text(table.columns[name][row])

    for row in range(len(table)):
        drawn = None if inclusion is None else as_number(table.columns[inclusion][row])
        if cell(inclusion, row) and (drawn is None or not 0 < drawn <= 1):
            raise table.error(row, str(inclusion), "a probability above 0, and at most 1")
        label = cell(next(iter(labels), None), row)
        if label and response is not None and not 0 <= value_of(label) <= 1:
            raise table.error(
                row,
                labels[0],
                "no label: 1 or 0, true or false, x, best, correct, wrong, tie; or leave it empty",
            )
        prompt, answer = (
            None if name is None else _raw(table.columns[name][row]) for name in (prompts[0], response)
        )
        score = None if second is None else as_number(table.columns[second][row])
        if score is None and cell(second, row):
            raise table.error(row, str(second), "a number: a second judge's score; or leave it empty")
        yield LabelRow(
            row,
            prompt or "",
            answer,
            label,
            cell(person, row),
            drawn,
            score,
            cell(response_id, row),
            "" if text is None else _raw(table.columns[text][row]),
        )


def label_columns(table: _files.Table) -> list[str]:
    """Return the columns of a table that may be its labels."""
    return _columns(table, KNOWN["names"]["label"])


def value_of(label: str) -> float:
    """Return what a label says, from 0 to 1; NaN if it is none."""
    value = WORDS.get(label.lower(), as_number(label))
    return np.nan if value is None else float(value)


def _read(table: _files.Table, responses: _Responses) -> _Sheet:
    """Read labels row by row; unknown prompts and responses are an error that names them."""
    places = responses.prompts
    ballots: dict[int, dict[str, Ballot]] = {}
    inclusion: dict[int, float] = {}
    unknown: list[str] = []
    for row in label_rows(table, lambda text: _find_prompt(places, text) is not None):
        index = _find_prompt(places, row.prompt)
        if index is None:
            unknown.append(f"prompt {row.prompt[:60]!r}")
            continue
        if row.inclusion is not None and inclusion.setdefault(index, row.inclusion) != row.inclusion:
            raise ValueError(
                f"{table.source}: {table.place(row.row)}: {INCLUSION} is {row.inclusion:g}, and "
                f"{inclusion[index]:g} in an earlier row of the same prompt"
            )
        if not row.label:
            continue
        try:
            place = responses.place(index, row)
        except ValueError as error:
            raise ValueError(f"{table.source}: {table.place(row.row)}: {error}") from None
        if place is None:
            name = row.response_id or (row.label if row.response is None else row.response).strip()
            unknown.append(f"response {name[:60]!r} of prompt {row.prompt[:60]!r}")
            continue
        said = {place: value_of(row.label)}
        if row.response is None:  # the label is the number of the best response
            said = dict.fromkeys(range(responses.size(index)), 0.0) | {place: 1.0}
        ballot = ballots.setdefault(index, {}).setdefault(row.person, {})
        if any(ballot.get(place, value) != value for place, value in said.items()):
            who = row.person or "an earlier row"
            raise ValueError(
                f"{table.source}: {table.place(row.row)}: {who} gives this response another label; leave one row "
                "out, or add a column person"
            )
        ballot |= said
    if unknown:
        hint = "" if responses.numbered or not responses.ids else " (responses go by response_id or text)"
        raise ValueError(f"{table.source}: not in the scores{hint}: {listed(dict.fromkeys(unknown), 5)}")
    asked = _column(table, "ask")
    stated = {text for cell in table.columns[asked] if (text := _text(cell))} if asked else set()
    if len(stated) > 1 or not stated <= set(get_args(Ask)):
        have = listed(sorted(map(brief, stated)), 5)
        raise ValueError(
            f"{table.source}: {asked} is {have}; expected one of {', '.join(get_args(Ask))} in all rows"
        )
    return _Sheet(ballots, inclusion, stated.pop() if stated else None)


def _columns(table: _files.Table, names: Iterable[str]) -> list[str]:
    """Return the columns of a table that have one of these names, in the order of the names."""
    plain = {name.strip().lower(): name for name in table.columns}
    return list(dict.fromkeys(plain[name] for name in names if name in plain))


def _column(table: _files.Table, *names: str) -> str | None:
    """Return the first column of a table that has one of these names; None if there is none."""
    return next(iter(_columns(table, names)), None)


def id_columns(scores: Scores) -> dict[str, list[str]]:
    """Return the further columns that tell the responses of each prompt apart, by name: ids first, then texts."""
    names, prompts, ids = {plain(name): name for name in scores.extra}, scores.item_id.tolist(), {}
    for name in dict.fromkeys([ID, *KNOWN["names"]["response"], *_RESPONSE_TEXT]):
        if name in names:
            texts = [plain_text(_raw(value)) for value in scores.extra[names[name]].tolist()]
            if all(texts) and len({*zip(prompts, texts, strict=True)}) == len(texts):
                ids[name] = texts
    return ids


def in_order_of(first: Scores, other: Scores) -> Scores:
    """Return other scores of the same prompts, with the responses of each prompt in the order of the first ones.

    They are told apart by their ids or texts; without any that both have, by their numbers.
    """
    ids, others = id_columns(first), id_columns(other)
    shared = [name for name in ids if name in others]
    if not shared or (first.offsets.tolist(), first.item_id.tolist()) != (
        other.offsets.tolist(),
        other.item_id.tolist(),
    ):
        return other
    for name in shared:
        place = {key: row for row, key in enumerate(zip(other.item_id.tolist(), others[name], strict=True))}
        order = [place.get(key, -1) for key in zip(first.item_id.tolist(), ids[name], strict=True)]
        if order == [*range(len(order))]:
            return other
        if -1 not in order:
            if other.beats is not None:
                raise ValueError(f"{other.name}: its responses are in another order; sort its rows by {name}")
            columns = {key: values[order] for key, values in other.columns().items()}
            return Scores.from_columns(columns | {"response": first.response}, other.manifest)
    raise ValueError(f"{first.name} and {other.name} have other responses to a prompt, by {listed(shared)}")


def are_numbered(scores: Scores, origin: _files.Table) -> bool:
    """Whether a table numbers the responses itself; otherwise their numbers are the order of its rows."""
    kept = {plain(name) for name in scores.extra}
    kept |= {"response"} if ID in kept else set()
    return bool({*KNOWN["names"]["response"]} & {plain(name) for name in origin.columns} - kept)


def plain_text(text: str) -> str:
    """Return a text as sheets and pages keep it: without control characters, one space between words."""
    return " ".join(UNSHOWN.sub("", text).split()).removeprefix("'")  # a sheet has ' before a formula


@dataclass(frozen=True)
class _Responses:
    """Which response of the scores a row of labels is about: by its id, its text, or else its number."""

    scores: Scores
    texts: list[str] | None
    numbered: bool
    """Whether the source numbers the responses; see `are_numbered`."""

    @cached_property
    def ids(self) -> list[dict[tuple[int, str], list[int]]]:
        """The places of responses by each column of ids or texts that tells them apart."""
        return [self._places(names) for names in id_columns(self.scores).values()]

    @cached_property
    def _by_number(self) -> dict[tuple[int, str], list[int]]:
        return self._places(map(str, self.scores.response.tolist()))

    @cached_property
    def _by_text(self) -> dict[tuple[int, str], list[int]]:
        return self._places(map(plain_text, self.texts or []))

    def _places(self, names: Iterable[str]) -> dict[tuple[int, str], list[int]]:
        """Return where responses of the same name (N,) are in their prompt, by the prompt's index and the name."""
        sizes, places = np.diff(self.scores.offsets), dict[tuple[int, str], list[int]]()
        rows = ((prompt, place) for prompt, size in enumerate(sizes.tolist()) for place in range(size))
        for (prompt, place), name in zip(rows, names, strict=False):
            places.setdefault((prompt, name), []).append(place)
        return places

    @cached_property
    def prompts(self) -> dict[str, int]:
        """The index of each prompt by its id."""
        return {name: i for i, name in enumerate(self.scores.item_id[self.scores.offsets[:-1]].tolist())}

    def size(self, index: int) -> int:
        """Return how many responses a prompt has."""
        return int(np.diff(self.scores.offsets[index : index + 2])[0])

    def place(self, index: int, row: LabelRow) -> int | None:
        """Return the place of a row's response in its prompt; None if the prompt has no such response."""
        name = (row.label if row.response is None else row.response).strip()
        by_id = row.response_id if row.response_id and self.ids else name
        key = index, plain_text(by_id)
        place = next((places[key][0] for places in self.ids if key in places), None)
        if by_id != name and place is None:
            return None
        certain = place is not None
        if place is None:
            place = next(iter(self._by_number.get((index, name.removesuffix(".0")), [])), None)
            certain = place is not None and self.numbered and not row.response_id
        text = plain_text(row.text or ("" if place is not None else name))
        if self.texts is None or not text:
            return place if certain or not (self.ids or row.response_id) else None
        same = self._by_text.get((index, text), [])
        if place in same or (place is None and row.text):
            return place
        if not certain and len(same) == 1:  # the number is that of a row in another order
            return same[0]
        if place is None and not same:
            return None
        problem = "occurs several times" if same and not certain else "is another one"
        raise ValueError(
            f"the text of response {(row.response_id or name)[:60]!r} of prompt {row.prompt[:60]!r} {problem} in the "
            "scores: join labels with scores of the responses that were labelled"
        )


def _find_prompt(prompts: Mapping[str, int], text: str) -> int | None:
    """Return where a prompt is, by its id or its text: the id of a long text is its digest."""
    stripped = text.strip()
    # A sheet has ' before a formula, and pandas writes the number 7 of a column with gaps as 7.0.
    for spelling in (text, stripped, stripped.removeprefix("'"), stripped.removesuffix(".0")):
        if spelling in prompts:
            return prompts[spelling]
        if len(spelling) > LONGEST_ID and (digest := digest_of(spelling)) in prompts:
            return prompts[digest]
    return None


def _raw(value: Any) -> str:
    """Return a text as it is: its digest may be an id."""
    return "" if is_empty(value) else id_text(value)


def _text(value: Any) -> str:
    return _raw(value).strip()


def _meaning(sheet: _Sheet, sizes: Any) -> str:
    """Return "best" if every person named one best response of each prompt, or a tie; otherwise "correct"."""
    for index, ballots in sheet.ballots.items():
        for ballot in ballots.values():
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
    for index, ballots in sheet.ballots.items():
        first, last = int(scores.offsets[index]), int(scores.offsets[index + 1])
        for ballot in ballots.values():
            best = _choice(ballot)
            if best is not None:
                votes[first + best] += 1
                label[first:last] = 0.0
                label[first + best] = 1.0
            elif (largest := max(ballot.values())) > 0:
                ties[first:last] += 1
                shared = np.array([ballot.get(place) == largest for place in range(last - first)])
                label[first:last] = shared / shared.sum()
    return votes, ties, label


def _majority(sheet: _Sheet, scores: Scores) -> FloatArray:
    """Return labels (N,): what most people said of each response; unknown if as many say yes as no."""
    label = np.full(len(scores), np.nan)
    for index, ballots in sheet.ballots.items():
        first = int(scores.offsets[index])
        for place in {place for ballot in ballots.values() for place in ballot}:
            said = np.mean([ballot[place] for ballot in ballots.values() if place in ballot])
            label[first + place] = (
                said if len(ballots) == 1 else 1.0 if said > 0.5 else 0.0 if said < 0.5 else np.nan
            )
    return label


def _choice(ballot: Ballot) -> int | None:
    """Return the place of the best response; None for a tie."""
    best = [place for place, value in ballot.items() if value == 1]
    return best[0] if len(best) == 1 else None


def _agreement(sheet: _Sheet, ask: str) -> float | None:
    """Return how many of the pairs of labels of two people agree."""
    agree = pairs = 0.0
    for said_of in sheet.ballots.values():
        said: list[list[Any]] = [[_choice(ballot) for ballot in said_of.values()]]
        if ask == "correct":
            places = {place for ballot in said_of.values() for place in ballot}
            said = [[ballot[place] for ballot in said_of.values() if place in ballot] for place in places]
        for values in said:
            n = len(values)
            pairs += n * (n - 1) / 2
            agree += sum(k * (k - 1) / 2 for k in Counter(values).values())
    return agree / pairs if pairs else None


def second_opinion(scores: Scores, other: Scores, *, singly: bool) -> FloatArray:
    """Return another judge's probability of each prompt's first choice, on each row of the prompt: (N,).

    ``singly``, it is the probability that each response is correct.
    """
    ids, others = id_columns(scores), id_columns(other)
    shared = next((name for name in ids if name in others), None)
    number: Sequence[Any] = (
        scores.extra.get(CHOSEN, scores.response).tolist() if shared is None else ids[shared]
    )
    numbers: Sequence[Any] = other.response.tolist() if shared is None else others[shared]
    says = _each_correct(other) if singly else other.probabilities
    place = dict(zip(zip(other.item_id.tolist(), numbers, strict=True), says, strict=True))
    rows = np.arange(len(scores)) if singly else np.flatnonzero(has_largest_reward(scores))
    keys = [(str(scores.item_id[row]), number[row]) for row in rows.tolist()]
    missing = list(dict.fromkeys(name for name, number in keys if (name, number) not in place))
    if missing:
        raise ValueError(f"second: no scores of prompt {missing[0]!r} ({len(missing):,} prompts are missing)")
    p = np.array([place[key] for key in keys], dtype=np.float64)
    if singly:
        return p
    sizes = np.diff(scores.offsets)
    prompt = np.repeat(np.arange(scores.n_items), sizes)[rows]
    return np.repeat(np.bincount(prompt, p) / np.bincount(prompt), sizes)


def _each_correct(scores: Scores) -> FloatArray:
    """Return P(correct) of each response (N,): as stated, or with rewards on a scale of their own."""
    reward = scores.reward
    if not scores.scale.states_correct:
        reward = (reward - reward.mean()) / max(float(reward.std()), 1e-12)
    return np.asarray(expit(reward))


def with_second(scores: Scores, other: Scores) -> Scores:
    """Return scores that know what a second judge says of them; see `second_opinion`."""
    opinion = second_opinion(scores, other, singly=scores.view == "pointwise")
    return replace(scores, extra={**scores.extra, SECOND: opinion})


def with_shares(scores: Scores, by: str) -> Scores:
    """Return scores whose labelled prompts were drawn at random within the groups of a column: n_h of N_h."""
    names, group = groups_of(scores, by, "labels by")
    labelled = are_labelled(scores)
    have = np.bincount(group, labelled)
    if (have == 0).any():
        name = str(names[int(np.argmin(have))])
        raise ValueError(f"labels by: no prompt with {by} {name!r} is labelled")
    share = np.where(labelled, (have / np.bincount(group))[group], np.nan)
    return replace(scores, extra={**scores.extra, INCLUSION: np.repeat(share, np.diff(scores.offsets))})


def are_labelled(scores: Scores) -> BoolArray:
    """Return which prompts have a label: (n,)."""
    return ~np.isnan(np.fmax.reduceat(scores.label, scores.offsets[:-1]))


def groups_of(scores: Scores, by: str, option: str) -> tuple[NDArray[np.str_], IntArray]:
    """Return the distinct values of a column of prompts, and the number of each prompt's value: (n,)."""
    columns = {"category": scores.category, **scores.extra}
    if by not in columns:
        raise ValueError(f"{option}: the scores have no column {by!r} ({did_you_mean(by, columns)})")
    return np.unique(columns[by][scores.offsets[:-1]].astype(str), return_inverse=True)
