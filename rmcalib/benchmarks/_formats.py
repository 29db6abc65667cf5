"""How rows become items: for each format its columns, and a function from a checked row to an item.

The columns are a class whose fields have types. Rows are checked by pydantic, so the functions see only valid
values. `answers`, `choices` and `conversations` serve several benchmarks, whose YAML files say what their
columns are called, and what a choice means.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    Strict,
    Tag,
    ValidationError,
    model_validator,
)
from typing_extensions import TypedDict

from rmcalib._util.texts import LONE_SURROGATE, LONGEST_NAME, problems_of
from rmcalib.benchmarks._entries import BenchmarkEntry, benchmarks
from rmcalib.benchmarks._items import Item

# Types of values


def _name(value: Any) -> str:
    """Return an id or a category as text; numbers are allowed."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("must be a text or a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be a finite number")
    text = str(value)
    if not text.strip() or "\0" in text or len(text) > LONGEST_NAME:
        raise ValueError(f"must have 1 to {LONGEST_NAME} characters, and no NUL")
    return text


def _from_json(value: Any) -> Any:
    """Parse a list or an object that a CSV or Parquet file holds as JSON text."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _joined_parts(content: Any) -> Any:
    """Return the text of a message that has parts; images have no text."""
    if not isinstance(content, (list, tuple)):
        return content
    texts = [part.get("text") for part in content if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str)) if texts else None


def _before_the_answer(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    if messages[-1]["role"] == "assistant":
        raise ValueError("ends with the assistant's turn; a prompt ends before it")
    return messages


def _ends_with_answer(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    if messages[-1]["role"] != "assistant":
        raise ValueError("must end with the assistant's response")
    return messages


Text = Annotated[str, Strict()]
Name = Annotated[str, BeforeValidator(_name)]
Count = Annotated[int, Field(ge=0)]
Texts = Annotated[
    tuple[Text, ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else v), Field(min_length=1)
]
Parsed = BeforeValidator(_from_json)


class Message(TypedDict):
    """A chat message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[Text, BeforeValidator(_joined_parts)]


Chat = Annotated[tuple[Message, ...], Parsed, Field(min_length=1)]
Question = Annotated[Chat, AfterValidator(_before_the_answer)]
Talk = Annotated[Chat, AfterValidator(_ends_with_answer)]
# Errors do not show names in angle brackets.
_EITHER = Discriminator(lambda value: "<text>" if isinstance(value, str) else "<chat>")
Prompt = Annotated[Annotated[Text, Tag("<text>")] | Annotated[Question, Tag("<chat>")], _EITHER]
Said = Annotated[Annotated[Text, Tag("<text>")] | Annotated[Talk, Tag("<chat>")], _EITHER]


class Part(BaseModel):
    """An object in a row, which may be JSON text (in CSV files). Empty values count as missing."""

    @model_validator(mode="before")
    @classmethod
    def _given(cls, values: Any) -> Any:
        values = _from_json(values)
        if not isinstance(values, Mapping):
            return values
        return {name: value for name, value in values.items() if value is not None}


# From rows to items


class Row(Part):
    """A row that has been checked: the columns that all formats have."""

    category: Name | None = None


@dataclass(frozen=True)
class Raw:
    """A row as it is in the file: its place for error messages, and whose it is."""

    where: str
    values: Mapping[str, Any]
    entry: BenchmarkEntry


@dataclass(frozen=True)
class Format:
    """The columns of a row, and what makes an item of it, or the reason why it is left out.

    With a `key`, rows with the same key are one prompt, and `item` takes a list of them.
    """

    columns: type[Row]
    item: Callable[[Any, Raw], Item | str]
    key: Callable[[Any], Hashable] | None = None


def read_items(rows: Iterable[tuple[str, Any]], entry: BenchmarkEntry) -> Iterator[tuple[str, Item | str]]:
    """Yield the items of a benchmark, or the reasons why rows are left out, each with its place."""
    prompts: dict[Hashable, tuple[Raw, list[Row]]] = {}
    for number, (where, values) in enumerate(rows):
        if not isinstance(values, dict):
            raise ValueError(f"{where}: expected an object {{...}}")
        raw = Raw(where, values, entry)
        if not isinstance(entry.reader, str):
            yield where, _called(entry.reader, raw)
            continue
        voted = entry.reader == "own" and values.get("votes") is not None
        format = READERS["votes" if voted else entry.reader]
        row = _checked(format.columns, raw)
        if format.key is None:
            yield where, _item(format, row, row, raw, number)
        else:
            prompts.setdefault(format.key(row), (raw, []))[1].append(row)
    for number, (raw, own) in enumerate(prompts.values()):
        yield raw.where, _item(READERS[str(entry.reader)], own, own[0], raw, number)


