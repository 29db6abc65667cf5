"""How rows become items: one function per format.

`Row.get` reads a column and checks its type by pydantic, so functions see only valid values. `answers` and
`choices` serve several benchmarks, whose YAML files say what their columns are called.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Strict, ValidationError
from typing_extensions import TypedDict

from rmcalib._util.display import clean_line
from rmcalib._util.texts import LONE_SURROGATE, LONGEST_NAME, adapter, problems_of
from rmcalib.benchmarks._entries import BenchmarkEntry
from rmcalib.benchmarks._items import Item

# Types of values


def _named(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise ValueError("must not be blank, nor contain NUL")
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


def _listed(value: Any) -> Any:
    value = _from_json(value)
    return value if isinstance(value, (list, tuple)) else [value]


Text = Annotated[str, Strict(), Field(min_length=0)]  # with a limit, pydantic refuses lone surrogates
Name = Annotated[
    str, Field(coerce_numbers_to_str=True, max_length=LONGEST_NAME), AfterValidator(_named)
]  # an id or a category
Count = Annotated[int, Field(ge=0)]
FromJson = BeforeValidator(_from_json)


class Message(TypedDict):
    """A chat message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[Text, BeforeValidator(_joined_parts)]


class Answer(TypedDict):
    """A response of RMB."""

    answer: Text


class Annotator(TypedDict):
    """A person's answer in HelpSteer3: from -3 (the first is much better) to 3."""

    score: Annotated[int, Field(ge=-3, le=3)]


class Annotation(TypedDict):
    """A person's answer in MultiPref."""

    overall_pref: Literal[
        "A-is-clearly-better", "A-is-slightly-better", "Tie", "B-is-slightly-better", "B-is-clearly-better"
    ]


Messages = tuple[Message, ...]
Chat = Annotated[Messages, FromJson, Field(min_length=1)]
Talk = Annotated[Chat, AfterValidator(_ends_with_answer)]
Question = Annotated[Chat, AfterValidator(_before_the_answer)]

