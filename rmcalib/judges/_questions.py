"""Questions to a language model that judges: YAML files with the messages, and how an answer is read."""

from __future__ import annotations

import hashlib
import itertools
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le, MinLen
from pydantic import BeforeValidator

from rmcalib._util.storage import read_input
from rmcalib._util.texts import parse_yaml, typed
from rmcalib.judges._templates import Message, Prompt

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item

BUILT_IN = Path(__file__).parent / "prompts"
LETTERS = string.ascii_uppercase
_LARGEST_GRADE = 1e9
_SEARCHED = 20_000  # characters at the end of an answer that are searched for a verdict
_SEARCH_SECONDS = 5.0
_SLOT = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_SLOTS = {"best": ("prompt", "responses", "labels"), "correct": ("prompt", "response", "labels")}
_SLOTS["rating"] = _SLOTS["correct"]


def _as_texts(values: Any) -> Any:
    """Return a list of YAML with its numbers as texts; YAML reads yes and no as booleans, which are refused."""
    if not isinstance(values, list):
        return values
    return tuple(str(each) if type(each) in (int, float) else each for each in values)


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_texts)]


@dataclass(frozen=True)
class Question:
    """One question to a language model, and how its answer is read.

    Parameters
    ----------
    asks : {"best", "correct", "rating"}
        `best` (which response is the best, by a letter), `correct` (is this response good) or `rating` (how
        good is this response).
    answer : {"token", "text"}
        `token` reads the log-probabilities of the labels as the next token. `text` samples answers and reads
        the last match of `pattern`.
    user, system : str
        The messages. In `user`, `{{ prompt }}`, `{{ responses }}` or `{{ response }}`, and `{{ labels }}` are
        replaced.
    each : str
        How each response is written in `{{ responses }}`, with `{{ label }}` and `{{ response }}`.
    labels : tuple[str, ...]
        For `correct`, the good answer and the bad one; for `rating`, the grades; empty for `best`.
    pattern : str
        A regular expression whose only group is the label.
    temperature, max_tokens
        Settings of sampled answers.
    smoothing : float
        The a in the forecast (v + a) / (n + k a) of v votes out of n.
    categories : tuple[str, ...]
        The categories that the question is for. Empty: all.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    asks: Literal["best", "correct", "rating"]
    answer: Literal["token", "text"]
    user: str
    system: str = ""
    each: str = ""
    labels: Texts = ()
    pattern: str = ""
    temperature: Annotated[float, Ge(0), Le(5)] = 1.0
    max_tokens: Annotated[int, Ge(1), Le(10**9)] = 1024
    smoothing: Annotated[float, Ge(1e-9), Le(1e6)] = 0.5
    categories: Texts = ()

    def __post_init__(self) -> None:
        """Raise a `ValueError` for what cannot be asked or read."""
        _check_slots(self)
        _check_labels(self)
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise ValueError(f"pattern: {error}") from None
        if self.answer == "text" and groups != 1:
            raise ValueError("pattern: sampled answers need a regular expression with one group, the label")

    def labels_for(self, n_responses: int) -> tuple[str, ...]:
        """Return the possible labels of an answer, for a prompt with this many responses."""
        return tuple(LETTERS[:n_responses]) if self.asks == "best" else self.labels

    def messages(self, prompt: Prompt, responses: Sequence[str]) -> tuple[Message, ...]:
        """Return the messages of the question, about all responses (for `best`) or about one."""
        labels = self.labels_for(len(responses))
        values = {"prompt": _written(prompt), "labels": ", ".join(labels)}
        if self.asks == "best":
            values["responses"] = "\n\n".join(
                _filled(self.each, {"label": label, "response": response})
                for label, response in zip(labels, responses, strict=True)
            )
        else:
            (values["response"],) = responses
        user = {"role": "user", "content": _filled(self.user, values)}
        return ({"role": "system", "content": self.system}, user) if self.system else (user,)


@dataclass(frozen=True)
class JudgePrompt:
    """A prompt file: name, version, questions, and the SHA-256 of the file."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid", "coerce_numbers_to_str": True}

    name: str
    version: str
    questions: Annotated[tuple[Question, ...], MinLen(1)]
    sha256: str

    def question_for(self, item: Item) -> Question:
        """Return the first question that applies to the prompt's category."""
        for question in self.questions:
            if not question.categories or item.category in question.categories:
                return question
        raise ValueError(f"judge prompt {self.name!r}: has no question for the category {item.category!r}")


