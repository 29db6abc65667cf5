"""Take texts with a policy's chat template in them apart into messages.

OpenRLHF and LLaMA-Factory send whole texts, written with the policy's template. A reward model of another family
must not read them as they are. The policy's tokenizer renders marked messages, which shows what the template
writes around a message. Texts are split there, and a split is accepted only if rendering it again gives the same
text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rmcalib.benchmarks._items import Prompt
from rmcalib.judges.apis.samples import Sample

Messages = tuple[dict[str, str], ...]
# What chat templates write. A text with one of these is not plain text.
_MARKS = re.compile(r"<[|｜][\w ▁-]{1,40}[|｜]>|\[/?INST\]|<(?:start|end)_of_turn>|<</?SYS>>")
_REMEDY = "name the policy's tokenizer (policy, --policy-tokenizer), which takes texts apart"
_SYSTEM, _FIRST = "rmcalib-system-mark", "rmcalib-first-mark"
_SHOWN = 40  # characters of a text in an error


@dataclass(frozen=True)
class Marks:
    """What a template writes before, between and after the contents of messages.

    `header` is what follows the user's content where the assistant is to answer. A template without messages
    of the system has no `system_start`.
    """

    start: str
    user_to_assistant: str
    assistant_to_user: str
    end: str
    header: str
    system_start: str | None = None
    system_to_user: str = ""


class PolicyTexts:
    """The chat template of a policy, read backwards.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizer
        The policy's tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        """Learn what the template writes; a ValueError if there is none that can be read."""
        self.tokenizer = tokenizer
        try:
            self.marks  # noqa: B018
        except Exception as error:  # a template can fail in any way
            why = " ".join(str(error).split())[:200]
            raise ValueError(
                f"the policy's tokenizer has no chat template that can be read: {why}"
            ) from error

    @classmethod
    def load(cls, name: str) -> PolicyTexts:
        """Load a tokenizer from the Hub or a folder."""
        from rmcalib.judges import LoadOptions
        from rmcalib.judges._files import find_files
        from rmcalib.judges._model import load_tokenizer

        return cls(load_tokenizer(find_files(name, LoadOptions(), small_files_only=True)))

    def render(self, messages: Sequence[dict[str, str]], *, header: bool = False) -> str:
        """Return messages as the policy's text; `header` adds that of the assistant's turn."""
        return str(
            self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=header)
        )

    @cached_property
    def marks(self) -> Marks:
        """What the template writes around messages."""
        roles = ("user", "assistant", "user", "assistant")
        turns = [{"role": role, "content": f"rmcalib-{n}-mark"} for n, role in enumerate(roles)]
        parts = re.split(r"rmcalib-\d-mark", self.render(turns))
        first = [{"role": "user", "content": _FIRST}]
        header = self.render(first, header=True).rpartition(_FIRST)[2]
        plain = Marks(parts[0], parts[1], parts[2], parts[4], header)
        if parts[1] != parts[3]:
            raise ValueError("the turns of the assistant do not all begin in the same way")
        try:
            text = self.render([{"role": "system", "content": _SYSTEM}, *first])
        except Exception:  # it has no system messages
            return plain
        if _SYSTEM not in text:
            return plain
        before, _, rest = text.partition(_SYSTEM)
        return replace(plain, system_start=before, system_to_user=rest.partition(_FIRST)[0])

    def pair(self, query: str, prompt: str | None, where: str) -> tuple[Prompt, str]:
        """Return the prompt's messages and the response of a whole text.

        Parameters
        ----------
        query : str
            The prompt and the response, with the policy's template.
        prompt : str, optional
            The beginning of `query`, up to the response.
        where : str
            What the text is, for the ValueError if it cannot be taken apart.
        """
        if prompt is not None and not query.startswith(prompt):
            raise ValueError(f"{where}: does not begin with its prompt, {_difference(query, prompt)}")
        closed = query if prompt is None else prompt
        rendered = None
        for messages in self._splits(closed, whole=prompt is None):
            rendered = self.render(messages, header=prompt is not None)
            if prompt is not None and rendered == prompt:
                return messages, self._without_end(query[len(prompt) :]).removeprefix(self._lead)
            if prompt is None and self._without_end(rendered) == self._without_end(query):
                return messages[:-1], messages[-1]["content"]
        if rendered is not None:
            raise ValueError(f"{where}: cannot be taken apart, {_difference(closed, rendered)}")
        raise ValueError(
            f"{where}: is not written with the chat template of the policy's tokenizer: it begins with "
            f"{closed[:_SHOWN]!r}, and the template with {self.marks.start[:_SHOWN]!r}"
        )

    @property
    def _lead(self) -> str:
        """What the template writes before an answer and not in the prompt, such as a space."""
        marks = self.marks
        begins = marks.user_to_assistant.startswith(marks.header)
        return marks.user_to_assistant.removeprefix(marks.header) if begins else ""

    def _without_end(self, text: str) -> str:
        """Return a text without what the template, or the policy, writes at the end of a turn."""
        end = self.marks.end
        for mark in (end, end.rstrip(), getattr(self.tokenizer, "eos_token", None)):
            if mark and text.endswith(mark):
                return text.removesuffix(mark)
        return text

    def _splits(self, text: str, *, whole: bool) -> Iterator[Messages]:
        """Yield what the messages of a text may be: without and with a message of the system."""
        marks = self.marks
        if whole:
            text = self._without_end(text)
        elif not text.endswith(marks.header):
            return
        else:
            text = text.removesuffix(marks.header)
        if text.startswith(marks.start):
            yield from self._turns(text.removeprefix(marks.start), (), whole=whole)
        if marks.system_start is not None and text.startswith(marks.system_start):
            system, mark, rest = text.removeprefix(marks.system_start).partition(marks.system_to_user)
            if mark:
                yield from self._turns(rest, ({"role": "system", "content": system},), whole=whole)

    def _turns(self, text: str, before: Messages, *, whole: bool) -> Iterator[Messages]:
        """Yield the messages of alternating turns; the last is the assistant's in `whole` texts, else the user's."""
        marks = self.marks
        contents: list[str] = []
        rest, separator = text, marks.user_to_assistant
        while separator:
            mark = marks.assistant_to_user if len(contents) % 2 else marks.user_to_assistant
            content, separator, rest = rest.partition(mark)
            contents.append(content)
        if len(contents) % 2 == (0 if whole else 1):
            roles = ("user", "assistant") * len(contents)
            yield (
                *before,
                *({"role": role, "content": content} for role, content in zip(roles, contents, strict=False)),
            )


