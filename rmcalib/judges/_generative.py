"""A language model as a judge: it is asked questions, and its answers become rewards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib.judges import _readings as readings
from rmcalib.judges._chat import Answer, ChatApi
from rmcalib.judges._files import asked_for, check_model_name
from rmcalib.judges._http import ServerError, in_parallel
from rmcalib.judges._judge import Progress, ScoredItem
from rmcalib.judges._questions import BUILT_IN, LETTERS, JudgePrompt, Question, choice_of, read_prompt
from rmcalib.judges._settings import LanguageModelSettings
from rmcalib.judges._templates import Message
from rmcalib.scores.scale import Scale

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item
    from rmcalib.judges._language import LanguageModel

DEFAULT_VOTES = 8
SCORING_VERSION = 1  # raise it when the same answers would get other scores
_CHUNK = 8  # prompts per chunk: each costs several requests, which a killed run loses
_CHARACTERS_PER_TOKEN = 4
_SCALES = {
    "best": Scale("probability", "the judge's probabilities of the letters", of="best"),
    "correct": Scale("log_odds", "the judge's log-odds of yes"),
    "rating": Scale("rating", "the judge's grades"),
}


@dataclass(frozen=True)
class Cost:
    """The cost of scoring prompts with a language model, as `GenerativeJudge.cost` returns it.

    Attributes
    ----------
    prompts : int
        Number of prompts.
    requests : int
        Number of requests.
    prompt_tokens : int
        Tokens of all requests, estimated from the number of characters.
    answer_tokens : int
        The most tokens that all answers can have.

    Examples
    --------
    >>> Cost(prompts=10, requests=40, prompt_tokens=12_000, answer_tokens=40).requests
    40
    """

    prompts: int
    requests: int
    prompt_tokens: int
    answer_tokens: int


@dataclass(frozen=True)
class _Ask:
    """One request. The seed is for sampled answers."""

    item: Item
    question: Question
    messages: tuple[Message, ...]
    labels: tuple[str, ...]
    seed: int


class GenerativeJudge:
    """A language model that judges by answering questions.

    Parameters
    ----------
    name : str
        Hub id or folder of the language model.
    settings : LanguageModelSettings
        How it judges, and how it is loaded or where it is served.

    Examples
    --------
    >>> from rmcalib.benchmarks import load_benchmark
    >>> settings = LanguageModelSettings(judging="letter", endpoint="http://localhost:8000")
    >>> judge = GenerativeJudge("org/lm", settings)
    >>> judge.scale.kind, judge.cost(load_benchmark("demo").items[:10]).requests
    ('probability', 40)
    """

    def __init__(self, name: str, settings: LanguageModelSettings) -> None:
        """Read the prompt file and check the settings; the model is not loaded or asked yet."""
        kind = settings.judging
        if kind is None:
            raise ValueError(f"judging: say how {name} judges: letter, yes-no, rating, votes or rewardbench2")
        self.name, self.settings = name, settings
        self.prompt = _fitting_prompt(kind, settings.judge_prompt)
        if settings.votes is not None and not self.samples:
            raise ValueError(f"votes: has no effect: {kind!r} reads log-probabilities and takes no samples")
        if settings.placements is not None and not any(q.asks == "best" for q in self.prompt.questions):
            raise ValueError(f"placements: has no effect: {kind!r} shows one response at a time")
        self.votes = DEFAULT_VOTES if settings.votes is None else settings.votes
        self._api: ChatApi | None = None
        if settings.endpoint is None:
            check_model_name(name)
        else:
            reads_tokens = any(question.answer == "token" for question in self.prompt.questions)
            self._api = ChatApi(name, settings, logprobs=reads_tokens)

    @cached_property
    def model(self) -> ChatApi | LanguageModel:
        """What answers the questions: a chat API, or a language model, which is loaded here."""
        from rmcalib.judges._language import load_language_model

        return self._api or load_language_model(self.name, self.settings)

    @property
    def scale(self) -> Scale:
        """The scale of its rewards: that of the last question, which is for all other categories."""
        return _SCALES[self.prompt.questions[-1].asks]

    def identity(self) -> dict[str, Any]:
        """Return the model, the prompt and the settings; this connects to the server or loads the model."""
        return {"kind": "generative", **self._settings(), **self.model.identity()}

    def asked(self) -> dict[str, Any]:
        """Return what determines `identity`, as far as it is known without loading a model."""
        model = asked_for(self.name, self.settings) if self._api is None else self._api.identity()
        return {"kind": "generative", **self._settings(), **model}

    def about(self) -> dict[str, Any]:
        """Return the prompt's name and version, and the device or server of the model."""
        return {"judge_prompt": f"{self.prompt.name} {self.prompt.version}", **self.model.about()}

    def cost(self, items: Sequence[Item]) -> Cost:
        """Return the cost of scoring some prompts. No request is sent."""
        requests = characters = answers = 0
        for ask in self._asks(items):
            requests += 1
            characters += sum(len(message["content"]) for message in ask.messages)
            answers += 1 if ask.question.answer == "token" else ask.question.max_tokens
        return Cost(len(items), requests, math.ceil(characters / _CHARACTERS_PER_TOKEN), answers)

    def score(self, items: Sequence[Item], *, progress: Progress | None = None) -> Iterator[list[ScoredItem]]:
        """Score prompts in chunks of 8. After each chunk, check that a server still has the same model."""
        self.model.identity()  # loads the model or connects, before threads are started
        answers = self._answers(self._asks(items))
        for start in range(0, len(items), _CHUNK):
            chunk = []
            for item in items[start : start + _CHUNK]:
                chunk.append(self._scored(item, answers))
                if progress is not None:
                    progress(len(item.responses), int(sum(chunk[-1].details["tokens"])))
            self.model.check()
            yield chunk

    def _settings(self) -> dict[str, Any]:
        return {
            "judge_prompt_sha256": self.prompt.sha256,
            "judge_prompt_version": self.prompt.version,
            "votes_per_question": self.votes if self.samples else None,
            "placements": self.settings.placements,
            "judge_seed": self.settings.judge_seed,
            "max_characters": self.settings.max_characters,
            "judge_version": SCORING_VERSION,
        }

    @property
    def samples(self) -> bool:
        """Whether its answers are sampled, at least some of them."""
        return any(question.answer == "text" for question in self.prompt.questions)

    def _orders(self, item: Item, question: Question) -> Any:
        most = self.settings.placements if self.settings.placements is not None else len(item.responses)
        count = min(most, self.votes) if question.answer == "text" else most
        return readings.placements(len(item.responses), count, seed=self.settings.judge_seed, item_id=item.id)

    def _asks(self, items: Iterable[Item]) -> Iterator[_Ask]:
        """Yield the requests of all prompts, in the order in which `_scored` reads their answers."""
        for item in items:
            question = self.prompt.question_for(item)
            labels = question.labels_for(len(item.responses))
            if question.asks == "best" and len(item.responses) > len(LETTERS):
                raise ValueError(
                    f"{self.name}: prompt {item.id!r} has {len(item.responses)} responses, but there are "
                    f'only {len(LETTERS)} letters: use judging="yes-no" or judging="rating"'
                )
            responses = [self._cut(response) for response in item.responses]
            prompt: Any = (
                self._cut(item.prompt)
                if isinstance(item.prompt, str)
                else tuple({**turn, "content": self._cut(turn["content"])} for turn in item.prompt)
            )
            shown = [[response] for response in responses]
            if question.asks == "best":
                shown = [[responses[place] for place in order] for order in self._orders(item, question)]
            written = [question.messages(prompt, texts) for texts in shown]
            if question.answer == "token":
                numbers = [(each, 0) for each in written]
            elif question.asks == "best":  # votes are spread over the orders
                numbers = [(written[number % len(written)], number) for number in range(self.votes)]
            else:
                numbers = [(each, number) for each in written for number in range(self.votes)]
            for messages, number in numbers:
                yield _Ask(item, question, messages, labels, self.settings.judge_seed + number)

    def _cut(self, text: str) -> str:
        return text[: self.settings.max_characters]

    def _answers(self, asks: Iterator[_Ask]) -> Iterator[Answer]:
        if self._api is None:
            return map(self._answer, asks)
        return in_parallel(self._answer, asks, workers=self.settings.concurrency)

    def _answer(self, ask: _Ask) -> Answer:
        question = ask.question
        try:
            if question.answer == "token":
                return self.model.label_logprobs(ask.messages, ask.labels)
            return self.model.sample(
                ask.messages,
                seed=ask.seed,
                temperature=question.temperature,
                max_tokens=question.max_tokens,
            )
        except ServerError as error:
            raise ServerError(f"{self.name}: prompt {ask.item.id!r}: {error}", error.status) from error
        except ValueError as error:
            raise ValueError(f"{self.name}: prompt {ask.item.id!r}: {error}") from error

    def _scored(self, item: Item, answers: Iterator[Answer]) -> ScoredItem:
        """Read the answers for one prompt."""
        question, k = self.prompt.question_for(item), len(item.responses)
        orders = self._orders(item, question) if question.asks == "best" else None
        rows, unread = k if orders is None else len(orders), 0
        if question.answer == "token":
            given = [next(answers) for _ in range(rows)]
            logprobs = np.array([answer.logprobs for answer in given])
            floored = np.array([answer.floored for answer in given])
            reading = readings.read_tokens(question, logprobs, floored, orders)
        else:
            given = [next(answers) for _ in range(self.votes * (rows if orders is None else 1))]
            choices = [choice_of(question, answer.text, question.labels_for(k)) for answer in given]
            reading, unread = readings.read_votes(question, choices, k, orders), choices.count(None)
        counts = {
            "answers": len(given),
            "unread": unread,
            "floored": sum(sum(answer.floored) for answer in given),
            "tokens": sum(answer.tokens for answer in given),
        }
        details = {name: values.tolist() for name, values in reading.details.items()}
        # Counts of a prompt are in its first row only, so that the sum of a column is the total.
        details |= {name: [count, *[0] * (k - 1)] for name, count in counts.items()}
        return ScoredItem(
            item.id,
            tuple(reading.rewards.tolist()),
            truncated=tuple(self._cut(text) != text for text in item.responses),
            details=details,
        )


def _fitting_prompt(kind: str, path: str | Path | None) -> JudgePrompt:
    """Read a prompt file, by default the built-in one, and check that it fits the way of judging."""
    prompt = read_prompt(path or BUILT_IN / f"{kind}.yaml")
    asks = {"letter": "best", "yes-no": "correct", "rating": "rating"}.get(kind)
    answer = {"rewardbench2": None, "votes": "text"}.get(kind, "token")
    for question in prompt.questions:
        for field, wanted in (("asks", asks), ("answer", answer)):
            given = getattr(question, field)
            if wanted is not None and given != wanted:
                raise ValueError(f"{path}: {field}: {kind!r} needs a prompt with {wanted!r}, not {given!r}")
    return prompt