def read_prompt(path: str | Path) -> JudgePrompt:
    """Read a prompt file.

    >>> read_prompt(BUILT_IN / "letter.yaml").questions[0].asks
    'best'
    """
    content = read_input(path)
    fields = parse_yaml(content, str(path))
    if isinstance(fields, Mapping):
        fields = {"name": Path(path).stem, **fields, "sha256": hashlib.sha256(content).hexdigest()}
    return typed(JudgePrompt, fields, str(path))


def spellings(label: str) -> tuple[str, ...]:
    """Return the spellings of a label that a model may write as one token.

    >>> spellings("A"), spellings("Yes")
    (('A', ' A'), ('Yes', ' Yes', 'yes', ' yes', 'YES', ' YES'))
    """
    is_word = len(label) > 1 and label.isalpha()
    written = dict.fromkeys([label, label.capitalize(), label.lower(), label.upper()] if is_word else [label])
    return tuple(space + each for each in written for space in ("", " "))


def choice_of(question: Question, text: str, labels: Sequence[str]) -> int | None:
    """Return the index of the last label that the pattern finds in an answer; None if it finds none.

    >>> letters = read_prompt(BUILT_IN / "votes.yaml").questions[0]
    >>> choice_of(letters, "Best: A? No. B is right.\\nBest: B", "AB"), choice_of(letters, "Hm.", "AB")
    (1, None)
    """
    import regex

    chosen = None
    try:
        for match in regex.finditer(question.pattern, text[-_SEARCHED:], timeout=_SEARCH_SECONDS):
            said = (match[1] or "").strip()
            for number, label in enumerate(labels):
                if said == label or said in spellings(label):
                    chosen = number
    except TimeoutError:
        raise ValueError(f"pattern: takes more than {_SEARCH_SECONDS:g} seconds for an answer") from None
    return chosen


def _check_slots(question: Question) -> None:
    slots = _SLOTS[question.asks]
    for slot in _SLOT.findall(question.user):
        if slot not in slots:
            raise ValueError(f"user: unknown {{{{ {slot} }}}} (have: {', '.join(slots)})")
    for slot in slots[:2]:
        if slot not in _SLOT.findall(question.user):
            raise ValueError(f"user: {{{{ {slot} }}}} is missing")
    if question.asks == "best" and set(_SLOT.findall(question.each)) != {"label", "response"}:
        raise ValueError("each: must have {{ label }} and {{ response }}, and nothing else in {{ }}")
    if _SLOT.search(question.system):
        raise ValueError("system: cannot contain {{ }}; put it into user")


def _check_labels(question: Question) -> None:
    labels = question.labels
    if question.asks == "best":
        if labels:
            raise ValueError("labels: responses get the letters A, B, ...; leave labels out")
        return
    if len({*labels}) < max(2, len(labels)):
        raise ValueError("labels: expected two or more different texts")
    if question.asks == "correct" and len(labels) != 2:
        raise ValueError("labels: expected two, the good answer first, such as ['Yes', 'No']")
    if question.asks == "rating" and not all(abs(float(label)) <= _LARGEST_GRADE for label in labels):
        raise ValueError(f"labels: grades must be numbers up to {_LARGEST_GRADE:g}")
    if question.answer == "token":
        for first, second in itertools.permutations(labels, 2):
            if second.startswith(first):
                raise ValueError(
                    f"labels: {second!r} begins with {first!r}, so one token cannot distinguish them: use other "
                    "labels (such as 1 to 9), or answer: text"
                )


def _filled(template: str, values: Mapping[str, str]) -> str:
    """Replace the slots of a template in one pass, so that `{{ }}` in the values is not replaced."""
    return _SLOT.sub(lambda match: values[match[1]], template)


def _written(prompt: Prompt) -> str:
    """Return a prompt as text. The messages of a conversation begin with their role."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"{message['role'].capitalize()}: {message['content']}" for message in prompt)