def _checked(columns: type[Row], raw: Raw) -> Row:
    """Check a row. The error names all its problems, and a benchmark that the row looks like."""
    entry, values = raw.entry, {}
    for name in columns.model_fields:
        given = (raw.values.get(column) for column in column_names(entry, name))
        default = entry.category if name == "category" else None
        values[name] = next((value for value in given if value is not None), default)
    try:
        return columns.model_validate(values)
    except ValidationError as error:
        names = {name: column_names(entry, name)[0] for name in columns.model_fields}
        problems = "; ".join(problems_of(error, names=names))
        hint = _hint(raw) if "no value for" in problems else ""
        raise ValueError(f"{raw.where}: {problems}{hint}") from None


def _hint(raw: Raw) -> str:
    """Return what a row with missing values needs, and which benchmarks it looks like."""
    needed = {name: other.needs for name, other in benchmarks().items() if other.needs}
    like = [name for name, needs in needed.items() if all(raw.values.get(one) is not None for one in needs)]
    hint = f"; the row looks like {' or '.join(like[:2])}: give --format" if like else ""
    return f" (a row needs {', '.join(raw.entry.needs)}){hint}"


def _called(read: Callable[[Mapping[str, Any]], Any], raw: Raw) -> Item | str:
    """Return what the function of a plug-in makes of a row."""
    try:
        found = read(raw.values)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{raw.where}: {type(error).__name__}: {error}") from error
    if not isinstance(found, (Item, str)):
        raise ValueError(
            f"{raw.where}: the reader returned {type(found).__name__}, neither an Item nor a str"
        )
    return found


def _item(format: Format, given: Row | list[Row], row: Row, raw: Raw, number: int) -> Item | str:
    """Make an item, and add what is the same for all formats; `number` is the id of rows without one."""
    try:
        item, cluster = format.item(given, raw), _cluster(raw)
    except ValueError as error:
        raise ValueError(f"{raw.where}: {error}") from None
    if isinstance(item, str):
        return item
    entry, values = raw.entry, raw.values
    name, known = row.category or "all", entry.categories
    category = name if name in known else next((one for one in known if name.startswith(one)), name)
    kept = entry.keep
    if kept is None:
        used = {column for field in type(row).model_fields for column in column_names(entry, field)}
        kept = tuple(column for column in values if column not in used and column not in entry.drop)
    columns = {column: _shown(values.get(column)) for column in kept}
    return replace(
        item,
        id=item.id or str(number),
        category=item.category or category,
        columns={column: text for column, text in columns.items() if text} | dict(item.columns),
        cluster=cluster,
    )


def _cluster(raw: Raw) -> str | None:
    entry, values = raw.entry, raw.values
    if entry.cluster is None or values.get(entry.cluster) is None:
        return None
    name = _name(values[entry.cluster])
    # Several data sets may use the same ids for different questions.
    several = any(source.category for source in entry.hub) and values.get("subset")
    return f"{values['subset']}/{name}" if several else name