Texts = Annotated[
    tuple[Text, ...], BeforeValidator(lambda v: [v] if isinstance(v, str) else v), Field(min_length=1)
]
Counts = Annotated[tuple[Count, ...], FromJson]
Answers = Annotated[tuple[Answer, ...], BeforeValidator(_listed), Field(min_length=1)]
Annotators = Annotated[tuple[Annotator, ...], FromJson]
Annotations = Annotated[tuple[Annotation, ...], FromJson]
Truths = Annotated[tuple[bool, ...], FromJson]
Pairs = Annotated[tuple[tuple[Count, Count], ...], FromJson]
Turns = Annotated[list[Any], FromJson, Field(min_length=1)]
Objects = Annotated[list[dict[str, Any]], FromJson]
Rating = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True)
class Row:
    """A row of a file: its place for error messages, its number (from 0), and whose it is."""

    where: str
    number: int
    values: Mapping[str, Any]
    entry: BenchmarkEntry
    read: set[str] = field(default_factory=set)

    def get(self, kind: Any, name: str, default: Any = None) -> Any:
        """Return the value of a field, which may have other columns in this benchmark; an error names it."""
        columns = self.entry.columns.get(name, "subset" if name == "category" else name)
        columns = (columns,) if isinstance(columns, str) else columns
        self.read.update(columns)
        value = next((self.values[column] for column in columns if self.values.get(column) is not None), None)
        if value is None:
            if default is None:
                have = ", ".join(map(clean_line, self.values))
                raise self.error(
                    f"no value for {columns[0]} (has {have}); rename the columns, or name them in a YAML file, "
                    'format="mine.yaml": docs/benchmarks.md'
                )
            return default
        return self.checked(kind, value, columns[0])

    def checked(self, kind: Any, value: Any, place: str) -> Any:
        """Return a value of a type; an error names its place."""
        try:
            return adapter(kind).validate_python(value)
        except ValidationError as error:
            raise self.error("; ".join(problems_of(error, place=place))) from None

    def error(self, problem: str) -> ValueError:
        """Return an error that names the place of the row."""
        return ValueError(f"{self.where}: {problem}")

    def named(self) -> str:
        """Return the id of the row, or its number if it has none."""
        return str(self.get(Name, "id", str(self.number)))

    def prompt(self, name: str = "prompt", kind: Any = Question) -> Any:
        """Return a text, or chat messages."""
        value = self.get(Any, name)
        if not isinstance(value, (str, list, tuple)):
            raise self.error(f"{name} is not a text or a list of chat messages")
        return self.get(Text, name) if isinstance(value, str) else self.get(kind, name)

    def choice(self) -> str:
        """Return "first", "second" or "neither"."""
        value, choices = self.get(Name, "choice"), self.entry.choices
        if value not in choices:
            raise self.error(
                f"{self.entry.columns.get('choice')} is {value!r}: expected {' or '.join(choices)}"
            )
        return choices[value]

    def item(
        self,
        name: str,
        prompt: Any,
        responses: Sequence[str],
        n_correct: int = 1,
        *,
        votes: tuple[int, ...] | None = None,
        ties: int = 0,
        columns: Mapping[str, str] | None = None,
        category: str | None = None,
    ) -> Item:
        """Return an item with correct responses first; `columns` are added to those that are kept."""
        chosen = category or self._category()
        kept = self._columns() | dict(columns or {})
        return Item(name, chosen, prompt, tuple(responses), n_correct, votes, ties, kept, self._cluster())

    def voted(
        self, name: str, prompt: Any, responses: Sequence[str], votes: Sequence[int], ties: int, **more: Any
    ) -> Item:
        """Return an item that people voted on; responses are sorted by their votes."""
        order = sorted(range(len(votes)), key=lambda i: -votes[i])  # stable: equal ones keep their order
        ranked, texts = tuple(votes[i] for i in order), [responses[i] for i in order]
        return self.item(name, prompt, texts, int(ranked[0] > ranked[1]), votes=ranked, ties=ties, **more)

    def _category(self) -> str:
        categories = self.entry.categories
        name = self.get(Name, "category", self.entry.category or "all")
        return (
            name
            if name in categories
            else next((category for category in categories if name.startswith(category)), name)
        )

    def _columns(self) -> dict[str, str]:
        names: Iterable[str] = self.entry.keep or ()
        if self.entry.keep is None:
            names = (name for name in self.values if name not in self.read and name not in self.entry.drop)
        columns = {}
        for name in names:
            value = self.values.get(name)
            if isinstance(value, bool):
                columns[name] = str(value).lower()
            elif isinstance(value, (str, int, float)) and value != "":
                columns[name] = str(value)
        return columns

    def _cluster(self) -> str | None:
        column = self.entry.cluster
        if column is None or self.values.get(column) is None:
            return None
        name = self.checked(Name, self.values[column], column)
        # Several data sets may use the same ids for different questions.
        several = any(source.category for source in self.entry.hub) and self.values.get("subset")
        return f"{self.values['subset']}/{name}" if several else name


# Formats of several benchmarks


def answers(row: Row) -> Item:
    """Correct and wrong responses, as lists or as single texts."""
    chosen, rejected = row.get(Texts, "chosen"), row.get(Texts, "rejected")
    return row.item(row.named(), row.prompt(), chosen + rejected, len(chosen))


def options(row: Row) -> Item:
    """A list of responses, and the number of the correct one, from 0."""
    responses, correct = list(row.get(Texts, "responses")), row.get(Count, "correct")
    if correct >= len(responses):
        raise row.error(f"the correct response is number {correct} of {len(responses)}, counted from 0")
    return row.item(row.named(), row.prompt(), [responses.pop(correct), *responses])


def choices(row: Row) -> Item | str:
    """Two responses, and which of them is correct or preferred by a person."""
    return _compared(row, row.prompt(), (row.get(Text, "first"), row.get(Text, "second")))


def conversations(row: Row) -> Item | str:
    """Two conversations and which is better; those that differ before the last response are left out, and images."""
    talks = [row.get(Talk, name) for name in ("first", "second")]
    if any(_has_image(row.get(Any, name)) for name in ("first", "second")):
        return "a message has an image"
    if talks[0][:-1] != talks[1][:-1] or len(talks[0]) < 2:
        return _DIFFER
    return _compared(row, talks[0][:-1], [talk[-1]["content"] for talk in talks])


_DIFFER = "the two conversations differ before the last response"


def _has_image(talk: Any) -> bool:
    contents = [message.get("content") for message in _from_json(talk)]
    parts = [part for content in contents if isinstance(content, (list, tuple)) for part in content]
    return any(isinstance(part, Mapping) and part.get("image") for part in parts)


def _compared(row: Row, prompt: Any, responses: Sequence[str]) -> Item | str:
    """Return an item of two responses: a person's vote, or which one is correct."""
    name, choice = row.named(), row.choice()
    votes = (int(choice == "first"), int(choice == "second"))
    if row.entry.labels == "votes":
        return row.voted(name, prompt, responses, votes, 1 - sum(votes))
    if choice == "neither":
        return "neither response is better"
    return row.item(name, prompt, responses if votes[0] else responses[::-1])


