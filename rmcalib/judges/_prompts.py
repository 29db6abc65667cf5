"""Prompts of judges: YAML files with the questions, and how answers are read and become rewards."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le, MinLen
from pydantic import BeforeValidator

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib._util.storage import read_input
from rmcalib._util.texts import parse_yaml, typed
from rmcalib.scores import Scores

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item

Message = dict[str, str]
Prompt = str | tuple[Message, ...]

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

    name: str
    version: str
    questions: tuple[Question, ...]
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
    found = typed(_File, parse_yaml(content, str(path)), str(path))
    name = Path(path).stem if found.name is None else str(found.name)
    return JudgePrompt(name, str(found.version), found.questions, hashlib.sha256(content).hexdigest())


@dataclass(frozen=True)
class _File:
    """What a prompt file has."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    version: str | int | float
    questions: Annotated[tuple[Question, ...], MinLen(1)]
    name: str | int | float | None = None


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

    found = None
    try:
        for match in regex.finditer(question.pattern, text[-_SEARCHED:], timeout=_SEARCH_SECONDS):
            said = (match[1] or "").strip()
            for number, label in enumerate(labels):
                if said == label or said in spellings(label):
                    found = number
    except TimeoutError:
        raise ValueError(f"pattern: takes more than {_SEARCH_SECONDS:g} seconds for an answer") from None
    return found