def _shown(value: Any) -> str:
    """Return a value as text; empty if it is no text, number or truth value."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (str, int, float)) else ""


def column_names(entry: BenchmarkEntry, field: str) -> Sequence[str]:
    """Return the columns that a field is read from; the first that has a value counts."""
    found = entry.columns.get(field, "subset" if field == "category" else field)
    return (found,) if isinstance(found, str) else found


def needed_columns(entry: BenchmarkEntry) -> tuple[str, ...]:
    """Return the columns that every row of a benchmark must have."""
    if not isinstance(entry.reader, str):
        return ()
    fields = READERS[entry.reader].columns.model_fields.items()
    given = "category" if entry.category is not None else None
    needed = [name for name, field in fields if field.is_required() and name != given]
    needed.sort(key="category".__eq__)  # as the last one
    return tuple(column_names(entry, name)[0] for name in needed)


def _answered(
    name: str,
    prompt: Any,
    responses: Sequence[str],
    n_correct: int = 1,
    *,
    category: str = "",
    columns: Mapping[str, str] | None = None,
) -> Item:
    """Return an item with correct responses first. An empty id or category is taken from the row."""
    return Item(name, category, prompt, tuple(responses), n_correct, columns=dict(columns or {}))


def _voted(
    name: str,
    prompt: Any,
    responses: Sequence[str],
    votes: Sequence[int],
    ties: int = 0,
    *,
    category: str = "",
    columns: Mapping[str, str] | None = None,
) -> Item:
    """Return an item that people voted on; responses are sorted by their votes."""
    order = sorted(range(len(votes)), key=lambda i: -votes[i])  # stable: equal ones keep their order
    ranked, texts = tuple(votes[i] for i in order), [responses[i] for i in order]
    item = _answered(name, prompt, texts, int(ranked[0] > ranked[1]), category=category, columns=columns)
    return replace(item, votes=ranked, ties=ties)


# Formats of several benchmarks


class Answers(Row):
    """Correct and wrong responses, as lists or as single texts."""

    id: Name
    prompt: Prompt
    chosen: Texts
    rejected: Texts
    category: Name


def _answers(row: Answers, _: Raw) -> Item:
    return _answered(row.id, row.prompt, row.chosen + row.rejected, len(row.chosen))


class Votes(Row):
    """Responses with the number of people who preferred each."""

    id: Name
    prompt: Prompt
    responses: Annotated[tuple[Text, ...], Field(min_length=2)]
    votes: tuple[Count, ...]
    ties: Count = 0
    category: Name


def _votes(row: Votes, _: Raw) -> Item:
    if len(row.votes) != len(row.responses):
        raise ValueError(f"{len(row.responses)} responses, but {len(row.votes)} votes; give one each")
    return _voted(row.id, row.prompt, row.responses, row.votes, row.ties)


class Choices(Row):
    """Two responses, and which of them is correct or preferred by a person."""

    id: Name
    prompt: Prompt
    first: Text
    second: Text
    choice: str


def _choices(row: Choices, raw: Raw) -> Item | str:
    return _compared(row.id, row.prompt, (row.first, row.second), row.choice, raw)


class Conversations(Row):
    """Two conversations that should differ only in the last response, and which response is better."""

    id: Name
    first: Talk
    second: Talk
    choice: str


def _conversations(row: Conversations, raw: Raw) -> Item | str:
    if any(_has_image(raw.values[column_names(raw.entry, name)[0]]) for name in ("first", "second")):
        return "a message has an image"
    if row.first[:-1] != row.second[:-1] or len(row.first) < 2:
        return _DIFFER
    responses = (row.first[-1]["content"], row.second[-1]["content"])
    return _compared(row.id, row.first[:-1], responses, row.choice, raw)


_DIFFER = "the two conversations differ before the last response"


def _has_image(talk: Any) -> bool:
    contents = [message.get("content") for message in _from_json(talk)]
    parts = [part for content in contents if isinstance(content, (list, tuple)) for part in content]
    return any(isinstance(part, Mapping) and part.get("image") for part in parts)


def _compared(name: str, prompt: Any, responses: tuple[str, str], choice: str, raw: Raw) -> Item | str:
    """Return an item of two responses: a person's vote, or which one is correct."""
    meaning = _meaning(choice, raw)
    votes = (int(meaning == "first"), int(meaning == "second"))
    if raw.entry.labels == "votes":
        return _voted(name, prompt, responses, votes, 1 - sum(votes))
    if meaning == "neither":
        return "neither response is better"
    return _answered(name, prompt, responses if votes[0] else responses[::-1])


def _meaning(choice: str, raw: Raw) -> str:
    known = raw.entry.choices
    if choice not in known:
        column = column_names(raw.entry, "choice")[0]
        raise ValueError(f"{column} is {choice[:60]!r}: must be one of {', '.join(known)}")
    return known[choice]


# Formats of one benchmark


class RMBench(Answers):
    """Three correct and three wrong responses: concise, detailed, detailed with Markdown."""

    chosen: Annotated[Texts, Field(min_length=3, max_length=3)]
    rejected: Annotated[Texts, Field(min_length=3, max_length=3)]


class Answer(Part):
    """A response of RMB."""

    answer: Text