@dataclass(frozen=True)
class Texts:
    """What is done with whole texts that may have a policy's template in them.

    They are taken apart (`policy`), or read by the judge as they are (`as_is`). Otherwise they must be plain
    texts that begin with their prompts: a judge of another family must not read the marks of a template.
    """

    policy: PolicyTexts | None = None
    as_is: bool = False

    def samples(
        self,
        queries: Sequence[str],
        prompts: Sequence[str] | None = None,
        labels: Sequence[Any] | None = None,
        step: int | None = None,
    ) -> list[Sample]:
        """Return the samples of whole texts, with or without the prompts with which they begin."""
        asked = [None] * len(queries) if prompts is None else prompts
        labels = [None] * len(queries) if labels is None else labels
        return [
            Sample(*self._apart(query, prompt, f"query {number}"), label, step)
            for number, (query, prompt, label) in enumerate(zip(queries, asked, labels, strict=True))
        ]

    def _apart(self, query: str, prompt: str | None, where: str) -> tuple[Prompt | None, str]:
        if self.as_is:
            return None, query
        if self.policy is not None:
            return self.policy.pair(query, prompt, where)
        if prompt is None or not query.startswith(prompt):
            raise ValueError(
                f"{where}: does not begin with its prompt, so the response is not known: {_REMEDY}"
            )
        if mark := _MARKS.search(prompt):
            raise ValueError(f"{where}: has a chat template's mark, {mark[0]!r}: {_REMEDY}")
        return prompt, query.removeprefix(prompt)


def _difference(text: str, other: str) -> str:
    """Return the first place where two texts differ."""
    both = zip(text, other, strict=False)
    place = next((i for i, (a, b) in enumerate(both) if a != b), min(len(text), len(other)))
    here, there = text[place : place + _SHOWN], other[place : place + _SHOWN]
    return f"first mismatch at character {place}: {here!r}, not {there!r}"