def rmcalib(row: Row) -> Item:
    """rmcalib's own schema: correct and wrong responses, or responses with people's votes."""
    if row.values.get("votes") is None:
        return answers(row)
    responses, votes, ties = row.get(Texts, "responses"), row.get(Counts, "votes"), row.get(Count, "ties", 0)
    if len(votes) != len(responses) or len(votes) < 2:
        raise row.error(f"{len(responses)} responses, but {len(votes)} votes; give one each")
    if not sum(votes) + ties:
        raise row.error("there are no votes")
    return row.voted(row.named(), row.prompt(), responses, votes, ties)


# Formats of one benchmark


def rmb(row: Row) -> Item:
    """The best response and the others; for pairs, the other."""
    prompt = row.get(Question, "conversation_input")
    responses = [answer["answer"] for field in ("best", "others") for answer in row.get(Answers, field)]
    path = row.get(Name, "category_path").removesuffix(".json").split("/")
    category, *task = [part for part in path if part not in ("BoN_set", "Pairwise_set")] or ["all"]
    columns = {"task": "/".join(task)}
    language = _from_json(row.values["conversation_input"])[-1].get("language")
    if isinstance(language, str):
        columns["language"] = language
    return row.item(row.named(), prompt, responses, columns=columns, category=category)


def ppe_correctness(row: Row) -> Item | str:
    """Many responses of one model, each correct or not, in the columns `response_1`, `response_2`, ..."""
    names = [f"response_{i}" for i in range(1, 1 + sum(name.startswith("response_") for name in row.values))]
    responses = [row.get(Text, name) for name in names]
    correct = row.get(Truths, "scores")
    if len(correct) != len(responses):
        raise row.error(f"{len(correct)} scores for {len(responses)} responses")
    if len(set(correct)) == 1:
        return "all responses are correct, or all are wrong"
    order = sorted(range(len(correct)), key=lambda i: not correct[i])
    columns = {}
    if row.values.get("sampled_conflict_pairs") is not None:
        place = {old: new for new, old in enumerate(order)}
        pairs = row.get(Pairs, "sampled_conflict_pairs")
        if any(i not in place for pair in pairs for i in pair):
            raise row.error("sampled_conflict_pairs has the number of a response that does not exist")
        # Pairs of two correct or two wrong responses are not in conflict.
        kept = [sorted((place[i], place[j])) for i, j in pairs if correct[i] != correct[j]]
        columns["sampled_conflict_pairs"] = json.dumps(kept)
    model = row.get(Name, "model_name", "")
    name = row.get(Name, "question_id") + (f"/{model}" if model else "")
    texts = [responses[i] for i in order]
    return row.item(name, row.prompt(), texts, sum(correct), columns=columns)


def helpsteer3(row: Row) -> Item:
    """Two responses, compared from -3 (the first is much better) to 3; 0 is a tie.

    The column `individual_preference` keeps the strengths, such as `-2 -1 0`. A row without annotators has
    one vote, its overall preference.
    """
    responses = row.get(Text, "response1"), row.get(Text, "response2")
    overall = row.checked(Annotators, [{"score": row.values.get("overall_preference")}], "overall_preference")
    annotators = row.get(Annotators, "individual_preference", ())
    counted = [annotator["score"] for annotator in annotators or overall]
    votes = (sum(value < 0 for value in counted), sum(value > 0 for value in counted))
    columns = {"individual_preference": " ".join(str(annotator["score"]) for annotator in annotators)}
    prompt = row.get(Question, "context")
    return row.voted(str(row.number), prompt, responses, votes, counted.count(0), columns=columns)


def multipref(row: Row) -> Item | str:
    """Two responses, compared by normal and expert annotators; each has one vote."""
    groups = ("normal_worker_annotations", "expert_worker_annotations")
    given = [annotation["overall_pref"] for group in groups for annotation in row.get(Annotations, group)]
    if not given:
        return "the comparison has no annotations"
    sides = [answer[0] for answer in given]
    responses = row.get(Text, "completion_a"), row.get(Text, "completion_b")
    votes, ties = (sides.count("A"), sides.count("B")), sides.count("T")
    columns = {"overall_pref": " ".join(given)}
    return row.voted(
        row.get(Name, "comparison_id"), row.prompt("text"), responses, votes, ties, columns=columns
    )


