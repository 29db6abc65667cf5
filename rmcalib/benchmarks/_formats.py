"""How rows become items: one class per format, whose fields are the columns and their types.

Rows are checked by pydantic, so `item` sees only valid values. `Answers` and `Choices` serve several
benchmarks, whose YAML files say what their columns are called.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    Strict,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from rmcalib._util.texts import LONE_SURROGATE, LONGEST_NAME, problems_of
from rmcalib.benchmarks._entries import BenchmarkEntry
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


def _whole(text: str) -> str:
    if not text.isascii() and LONE_SURROGATE.search(text):
        raise ValueError("a lone surrogate (\\ud800 to \\udfff): fix the text")
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


def _text_or_chat(value: Any) -> str | None:
    return "<text>" if isinstance(value, str) else "<chat>" if isinstance(value, (list, tuple)) else None


_EITHER = Discriminator(
    _text_or_chat,
    custom_error_type="text_or_chat",
    custom_error_message="must be a text or a list of chat messages",
)


Text = Annotated[str, Strict(), AfterValidator(_whole)]
Name = Annotated[str, BeforeValidator(_name), AfterValidator(_whole)]
Count = Annotated[int, Field(ge=0)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Texts = Annotated[
    tuple[Text, ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else v), Field(min_length=1)
]


class Message(TypedDict):
    """A chat message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[Text, BeforeValidator(_joined_parts)]


Chat = Annotated[tuple[Message, ...], BeforeValidator(_from_json), Field(min_length=1)]
Question = Annotated[Chat, AfterValidator(_before_the_answer)]
Talk = Annotated[Chat, AfterValidator(_ends_with_answer)]
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


# Rows


@dataclass(frozen=True)
class Raw:
    """A row as it is in the file: its place for error messages, its number (from 0), and whose it is."""

    where: str
    number: int
    values: Mapping[str, Any]
    entry: BenchmarkEntry

    def kept(self, names: Iterable[str]) -> dict[str, str]:
        """Return columns as texts, without those that hold no text, number or truth value."""
        found = {}
        for name in names:
            value = self.values.get(name)
            if isinstance(value, bool):
                found[name] = str(value).lower()
            elif isinstance(value, (str, int, float)) and value != "":
                found[name] = str(value)
        return found