def _check_slots(question: Question) -> None:
    known = _SLOTS[question.asks]
    for slot in _SLOT.findall(question.user):
        if slot not in known:
            raise ValueError(f"user: unknown {{{{ {slot} }}}} (have: {', '.join(known)})")
    for slot in known[:2]:
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
    if (
        len({*labels}) != len(labels)
        or len(labels) < 2
        or not all(each.strip() == each != "" for each in labels)
    ):
        raise ValueError("labels: expected two or more different texts, without spaces around them")
    if question.asks == "correct" and len(labels) != 2:
        raise ValueError("labels: expected two, the good answer first, such as ['Yes', 'No']")
    if question.asks == "rating" and not all(abs(float(label)) <= _LARGEST_GRADE for label in labels):
        raise ValueError(f"labels: grades must be numbers up to {_LARGEST_GRADE:g}")
    if question.answer == "token":
        for one, other in itertools.permutations(labels, 2):
            if other.startswith(one):
                raise ValueError(
                    f"labels: {other!r} begins with {one!r}, so one token cannot distinguish them: use other "
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


@dataclass(frozen=True)
class Reading:
    """The rewards of a prompt's responses (k,), and details by name, each (k,)."""

    rewards: FloatArray
    details: Mapping[str, FloatArray]


def placements(n_responses: int, count: int | None, *, seed: int, item_id: str) -> IntArray:
    """Return the orders in which responses are shown: one shuffled order, and cyclic shifts of it.

    The first order is shuffled, because benchmarks list correct responses first. With `n_responses` shifts,
    every response is in every place once.

    Parameters
    ----------
    n_responses : int
        Number of responses, k.
    count : int, optional
        Number of orders. Default: k. A smaller number is spread evenly over the shifts.
    seed, item_id
        Seed and prompt id, which determine the first order.

    Returns
    -------
    int array (count, k)
        The response in each place.

    Examples
    --------
    >>> orders = placements(3, None, seed=0, item_id="a")
    >>> np.sort(orders, axis=0).tolist()
    [[0, 0, 0], [1, 1, 1], [2, 2, 2]]
    """
    digest = hashlib.sha256(f"{seed}\0{item_id}".encode("utf-8", "surrogatepass")).digest()
    first = np.random.default_rng(int.from_bytes(digest[:8], "big")).permutation(n_responses)
    rows = n_responses if count is None else min(count, n_responses)
    shifts = np.arange(rows) * n_responses // rows
    return np.stack([np.roll(first, -shift) for shift in shifts]).astype(np.int64)


def best_by_tokens(orders: IntArray, logprobs: FloatArray, floored: BoolArray) -> Reading:
    """Return the log of the probability that each response is the best, averaged over placements.

    In each placement, the probabilities of the letters are divided by their sum. The forecast of a response
    is the mean of its probabilities over the placements.

    Parameters
    ----------
    orders : int (s, k)
        The response in each place.
    logprobs : float array (s, k)
        The log-probability of each place's letter.
    floored : bool (s, k)
        Whether that is only an upper bound.

    Returns
    -------
    Reading
        `place[i]` is the mean probability of place i. `firsts` counts the placements in which the response is
        the first choice. `floor` is the part of the forecast that is only an upper bound. `mass` is the
        probability of all letters together.

    Examples
    --------
    >>> orders = np.array([[0, 1], [1, 0]])
    >>> reading = best_by_tokens(orders, np.log([[0.6, 0.2], [0.3, 0.3]]), np.zeros((2, 2), bool))
    >>> np.exp(reading.rewards).round(3).tolist(), reading.details["place"].round(3).tolist()
    ([0.625, 0.375], [0.625, 0.375])
    """
    s, k = orders.shape
    p = _normalised(logprobs)
    total, floor, firsts = np.zeros(k), np.zeros(k), np.zeros(k)
    np.add.at(total, orders, p / s)
    np.add.at(floor, orders, p * floored / s)
    np.add.at(firsts, orders[np.arange(s), p.argmax(axis=1)], 1.0)
    mass = np.full(k, np.exp(logprobs).sum(axis=1).mean())
    details = {"place": p.mean(axis=0), "firsts": firsts, "floor": floor, "mass": mass}
    return Reading(np.log(np.maximum(total, 1e-300)), details)


def best_by_votes(orders: IntArray, votes: Sequence[int | None], smoothing: float) -> Reading:
    """Return the log of the smoothed fraction of votes, (v + a) / (n + k a), for each response.

    n is the number of votes that could be read.

    Parameters
    ----------
    orders : int (s, k)
        The response in each place. Vote j was asked for in order j mod s.
    votes : Sequence[int | None]
        The place that each answer chose; None if the answer could not be read.
    smoothing : float
        The a in the formula.

    Returns
    -------
    Reading
        `votes` is the number of votes for the response, `vote_count` that of all votes that were read, and
        `place` the fraction of votes for the place. `low` and `high` are the 95% interval of the fraction
        that infinitely many votes would give, from a Dirichlet distribution with parameters v + a.

    Examples
    --------
    >>> reading = best_by_votes(np.array([[0, 1], [1, 0]]), [0, 0, None, 1], 0.5)
    >>> reading.details["votes"].tolist(), np.exp(reading.rewards).round(3).tolist()
    ([2.0, 1.0], [0.625, 0.375])
    """
    k = orders.shape[1]
    counts, places = np.zeros(k), np.zeros(k)
    for number, place in enumerate(votes):
        if place is not None:
            counts[orders[number % len(orders), place]] += 1
            places[place] += 1
    n = counts.sum()
    share = places / n if n else np.full(k, math.nan)
    forecast = (counts + smoothing) / (n + k * smoothing)
    low, high = _share_interval(counts + smoothing, n - counts + (k - 1) * smoothing)
    details = {"votes": counts, "place": share, "vote_count": np.full(k, n), "low": low, "high": high}
    return Reading(np.log(forecast), details)


def correct_by_tokens(logprobs: FloatArray, floored: BoolArray) -> Reading:
    """Return the logit of P(yes) = p(yes) / (p(yes) + p(no)) for each response.

    Parameters
    ----------
    logprobs : float array (k, 2)
        log p(yes) and log p(no) of each response.
    floored : bool array (k, 2)
        Whether each of them is only an upper bound.

    Examples
    --------
    >>> reading = correct_by_tokens(np.log([[0.6, 0.2], [0.1, 0.1]]), np.zeros((2, 2), bool))
    >>> reading.details["p_yes"].tolist(), reading.rewards.round(3).tolist()
    ([0.75, 0.5], [1.099, 0.0])
    """
    p = _normalised(logprobs)
    details = {"p_yes": p[:, 0], "floor": (p * floored).sum(axis=1), "mass": np.exp(logprobs).sum(axis=1)}
    return Reading(logprobs[:, 0] - logprobs[:, 1], details)


def correct_by_votes(votes: Sequence[Sequence[int | None]], smoothing: float) -> Reading:
    """Return the logit of the smoothed fraction of yes, (v + a) / (n + 2 a), for each response.

    >>> correct_by_votes([[0, 0, 1, None], [None, None]], 0.5).details["p_yes"].tolist()
    [0.625, 0.5]
    """
    yes = np.array([sum(vote == 0 for vote in own) for own in votes], dtype=np.float64)
    n = np.array([sum(vote is not None for vote in own) for own in votes], dtype=np.float64)
    p = (yes + smoothing) / (n + 2 * smoothing)
    low, high = _share_interval(yes + smoothing, n - yes + smoothing)
    details = {"p_yes": p, "votes": yes, "vote_count": n, "low": low, "high": high}
    return Reading(np.log(p) - np.log1p(-p), details)


def rating_by_tokens(logprobs: FloatArray, floored: BoolArray, grades: FloatArray) -> Reading:
    """Return the expected grade, Σ g p(g) / Σ p(g), for each response.

    >>> rating_by_tokens(np.log([[0.2, 0.6]]), np.zeros((1, 2), bool), np.array([1.0, 2.0])).rewards.tolist()
    [1.75]
    """
    p = _normalised(logprobs)
    details = {"floor": (p * floored).sum(axis=1), "mass": np.exp(logprobs).sum(axis=1)}
    return Reading(p @ grades, details)


def rating_by_votes(votes: Sequence[Sequence[int | None]], grades: FloatArray) -> Reading:
    """Return the mean of the grades that could be read, for each response; the middle grade if there is none.

    >>> rating_by_votes([[0, 1, None], [None]], np.array([1.0, 2.0, 5.0])).rewards.tolist()
    [1.5, 3.0]
    """
    middle = (grades.min() + grades.max()) / 2
    read = [[grades[vote] for vote in own if vote is not None] for own in votes]
    rewards = np.array([np.mean(own) if own else middle for own in read])
    return Reading(rewards, {"vote_count": np.array([len(own) for own in read], dtype=np.float64)})


def answers_summary(scores: Scores) -> dict[str, Any]:
    """Summarise the answers of a language model that judged, for the manifest.

    Parameters
    ----------
    scores : Scores
        Scores of a `GenerativeJudge`.

    Returns
    -------
    dict
        Empty for other judges. Otherwise:

        - `answers`, `unread`, `floored`, `tokens`: totals.
        - `label_mass`: mean probability of all labels together.
        - `votes`: the smallest, mean and largest number of votes that were read per question.
        - `largest_floor`: how much a probability can change, at most, because labels have only upper bounds.
        - `places`: for prompts with the most frequent number k of responses, the mean probability of each
          place with its standard error (1/k without position bias), the largest difference from 1/k (`bias`),
          and the fraction of prompts whose answers do not all choose the same response (`choice_moves`).

    Examples
    --------
    >>> scores = Scores.from_arrays([[0.0, 1.0]])
    >>> answers_summary(scores)
    {}
    """
    details = scores.details
    if "answers" not in details:
        return {}
    summary: dict[str, Any] = {
        name: int(np.nansum(details[name])) for name in ("answers", "unread", "floored", "tokens")
    }
    if "mass" in details and np.isfinite(details["mass"]).any():
        summary["label_mass"] = float(np.nanmean(details["mass"]))
    if "floor" in details and summary["floored"]:
        summary["largest_floor"] = _largest_floor(scores)
    if "vote_count" in details and np.isfinite(details["vote_count"]).any():
        counts = details["vote_count"]
        summary["votes"] = [int(np.nanmin(counts)), float(np.nanmean(counts)), int(np.nanmax(counts))]
    places = _places(scores)
    return {**summary, **({"places": places} if places else {})}


def _share_interval(ours: FloatArray, others: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the 95% limits of Beta(ours, others)."""
    from scipy.special import betaincinv

    low, high = (betaincinv(ours, others, level).astype(np.float64) for level in (0.025, 0.975))
    return low, high


def _normalised(logprobs: FloatArray) -> FloatArray:
    """Return probabilities that sum to 1 in each row."""
    from scipy.special import softmax

    return np.asarray(softmax(logprobs, axis=-1))


def _largest_floor(scores: Scores) -> float:
    """Return the largest probability of labels with only an upper bound, over all questions."""
    floor, starts = np.nan_to_num(scores.details["floor"]), scores.offsets[:-1]
    together = np.isfinite(np.add.reduceat(scores.details.get("place", np.full(len(floor), np.nan)), starts))
    each = np.maximum.reduceat(floor, starts)
    return float(np.where(together, np.add.reduceat(floor, starts), each).max())


def _places(scores: Scores) -> dict[str, Any]:
    """Describe position bias on the prompts with the most frequent number of responses."""
    place = scores.details.get("place")
    if place is None:
        return {}
    starts, sizes = scores.offsets[:-1], np.diff(scores.offsets)
    known = np.isfinite(np.add.reduceat(place, starts))
    if not known.any():
        return {}
    k = int(np.bincount(sizes[known]).argmax())
    chosen = starts[known & (sizes == k)]
    table = place[chosen[:, None] + np.arange(k)]
    n = len(table)
    means = table.mean(axis=0)
    errors = table.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full(k, np.nan)
    described: dict[str, Any] = {
        "prompts": n,
        "mean_probability": means.round(6).tolist(),
        "standard_error": [None if np.isnan(error) else round(float(error), 6) for error in errors],
        "bias": float(np.abs(means - 1 / k).max()),
    }
    votes = scores.details.get("firsts", scores.details.get("votes"))
    if votes is not None:
        counts = votes[chosen[:, None] + np.arange(k)]
        described["choice_moves"] = float((counts.max(axis=1) < counts.sum(axis=1)).mean())
    return described