class RMB(Row):
    """The best response and the others; for pairs, the other."""

    id: Name
    conversation_input: Question
    best: Answer
    others: Annotated[
        tuple[Answer, ...],
        BeforeValidator(lambda v: v if isinstance(v := _from_json(v), (list, tuple)) else [v]),
        Field(min_length=1),
    ]
    category_path: Name


def _rmb(row: RMB, raw: Raw) -> Item:
    folders = row.category_path.removesuffix(".json").split("/")
    category, *task = [one for one in folders if one not in ("BoN_set", "Pairwise_set")] or [""]
    columns = {"task": "/".join(task)}
    language = _from_json(raw.values["conversation_input"])[-1].get("language")
    if isinstance(language, str):
        columns["language"] = language
    responses = [row.best.answer, *(other.answer for other in row.others)]
    return _answered(row.id, row.conversation_input, responses, category=category, columns=columns)


class RewardMath(Row):
    """One row per solution of a problem, in any order; the one by a person is correct."""

    id: Name = ""
    problem: Text
    solution_reference: Name
    eval_solution: Texts


def _rewardmath(rows: list[RewardMath], _: Raw) -> Item:
    person = "human_to_GPT-4"
    ordered = sorted(rows, key=lambda row: row.solution_reference != person)
    correct = sum(row.solution_reference == person for row in rows)
    if correct != 1 or len(rows) < 2:
        raise ValueError(
            f"the problem has {len(rows)} solutions, {correct} of them by {person} (the correct one); it needs "
            "one correct and at least one other"
        )
    return _answered(rows[0].id, rows[0].problem, ["\n".join(row.eval_solution) for row in ordered])


class PPECorrectness(Row):
    """Many responses of one model, each correct or not, in the columns `response_1`, `response_2`, ..."""

    question_id: Name
    model_name: Name | None = None
    prompt: Prompt
    scores: Annotated[tuple[bool, ...], Parsed, Field(min_length=2)]
    sampled_conflict_pairs: Annotated[tuple[tuple[Count, Count], ...], Parsed] | None = None


def _ppe_correctness(row: PPECorrectness, raw: Raw) -> Item | str:
    n = len(row.scores)
    texts = [raw.values.get(f"response_{i}") for i in range(1, n + 1)]
    if not all(isinstance(text, str) for text in texts) or raw.values.get(f"response_{n + 1}") is not None:
        raise ValueError(f"{n} scores need as many texts, response_1 to response_{n}")
    pairs = row.sampled_conflict_pairs
    if any(i >= n for pair in pairs or () for i in pair):
        raise ValueError("sampled_conflict_pairs has the number of a response that does not exist")
    if len(set(row.scores)) == 1:
        return "all responses are correct, or all are wrong"
    order = sorted(range(n), key=lambda i: not row.scores[i])
    columns = {}
    if pairs is not None:
        place = {old: new for new, old in enumerate(order)}
        # Pairs of two correct or two wrong responses are not in conflict.
        real = [(i, j) for i, j in pairs if row.scores[i] != row.scores[j]]
        columns["sampled_conflict_pairs"] = json.dumps([sorted((place[i], place[j])) for i, j in real])
    name = row.question_id if row.model_name is None else f"{row.question_id}/{row.model_name}"
    responses = [str(texts[i]) for i in order]
    return _answered(name, row.prompt, responses, sum(row.scores), columns=columns)


Strength = Annotated[int, Field(ge=-3, le=3)]


class Annotator(Part):
    """A person's answer in HelpSteer3."""

    score: Strength


class HelpSteer3(Row):
    """Two responses, compared from -3 (the first is much better) to 3; 0 is a tie.

    The column `individual_preference` keeps the strengths, such as `-2 -1 0`. A row without annotators has
    one vote, its overall preference.
    """

    category: Name
    context: Question
    response1: Text
    response2: Text
    overall_preference: Strength
    individual_preference: Annotated[tuple[Annotator, ...], Parsed] = ()


def _helpsteer3(row: HelpSteer3, _: Raw) -> Item:
    strengths = [annotator.score for annotator in row.individual_preference]
    counted = strengths or [row.overall_preference]
    votes = (sum(value < 0 for value in counted), sum(value > 0 for value in counted))
    columns = {"individual_preference": " ".join(map(str, strengths))}
    return _voted("", row.context, (row.response1, row.response2), votes, counted.count(0), columns=columns)