class Row(Part):
    """A row that has been checked; `item` makes an item of it."""

    category: Name | None = None
    _raw: Raw = PrivateAttr()

    @classmethod
    def read(cls, raw: Raw) -> Self:
        """Check a row. The error names all its problems."""
        entry, values = raw.entry, {}
        for name in cls.model_fields:
            given = (raw.values.get(column) for column in column_names(entry, name))
            default = entry.category if name == "category" else None
            values[name] = next((value for value in given if value is not None), default)
        try:
            row = cls.model_validate(cls.gathered(raw.values, values), context=entry)
        except ValidationError as error:
            names = {name: column_names(entry, name)[0] for name in cls.model_fields}
            raise ValueError(f"{raw.where}: {'; '.join(problems_of(error, names=names))}") from None
        row._raw = raw
        return row

    @classmethod
    def gathered(cls, row: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG003
        """Return the values of the fields; a format may gather some from several columns of the row."""
        return values

    @classmethod
    def items(cls, rows: Iterable[Self]) -> Iterator[Item | str]:
        """Yield an item per prompt, or the reason why it is left out. Here, every row is a prompt."""
        for row in rows:
            try:
                yield row.item()
            except ValueError as error:
                raise row.error(str(error)) from None

    def item(self) -> Item | str:
        """Return the item, or the reason why the row is left out."""
        raise NotImplementedError

    def error(self, problem: str) -> ValueError:
        """Return an error that names the place of the row."""
        return ValueError(f"{self._raw.where}: {problem}")

    @property
    def number(self) -> str:
        """The number of the row, which is the id of rows without one."""
        return str(self._raw.number)

    def answered(
        self,
        name: str,
        prompt: Any,
        responses: Sequence[str],
        n_correct: int = 1,
        *,
        votes: tuple[int, ...] | None = None,
        ties: int = 0,
        columns: Mapping[str, str] | None = None,
    ) -> Item:
        """Return an item with correct responses first; `columns` are added to those that are kept."""
        kept = self._columns() | dict(columns or {})
        category, cluster = self._category(), self._cluster()
        return Item(name, category, prompt, tuple(responses), n_correct, votes, ties, kept, cluster)

    def voted(
        self,
        name: str,
        prompt: Any,
        responses: Sequence[str],
        votes: Sequence[int],
        ties: int = 0,
        columns: Mapping[str, str] | None = None,
    ) -> Item:
        """Return an item that people voted on; responses are sorted by their votes."""
        order = sorted(range(len(votes)), key=lambda i: -votes[i])  # stable: equal ones keep their order
        ranked, texts = tuple(votes[i] for i in order), [responses[i] for i in order]
        best = int(ranked[0] > ranked[1])
        return self.answered(name, prompt, texts, best, votes=ranked, ties=ties, columns=columns)

    def _category(self) -> str:
        entry = self._raw.entry
        name, known = self.category or "all", entry.categories
        return name if name in known else next((one for one in known if name.startswith(one)), name)

    def _columns(self) -> dict[str, str]:
        raw = self._raw
        if raw.entry.keep is not None:
            return raw.kept(raw.entry.keep)
        used = {name for field in type(self).model_fields for name in column_names(raw.entry, field)}
        return raw.kept(name for name in raw.values if name not in used and name not in raw.entry.drop)

    def _cluster(self) -> str | None:
        values, entry = self._raw.values, self._raw.entry
        if entry.cluster is None or values.get(entry.cluster) is None:
            return None
        name = _name(values[entry.cluster])
        # Several data sets may use the same ids for different questions.
        several = any(source.category for source in entry.hub) and values.get("subset")
        return f"{values['subset']}/{name}" if several else name


def column_names(entry: BenchmarkEntry, field: str) -> Sequence[str]:
    """Return the columns that a field is read from; the first that has a value counts."""
    found = entry.columns.get(field, "subset" if field == "category" else field)
    return (found,) if isinstance(found, str) else found


def needed_columns(entry: BenchmarkEntry) -> tuple[str, ...]:
    """Return the columns that every row of a benchmark must have."""
    if not isinstance(entry.reader, str):
        return ()
    fields = READERS[entry.reader].model_fields.items()
    given = "category" if entry.category is not None else None
    needed = [name for name, field in fields if field.is_required() and name != given]
    needed.sort(key="category".__eq__)  # as the last one
    return tuple(column_names(entry, name)[0] for name in needed)


# Formats of several benchmarks


class Answers(Row):
    """Correct and wrong responses, as lists or as single texts."""

    id: Name
    prompt: Prompt
    chosen: Texts
    rejected: Texts
    category: Name

    def item(self) -> Item:
        return self.answered(self.id, self.prompt, self.chosen + self.rejected, len(self.chosen))


class Choices(Row):
    """Two responses, and which of them is correct or preferred by a person."""

    id: Name
    prompt: Prompt
    first: Text
    second: Text
    choice: str

    @field_validator("choice")
    @classmethod
    def _meaning(cls, value: str, info: ValidationInfo) -> str:
        assert isinstance(info.context, BenchmarkEntry)
        if value not in info.context.choices:
            raise ValueError(f"must be one of {', '.join(info.context.choices)}")
        return info.context.choices[value]

    def item(self) -> Item | str:
        votes = (int(self.choice == "first"), int(self.choice == "second"))
        responses = (self.first, self.second)
        if self._raw.entry.labels == "votes":
            return self.voted(self.id, self.prompt, responses, votes, ties=1 - sum(votes))
        if self.choice == "neither":
            return "neither response is better"
        return self.answered(self.id, self.prompt, responses if votes[0] else responses[::-1])


class RewardBench2(Answers):
    """The columns tell RewardBench 2 from files of our own."""

    num_correct: Count
    total_completions: Count


class Own(Answers):
    """rmcalib's own schema: correct and wrong responses, or responses with people's votes."""

    @classmethod
    def read(cls, raw: Raw) -> Any:
        return Voted.read(raw) if raw.values.get("votes") is not None else super().read(raw)


class Voted(Row):
    """Responses with the number of people who preferred each."""

    id: Name
    prompt: Prompt
    responses: Annotated[tuple[Text, ...], Field(min_length=2)]
    votes: tuple[Count, ...]
    ties: Count = 0
    category: Name

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        if len(self.votes) != len(self.responses):
            raise ValueError(f"{len(self.responses)} responses, but {len(self.votes)} votes; give one each")
        if not sum(self.votes) + self.ties:
            raise ValueError("nobody voted")
        return self

    def item(self) -> Item:
        return self.voted(self.id, self.prompt, self.responses, self.votes, self.ties)


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
    _sets: ClassVar = ("BoN_set", "Pairwise_set")

    def _category(self) -> str:
        return self._parts()[0] if self._parts() else super()._category()

    def _parts(self) -> list[str]:
        parts = self.category_path.removesuffix(".json").split("/")
        return [part for part in parts if part not in self._sets]

    def item(self) -> Item:
        responses = [self.best.answer, *(other.answer for other in self.others)]
        columns = {"task": "/".join(self._parts()[1:])}
        language = _from_json(self._raw.values["conversation_input"])[-1].get("language")
        if isinstance(language, str):
            columns["language"] = language
        return self.answered(self.id, self.conversation_input, responses, columns=columns)


class RewardMath(Row):
    """One row per solution of a problem, in any order; the one by a person is correct."""

    id: Name | None = None
    problem: Text
    solution_reference: Name
    eval_solution: Texts
    _correct: ClassVar = "human_to_GPT-4"

    @classmethod
    def items(cls, rows: Iterable[Self]) -> Iterator[Item | str]:
        solutions: dict[str, list[Self]] = {}
        for row in rows:
            solutions.setdefault(row.problem, []).append(row)
        for number, (problem, own) in enumerate(solutions.items()):
            ordered = sorted(own, key=lambda row: row.solution_reference != cls._correct)
            correct = sum(row.solution_reference == cls._correct for row in own)
            if correct != 1 or len(own) < 2:
                raise own[0].error(
                    f"the problem has {len(own)} solutions, {correct} of them by {cls._correct} (the correct "
                    "one); it needs one correct and at least one other"
                )
            texts = ["\n".join(row.eval_solution) for row in ordered]
            yield own[0].answered(own[0].id or str(number), problem, texts)


class PPECorrectness(Row):
    """Many responses of one model, each correct or not, in the columns `response_1`, `response_2`, ..."""

    question_id: Name
    model_name: Name | None = None
    prompt: Prompt
    responses: Annotated[tuple[Text, ...], Field(min_length=2)]
    scores: Annotated[tuple[bool, ...], BeforeValidator(_from_json)]
    sampled_conflict_pairs: Annotated[tuple[tuple[Count, Count], ...], BeforeValidator(_from_json)] | None = (
        None
    )

    @classmethod
    def gathered(cls, row: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
        count = sum(name.startswith("response_") for name in row)
        return values | {"responses": [row.get(f"response_{i}") for i in range(1, count + 1)]}

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        if len(self.scores) != len(self.responses):
            raise ValueError(f"{len(self.scores)} scores for {len(self.responses)} responses")
        if any(i >= len(self.scores) for pair in self.sampled_conflict_pairs or () for i in pair):
            raise ValueError("sampled_conflict_pairs has the number of a response that does not exist")
        return self

    def item(self) -> Item | str:
        if len(set(self.scores)) == 1:
            return "all responses are correct, or all are wrong"
        order = sorted(range(len(self.scores)), key=lambda i: not self.scores[i])
        columns = {}
        if self.sampled_conflict_pairs is not None:
            place = {old: new for new, old in enumerate(order)}
            # Pairs of two correct or two wrong responses are not in conflict.
            pairs = [(i, j) for i, j in self.sampled_conflict_pairs if self.scores[i] != self.scores[j]]
            columns["sampled_conflict_pairs"] = json.dumps([sorted((place[i], place[j])) for i, j in pairs])
        name = self.question_id if self.model_name is None else f"{self.question_id}/{self.model_name}"
        texts = [self.responses[i] for i in order]
        return self.answered(name, self.prompt, texts, sum(self.scores), columns=columns)


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
    individual_preference: Annotated[tuple[Annotator, ...], BeforeValidator(_from_json)] = ()

    def item(self) -> Item:
        strengths = [annotator.score for annotator in self.individual_preference]
        counted = strengths or [self.overall_preference]
        return self.voted(
            self.number,
            self.context,
            (self.response1, self.response2),
            (sum(value < 0 for value in counted), sum(value > 0 for value in counted)),
            counted.count(0),
            {"individual_preference": " ".join(map(str, strengths))},
        )


class Annotation(Part):
    """A person's answer in MultiPref."""

    overall_pref: Literal[
        "A-is-clearly-better", "A-is-slightly-better", "Tie", "B-is-slightly-better", "B-is-clearly-better"
    ]


Annotations = Annotated[tuple[Annotation, ...], BeforeValidator(_from_json)]


class MultiPref(Row):
    """Two responses, compared by normal and expert annotators; each has one vote."""

    comparison_id: Name
    text: Prompt
    completion_a: Text
    completion_b: Text
    normal_worker_annotations: Annotations
    expert_worker_annotations: Annotations

    def item(self) -> Item | str:
        given = [one.overall_pref for one in self.normal_worker_annotations + self.expert_worker_annotations]
        if not given:
            return "nobody annotated the comparison"
        sides = [answer[0] for answer in given]
        return self.voted(
            self.comparison_id,
            self.text,
            (self.completion_a, self.completion_b),
            (sides.count("A"), sides.count("B")),
            sides.count("T"),
            {"overall_pref": " ".join(given)},
        )


_DIFFER = "the two conversations differ before the last response"


class MTBench(Row):
    """One row per vote on two conversations; the votes on each question, turn and pair are collected.

    Comparisons whose conversations differ before the last response (most second turns) have no common prompt
    and are left out.
    """

    question_id: Count
    model_a: Name
    model_b: Name
    winner: Literal["model_a", "model_b", "tie", "tie (inconsistent)"]
    conversation_a: Chat
    conversation_b: Chat
    turn: Annotated[int, Field(ge=1)]
    _first_question: ClassVar = 81  # ten per category

    @model_validator(mode="after")
    def _has_turn(self) -> Self:
        for talk in (self.conversation_a, self.conversation_b):
            if len(talk) < 2 * self.turn or talk[2 * self.turn - 1]["role"] != "assistant":
                raise ValueError(f"the conversations have no response of the assistant in turn {self.turn}")
        return self

    @classmethod
    def items(cls, rows: Iterable[Self]) -> Iterator[Item | str]:
        compared: dict[tuple[str, ...], list[Self]] = {}
        for row in rows:
            key = (str(row.question_id), str(row.turn), *sorted((row.model_a, row.model_b)))
            compared.setdefault(key, []).append(row)
        for key, own in compared.items():
            first, second = own[0]._sides()
            if first[:-1] != second[:-1]:
                yield _DIFFER
                continue
            winners = [row._winner() for row in own]
            yield own[0].voted(
                "/".join(key),
                first[:-1],
                (first[-1]["content"], second[-1]["content"]),
                (winners.count(key[2]), winners.count(key[3])),
                winners.count(None),
                {"turn": key[1], "model_a": key[2], "model_b": key[3]},
            )

    def _sides(self) -> list[tuple[Message, ...]]:
        """Return the two conversations up to the turn, in the order of the models' names."""
        talks = [self.conversation_a[: 2 * self.turn], self.conversation_b[: 2 * self.turn]]
        return talks[::-1] if self.model_a > self.model_b else talks

    def _winner(self) -> str | None:
        return {"model_a": self.model_a, "model_b": self.model_b}.get(self.winner)

    def _category(self) -> str:
        number = (self.question_id - self._first_question) // 10
        return (
            self._raw.entry.categories[number] if 0 <= number < len(self._raw.entry.categories) else "other"
        )


class Arena55k(Row):
    """A battle whose prompts and responses are lists of turns, written as JSON.

    Battles of several turns have no common prompt and are left out. So are broken texts.
    """

    id: Name
    prompt: Annotated[list[Any], BeforeValidator(_from_json), Field(min_length=1)]
    response_a: Annotated[list[Any], BeforeValidator(_from_json)]
    response_b: Annotated[list[Any], BeforeValidator(_from_json)]
    winner_model_a: Literal[0, 1, "0", "1"]
    winner_model_b: Literal[0, 1, "0", "1"]
    winner_tie: Literal[0, 1, "0", "1"]

    @model_validator(mode="after")
    def _one_winner(self) -> Self:
        if len(self.prompt) != len(self.response_a) or len(self.prompt) != len(self.response_b):
            raise ValueError("prompt, response_a and response_b must have the same number of turns")
        if sum(self._won()) != 1:
            raise ValueError("one of winner_model_a, winner_model_b and winner_tie must be 1, the others 0")
        return self

    def _won(self) -> tuple[int, int, int]:
        return int(self.winner_model_a), int(self.winner_model_b), int(self.winner_tie)

    def item(self) -> Item | str:
        if len(self.prompt) > 1:
            return "the battle has several turns"
        texts = (self.prompt[0], self.response_a[0], self.response_b[0])
        if not all(isinstance(text, str) and not LONE_SURROGATE.search(text) for text in texts):
            return "a message has no text, or broken characters"
        first, second, ties = self._won()
        return self.voted(self.id, texts[0], texts[1:], (first, second), ties)


class Arena140k(Row):
    """A battle; conversations that differ before the last response, and images, are left out."""

    id: Name
    winner: Literal["model_a", "model_b", "tie", "both_bad"]
    conversation_a: Talk
    conversation_b: Talk

    def item(self) -> Item | str:
        a, b = self.conversation_a, self.conversation_b
        if any(_has_image(self._raw.values[name]) for name in ("conversation_a", "conversation_b")):
            return "a message has an image"
        if a[:-1] != b[:-1] or len(a) < 2:
            return _DIFFER
        votes = (int(self.winner == "model_a"), int(self.winner == "model_b"))
        responses = (a[-1]["content"], b[-1]["content"])
        return self.voted(self.id, a[:-1], responses, votes, 1 - sum(votes))


def _has_image(talk: Any) -> bool:
    contents = [message.get("content") for message in _from_json(talk)]
    parts = [part for content in contents if isinstance(content, (list, tuple)) for part in content]
    return any(isinstance(part, Mapping) and part.get("image") for part in parts)


class Completion(Part):
    """A rated response of UltraFeedback."""

    response: Text
    rating: Number = Field(validation_alias=AliasChoices("overall_score", "rating", "score"))


class UltraFeedback(Row):
    """Responses with ratings; those with the best rating are the correct ones.

    The column `ratings` keeps the ratings, in the order of the responses.
    """

    id: Name | None = None
    instruction: Prompt
    completions: Annotated[tuple[Completion, ...], BeforeValidator(_from_json)]

    def item(self) -> Item | str:
        ranked = sorted(self.completions, key=lambda completion: -completion.rating)
        ratings = [completion.rating for completion in ranked]
        if len(ratings) < 2:
            return "fewer than two responses"
        if ratings[0] == ratings[-1]:
            return "all responses have the same rating"
        texts = [completion.response for completion in ranked]
        shown = " ".join(f"{rating:g}" for rating in ratings)
        best = ratings.count(ratings[0])
        columns = {"ratings": shown}
        return self.answered(self.id or self.number, self.instruction, texts, best, columns=columns)


_TURN = re.compile(r"\n\n(Human|Assistant):")


class TRL(Row):
    """Pairs. Without `prompt`, the prompt is the common beginning of the two conversations or texts."""

    id: Name | None = None
    prompt: Prompt | None = None
    chosen: Said
    rejected: Said

    def item(self) -> Item | str:
        found = self._split()
        if isinstance(found, str):
            return found
        prompt, chosen, rejected = found
        if chosen == rejected:
            return "both responses are the same"
        return self.answered(self.id or self.number, prompt, (chosen, rejected))

    def _split(self) -> tuple[Any, str, str] | str:
        chosen, rejected = self.chosen, self.rejected
        if isinstance(chosen, str) and isinstance(rejected, str):
            if self.prompt is not None:
                return self.prompt, chosen, rejected
            if not (_TURN.match(chosen) and _TURN.match(rejected)):
                return _common_beginning(chosen, rejected)
            chosen, rejected = _dialogue(chosen), _dialogue(rejected)
        if isinstance(chosen, str) or isinstance(rejected, str):
            raise ValueError("'chosen' and 'rejected' must both be texts, or both chat messages")
        responses = chosen[-1]["content"], rejected[-1]["content"]
        if self.prompt is not None and len(chosen) == len(rejected) == 1:
            return self.prompt, *responses
        if chosen[:-1] != rejected[:-1]:
            return _DIFFER
        if len(chosen) < 2:
            raise ValueError("no message before the response")
        return chosen[:-1], *responses


def _common_beginning(chosen: str, rejected: str) -> tuple[Any, str, str] | str:
    """Split two texts as TRL does: the common beginning, without a space at its end, is the prompt."""
    if chosen == rejected:
        return "both responses are the same"
    shorter = min(len(chosen), len(rejected))
    common = next((i for i in range(shorter) if chosen[i] != rejected[i]), shorter)
    if common and chosen[common - 1] == " ":
        common -= 1
    if not common:
        raise ValueError("no prompt, and 'chosen' and 'rejected' have no common beginning")
    return chosen[:common], chosen[common:], rejected[common:]


def _dialogue(text: str) -> tuple[Message, ...]:
    """Read a text of turns. Each turn begins with an empty line and `Human:` or `Assistant:`."""
    roles: dict[str, Literal["user", "assistant"]] = {"Human": "user", "Assistant": "assistant"}
    parts = _TURN.split(text)[1:]
    said = tuple(
        Message(role=roles[who], content=text.strip())
        for who, text in zip(parts[::2], parts[1::2], strict=True)
    )
    return _ends_with_answer(said)


READERS: dict[str, type[Row]] = {
    "answers": Answers,
    "choices": Choices,
    "own": Own,
    "reward-bench-2": RewardBench2,
    "rm-bench": RMBench,
    "rmb": RMB,
    "rewardmath": RewardMath,
    "ppe-correctness": PPECorrectness,
    "helpsteer3": HelpSteer3,
    "multipref": MultiPref,
    "mt-bench": MTBench,
    "arena-55k": Arena55k,
    "arena-140k": Arena140k,
    "ultrafeedback": UltraFeedback,
    "trl": TRL,
}
"""The formats, by the names that YAML files use."""