def arena_55k(row: Row) -> Item | str:
    """A battle whose prompts and responses are lists of turns, written as JSON.

    Battles of several turns have no common prompt and are left out. So are broken texts.
    """
    turns = [row.get(Turns, name) for name in ("prompt", "response_a", "response_b")]
    if len({len(texts) for texts in turns}) > 1:
        raise row.error("prompt, response_a and response_b must have the same number of turns")
    won = [row.get(Count, f"winner_{side}") for side in ("model_a", "model_b", "tie")]
    if sorted(won) != [0, 0, 1]:
        raise row.error("one of winner_model_a, winner_model_b and winner_tie must be 1, the others 0")
    if len(turns[0]) > 1:
        return "the battle has several turns"
    prompt, *responses = (texts[0] for texts in turns)
    if not all(isinstance(text, str) and not LONE_SURROGATE.search(text) for text in (prompt, *responses)):
        return "a message has no text, or broken characters"
    return row.voted(row.named(), prompt, responses, won[:2], won[2])


def ultrafeedback(row: Row) -> Item | str:
    """Responses with ratings; those with the best rating are the correct ones.

    The column `ratings` keeps the ratings, in the order of the responses.
    """
    rated = []
    for completion in row.get(Objects, "completions"):
        given = (completion.get(name) for name in ("overall_score", "rating", "score"))
        rating = next((value for value in given if value is not None), None)
        text = row.checked(Text, completion.get("response"), "completions.response")
        rated.append((row.checked(Rating, rating, "completions.overall_score"), text))
    rated.sort(key=lambda pair: -pair[0])
    ratings = [rating for rating, _ in rated]
    if len(ratings) < 2:
        return "fewer than two responses"
    if ratings[0] == ratings[-1]:
        return "all responses have the same rating"
    columns = {"ratings": " ".join(f"{rating:g}" for rating in ratings)}
    texts, best = [text for _, text in rated], ratings.count(ratings[0])
    return row.item(row.named(), row.prompt("instruction"), texts, best, columns=columns)


_TURN = re.compile(r"\n\n(Human|Assistant):")


def trl(row: Row) -> Item | str:
    """Pairs. Without `prompt`, the prompt is the common beginning of the two conversations or texts."""
    chosen, rejected = row.prompt("chosen", Talk), row.prompt("rejected", Talk)
    prompt = None if row.values.get("prompt") is None else row.prompt()
    if chosen == rejected:
        return "both responses are the same"
    if isinstance(chosen, str) and isinstance(rejected, str):
        if prompt is not None:
            return row.item(row.named(), prompt, (chosen, rejected))
        if not (_TURN.match(chosen) and _TURN.match(rejected)):
            common = _common_beginning(chosen, rejected)
            if not common:
                raise row.error("no prompt, and 'chosen' and 'rejected' have no common beginning")
            return row.item(row.named(), chosen[:common], (chosen[common:], rejected[common:]))
        chosen, rejected = (row.checked(Talk, _dialogue(text), "chosen") for text in (chosen, rejected))
    if isinstance(chosen, str) or isinstance(rejected, str):
        raise row.error("'chosen' and 'rejected' must both be texts, or both chat messages")
    if prompt is None or len(chosen) > 1 or len(rejected) > 1:
        if chosen[:-1] != rejected[:-1]:
            return _DIFFER
        if len(chosen) < 2:
            raise row.error("no message before the response of 'chosen'")
        prompt = chosen[:-1]
    return row.item(row.named(), prompt, (chosen[-1]["content"], rejected[-1]["content"]))


def _common_beginning(chosen: str, rejected: str) -> int:
    """Return the length of the prompt of two texts as TRL does: without a space at its end."""
    shorter = min(len(chosen), len(rejected))
    common = next((i for i in range(shorter) if chosen[i] != rejected[i]), shorter)
    return common - 1 if common and chosen[common - 1] == " " else common


def _dialogue(text: str) -> list[dict[str, str]]:
    """Read a text of turns. Each turn begins with an empty line and `Human:` or `Assistant:`."""
    roles = {"Human": "user", "Assistant": "assistant"}
    parts = _TURN.split(text)[1:]
    turns = zip(parts[::2], parts[1::2], strict=True)
    return [{"role": roles[who], "content": said.strip()} for who, said in turns]


# Formats with several rows per prompt