class Annotation(Part):
    """A person's answer in MultiPref."""

    overall_pref: Literal[
        "A-is-clearly-better", "A-is-slightly-better", "Tie", "B-is-slightly-better", "B-is-clearly-better"
    ]


Annotations = Annotated[tuple[Annotation, ...], Parsed]


class MultiPref(Row):
    """Two responses, compared by normal and expert annotators; each has one vote."""

    comparison_id: Name
    text: Prompt
    completion_a: Text
    completion_b: Text
    normal_worker_annotations: Annotations
    expert_worker_annotations: Annotations


def _multipref(row: MultiPref, _: Raw) -> Item | str:
    given = [one.overall_pref for one in row.normal_worker_annotations + row.expert_worker_annotations]
    if not given:
        return "nobody annotated the comparison"
    sides = [answer[0] for answer in given]
    votes, columns = (sides.count("A"), sides.count("B")), {"overall_pref": " ".join(given)}
    responses = (row.completion_a, row.completion_b)
    return _voted(row.comparison_id, row.text, responses, votes, sides.count("T"), columns=columns)


class MTBench(Row):
    """One row per vote on two conversations; the votes on each question, turn and pair are collected.

    Comparisons whose conversations differ before the last response (most second turns) have no common prompt
    and are left out.
    """

    question_id: Count
    model_a: Name
    model_b: Name
    choice: str
    conversation_a: Chat
    conversation_b: Chat
    turn: Annotated[int, Field(ge=1)]


def _mt_bench_key(row: MTBench) -> tuple[str, ...]:
    return (str(row.question_id), str(row.turn), *sorted((row.model_a, row.model_b)))


def _mt_bench(rows: list[MTBench], raw: Raw) -> Item | str:
    row, end = rows[0], 2 * rows[0].turn
    one, other = _mt_bench_key(row)[2:]
    talks = {row.model_a: row.conversation_a[:end], row.model_b: row.conversation_b[:end]}
    first, second = talks[one], talks[other]
    if any(len(talk) < end or talk[-1]["role"] != "assistant" for talk in (first, second)):
        raise ValueError(f"the conversations have no response of the assistant in turn {row.turn}")
    if first[:-1] != second[:-1]:
        return _DIFFER
    meanings = [_meaning(each.choice, raw) for each in rows]
    sides = [{"first": each.model_a, "second": each.model_b} for each in rows]
    winners = [side.get(meaning) for side, meaning in zip(sides, meanings, strict=True)]
    decade = (row.question_id - 81) // 10  # questions 81 to 160, ten per category
    known = raw.entry.categories
    return _voted(
        "/".join(_mt_bench_key(row)),
        first[:-1],
        (first[-1]["content"], second[-1]["content"]),
        (winners.count(one), winners.count(other)),
        winners.count(None),
        category=known[decade] if 0 <= decade < len(known) else "other",
        columns={"turn": str(row.turn), "model_a": one, "model_b": other},
    )


Turns = Annotated[list[Any], Parsed, Field(min_length=1)]


class Arena55k(Row):
    """A battle whose prompts and responses are lists of turns, written as JSON.

    Battles of several turns have no common prompt and are left out. So are broken texts.
    """

    id: Name
    prompt: Turns
    response_a: Turns
    response_b: Turns
    winner_model_a: Count
    winner_model_b: Count
    winner_tie: Count


def _arena_55k(row: Arena55k, _: Raw) -> Item | str:
    won = (row.winner_model_a, row.winner_model_b, row.winner_tie)
    if sum(won) != 1:
        raise ValueError("one of winner_model_a, winner_model_b and winner_tie must be 1, the others 0")
    if max(len(row.prompt), len(row.response_a), len(row.response_b)) > 1:
        return "the battle has several turns"
    texts = (row.prompt[0], row.response_a[0], row.response_b[0])
    if not all(isinstance(text, str) and not LONE_SURROGATE.search(text) for text in texts):
        return "a message has no text, or broken characters"
    return _voted(row.id, texts[0], texts[1:], won[:2], won[2])


class Completion(Part):
    """A rated response of UltraFeedback."""

    response: Text
    rating: Annotated[float, Field(allow_inf_nan=False)] = Field(
        validation_alias=AliasChoices("overall_score", "rating", "score")
    )