def rewardmath(rows: Iterable[Row]) -> Iterator[tuple[str, Item | str]]:
    """One row per solution of a problem, in any order; the one by a person is correct."""
    correct = "human_to_GPT-4"
    solutions: dict[str, list[tuple[Row, str, str]]] = {}
    for row in rows:
        author, texts = row.get(Name, "solution_reference"), row.get(Texts, "eval_solution")
        solutions.setdefault(row.get(Text, "problem"), []).append((row, author, "\n".join(texts)))
    for number, (problem, given) in enumerate(solutions.items()):
        row = given[0][0]
        authors = [author for _, author, _ in given]
        if authors.count(correct) != 1 or len(given) < 2:
            raise row.error(f"the problem needs one solution by {correct} (the correct one) and another")
        ordered = sorted(given, key=lambda entry: entry[1] != correct)
        texts = tuple(text for _, _, text in ordered)
        yield row.where, row.item(row.get(Name, "id", str(number)), problem, texts)


def mt_bench(rows: Iterable[Row]) -> Iterator[tuple[str, Item | str]]:
    """One row per vote on two conversations; the votes on each question, turn and pair are collected.

    Comparisons whose conversations differ before the last response (most second turns) have no common prompt
    and are left out.
    """
    talks: dict[tuple[str, ...], tuple[Row, Messages, Messages]] = {}
    winners: dict[tuple[str, ...], list[str | None]] = {}
    for row in rows:
        turn, models = row.get(Count, "turn"), [row.get(Name, side) for side in ("model_a", "model_b")]
        both = [row.get(Chat, side)[: 2 * turn] for side in ("conversation_a", "conversation_b")]
        if turn < 1 or any(len(talk) < 2 * turn or talk[-1]["role"] != "assistant" for talk in both):
            raise row.error(f"the conversations have no response of the assistant in turn {turn}")
        key = (str(row.get(Count, "question_id")), str(turn), *sorted(models))
        first, second = both if models[0] == key[2] else both[::-1]
        talks.setdefault(key, (row, first, second))
        winner = dict(zip(("first", "second"), models, strict=True)).get(row.choice())
        winners.setdefault(key, []).append(winner)
    for key, (row, first, second) in talks.items():
        if first[:-1] != second[:-1]:
            yield row.where, _DIFFER
            continue
        responses = first[-1]["content"], second[-1]["content"]
        votes = winners[key].count(key[2]), winners[key].count(key[3])
        number = (int(key[0]) - 81) // 10  # the first question is 81, and each category has ten
        categories = row.entry.categories
        category = categories[number] if 0 <= number < len(categories) else "other"
        columns = {"turn": key[1], "model_a": key[2], "model_b": key[3]}
        ties = winners[key].count(None)
        item = row.voted(
            "/".join(key), first[:-1], responses, votes, ties, columns=columns, category=category
        )
        yield row.where, item


def by_row(read: Callable[[Row], Item | str]) -> Reader:
    """Return what reads the rows of a format whose rows are prompts."""
    return lambda rows: ((row.where, read(row)) for row in rows)


Reader = Callable[[Iterable[Row]], Iterator[tuple[str, Item | str]]]
READERS: dict[str, Reader] = {
    "answers": by_row(answers),
    "options": by_row(options),
    "choices": by_row(choices),
    "conversations": by_row(conversations),
    "own": by_row(rmcalib),
    "rmb": by_row(rmb),
    "rewardmath": rewardmath,
    "ppe-correctness": by_row(ppe_correctness),
    "helpsteer3": by_row(helpsteer3),
    "multipref": by_row(multipref),
    "mt-bench": mt_bench,
    "arena-55k": by_row(arena_55k),
    "ultrafeedback": by_row(ultrafeedback),
    "trl": by_row(trl),
}
"""The formats, by the names that YAML files use. They yield places, with items or why they are left out."""


def read_items(rows: Iterable[tuple[str, Any]], entry: BenchmarkEntry) -> Iterator[tuple[str, Item | str]]:
    """Yield the items of a benchmark, or the reasons why rows are left out, each with its place."""
    reader = entry.reader
    read = READERS[reader] if isinstance(reader, str) else by_row(lambda row: _called(reader, row))
    return read(Row(where, number, values, entry) for number, (where, values) in enumerate(rows))


def _called(read: Callable[[Mapping[str, Any]], Any], row: Row) -> Item | str:
    """Return what the function of a plug-in makes of a row."""
    try:
        item = read(row.values)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise row.error(f"{type(error).__name__}: {error}") from error
    if not isinstance(item, (Item, str)):
        raise row.error(f"the reader returned {type(item).__name__}, neither an Item nor a str")
    return item