class UltraFeedback(Row):
    """Responses with ratings; those with the best rating are the correct ones.

    The column `ratings` keeps the ratings, in the order of the responses.
    """

    id: Name = ""
    instruction: Prompt
    completions: Annotated[tuple[Completion, ...], Parsed]


def _ultrafeedback(row: UltraFeedback, _: Raw) -> Item | str:
    ranked = sorted(row.completions, key=lambda completion: -completion.rating)
    ratings = [completion.rating for completion in ranked]
    if len(ratings) < 2:
        return "fewer than two responses"
    if ratings[0] == ratings[-1]:
        return "all responses have the same rating"
    columns = {"ratings": " ".join(f"{rating:g}" for rating in ratings)}
    texts = [completion.response for completion in ranked]
    return _answered(row.id, row.instruction, texts, ratings.count(ratings[0]), columns=columns)


class TRL(Row):
    """Pairs. Without `prompt`, the prompt is the common beginning of the two conversations or texts."""

    id: Name = ""
    prompt: Prompt | None = None
    chosen: Said
    rejected: Said


def _trl(row: TRL, _: Raw) -> Item | str:
    chosen, rejected = row.chosen, row.rejected
    if chosen == rejected:
        return "both responses are the same"
    if isinstance(chosen, str) and isinstance(rejected, str):
        if row.prompt is not None:
            return _answered(row.id, row.prompt, (chosen, rejected))
        if not (_TURN.match(chosen) and _TURN.match(rejected)):
            return _answered(row.id, *_common_beginning(chosen, rejected))
        chosen, rejected = _dialogue(chosen), _dialogue(rejected)
    if isinstance(chosen, str) or isinstance(rejected, str):
        raise ValueError("'chosen' and 'rejected' must both be texts, or both chat messages")
    responses = chosen[-1]["content"], rejected[-1]["content"]
    if row.prompt is not None and len(chosen) == len(rejected) == 1:
        return _answered(row.id, row.prompt, responses)
    if chosen[:-1] != rejected[:-1]:
        return _DIFFER
    if len(chosen) < 2:
        raise ValueError("no message before the response")
    return _answered(row.id, chosen[:-1], responses)


_TURN = re.compile(r"\n\n(Human|Assistant):")


def _common_beginning(chosen: str, rejected: str) -> tuple[str, tuple[str, str]]:
    """Split two texts as TRL does: the common beginning, without a space at its end, is the prompt."""
    shorter = min(len(chosen), len(rejected))
    common = next((i for i in range(shorter) if chosen[i] != rejected[i]), shorter)
    if common and chosen[common - 1] == " ":
        common -= 1
    if not common:
        raise ValueError("no prompt, and 'chosen' and 'rejected' have no common beginning")
    return chosen[:common], (chosen[common:], rejected[common:])


def _dialogue(text: str) -> tuple[Message, ...]:
    """Read a text of turns. Each turn begins with an empty line and `Human:` or `Assistant:`."""
    roles: dict[str, Literal["user", "assistant"]] = {"Human": "user", "Assistant": "assistant"}
    parts = _TURN.split(text)[1:]
    said = tuple(
        Message(role=roles[who], content=text.strip())
        for who, text in zip(parts[::2], parts[1::2], strict=True)
    )
    return _ends_with_answer(said)


READERS: dict[str, Format] = {
    "answers": Format(Answers, _answers),
    "votes": Format(Votes, _votes),
    "own": Format(Answers, _answers),  # or `votes`, if a row has them
    "choices": Format(Choices, _choices),
    "conversations": Format(Conversations, _conversations),
    "rm-bench": Format(RMBench, _answers),
    "rmb": Format(RMB, _rmb),
    "rewardmath": Format(RewardMath, _rewardmath, key=lambda row: row.problem),
    "ppe-correctness": Format(PPECorrectness, _ppe_correctness),
    "helpsteer3": Format(HelpSteer3, _helpsteer3),
    "multipref": Format(MultiPref, _multipref),
    "mt-bench": Format(MTBench, _mt_bench, key=_mt_bench_key),
    "arena-55k": Format(Arena55k, _arena_55k),
    "ultrafeedback": Format(UltraFeedback, _ultrafeedback),
    "trl": Format(TRL, _trl),
}
"""The formats, by the names that YAML files use."""
