"""Convert prompts and responses to token ids, with the text that a reward model was trained on.

The text comes from the tokenizer's chat template, or from a built-in template for models without one. It is
tokenised with the tokenizer's defaults. If both the template and the tokenizer add a beginning-of-sequence
token, one of them is removed. (Masking it instead would shift every position by one.) `pooled_position` says
which token's hidden state gives the reward.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rmcalib._util.storage import within
from rmcalib._util.texts import parse_yaml, typed

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item

Message = dict[str, str]
Prompt = str | tuple[Message, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class Template:
    """How a conversation is written: the text before and after the message of each role."""

    user: tuple[str, str]
    assistant: tuple[str, str]
    start: str = ""
    system: tuple[str, str] | None = None  # None: the system message is put before the first user message
    default_system: str = ""

    def render(self, messages: Sequence[Message]) -> str:
        """Return `messages` as one string. The first is a user or system message."""
        system = ""
        if messages and messages[0]["role"] == "system":
            system, messages = messages[0]["content"], messages[1:]
        text = self.start
        if self.system is not None and (system or self.default_system):
            text += (system or self.default_system).join(self.system)
            system = ""
        for message in messages:
            role, content = message["role"], message["content"]
            if role not in ("user", "assistant"):
                raise ValueError(f"role {role!r}: this template has only system (first), user and assistant")
            if system and role == "user":
                content, system = f"{system}\n\n{content}", ""
            text += content.join(self.user if role == "user" else self.assistant)
        return text


_FILE = Path(__file__).parent / "templates.yaml"
TEMPLATES: dict[str, Template] = typed(
    dict[str, Template], parse_yaml(_FILE.read_bytes(), str(_FILE)), str(_FILE)
)

# Templates like Llama 3.2's write today's date into the text, so that scores would change from day to day.
# This macro replaces the clock: it is always 26 July 2024, which is the default date of those templates.
_PINNED_DATE = {"%d": "26", "%b": "Jul", "%B": "July", "%m": "07", "%Y": "2024", "%y": "24", "%A": "Friday"}
_PINNED_DATE |= dict.fromkeys(("%H", "%M", "%S"), "00")
_PINNED_CLOCK = (
    "{% macro strftime_now(format) %}{{ format"
    + "".join(f"|replace('{code}', '{value}')" for code, value in _PINNED_DATE.items())
    + " }}{% endmacro +%}"
)
_RENDER_SECONDS = 8.0  # for one response, which takes milliseconds


@dataclass(frozen=True)
class Encoded:
    """One response with its prompt as token ids.

    The first `prefix_len` ids are the same for all responses of the prompt. `truncated` means that the text
    was longer than the limit and its end was removed.
    """

    input_ids: tuple[int, ...]
    prefix_len: int
    truncated: bool

    def __len__(self) -> int:
        """Return the number of tokens, prompt included."""
        return len(self.input_ids)


def conversation(prompt: Prompt, response: str) -> list[Message]:
    """Return the messages of `prompt` followed by the assistant's `response`.

    >>> conversation("2 + 2?", "4")
    [{'role': 'user', 'content': '2 + 2?'}, {'role': 'assistant', 'content': '4'}]
    """
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(m) for m in prompt]
    return [*messages, {"role": "assistant", "content": response}]


def render(prompt: Prompt, response: str, tokenizer: Any = None, template: str | None = None) -> str:
    """Return one response with its prompt as the text that the model reads.

    `template` is a name in `TEMPLATES`. None: the tokenizer's chat template, with a fixed date.

    >>> render("2 + 2?", "4", template="openbmb")
    'User: 2 + 2?\\n\\nAssistant: 4\\n\\n'
    """
    return _in_time(lambda: _rendered(prompt, response, tokenizer, template))


def _rendered(prompt: Prompt, response: str, tokenizer: Any, template: str | None) -> str:
    messages = conversation(prompt, response)
    if template is not None:
        return well_formed(TEMPLATES[template].render(messages))
    return well_formed(_from_chat_template(messages, tokenizer))


def _in_time(call: Callable[[], T], progress: Callable[[], object] = lambda: None) -> T:
    """Return what a call that renders texts returns. A chat template that takes too long is given up."""
    try:
        return within(call, _RENDER_SECONDS, progress)
    except TimeoutError:
        raise ValueError("the model's chat template takes too long") from None


def _from_chat_template(messages: Sequence[Message], tokenizer: Any, **options: Any) -> str:
    """Apply the tokenizer's chat template, with a fixed date."""
    try:
        source = tokenizer.get_chat_template()
        source = _PINNED_CLOCK + source if "strftime_now" in source else source
        return str(
            tokenizer.apply_chat_template(list(messages), chat_template=source, tokenize=False, **options)
        )
    except Exception as error:  # a template can fail in any way, such as dividing by zero
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"the model's chat template does not accept these messages: {why}") from error


def encode(
    items: Sequence[Item],
    tokenizer: Any,
    *,
    max_length: int,
    template: str | None = None,
    append: int | None = None,
) -> list[tuple[Encoded, ...]]:
    """Convert every response of every item to at most `max_length` token ids.

    Longer texts lose their end, but keep the tokens that the tokenizer itself adds at the end (`[SEP]`) and
    the id in `append`. This is added to every text that does not end with it: some chat templates write it
    already. All texts are tokenised in one call.
    """
    pairs = [(item, number) for item in items for number in range(len(item.responses))]
    texts: list[str] = []

    def render_all() -> None:
        for item, number in pairs:
            texts.append(_rendered(item.prompt, item.responses[number], tokenizer, template))

    try:
        _in_time(render_all, progress=lambda: len(texts))
    except ValueError as error:
        item, number = pairs[len(texts)]
        raise ValueError(f"item {item.id!r}, response {number}: {error}") from error
    if not texts:
        return []
    cut = text_ids(texts, tokenizer, max_length=max_length, append=append)
    encoded, start = [], 0
    for item in items:
        rows = cut[start : start + len(item.responses)]
        start += len(rows)
        if not all(ids for ids, _ in rows):
            raise ValueError(f"item {item.id!r}: neither prompt nor response has any text")
        shared = common_prefix([ids for ids, _ in rows])
        encoded.append(tuple(Encoded(tuple(ids), shared, truncated) for ids, truncated in rows))
    return encoded


def text_ids(
    texts: Sequence[str], tokenizer: Any, *, max_length: int, append: int | None = None
) -> list[tuple[list[int], bool]]:
    """Return the token ids of each text, at most `max_length`, and whether it was truncated."""
    tokens = tokenizer(
        list(texts), return_special_tokens_mask=True, return_attention_mask=False, verbose=False
    )
    bos = getattr(tokenizer, "bos_token_id", None)
    cut = []
    for ids, mask in zip(tokens["input_ids"], tokens["special_tokens_mask"], strict=True):
        ended, n_trailing = _ended(_single_bos(ids, bos), _trailing(mask), append)
        cut.append(_cut(ended, n_trailing, max_length))
    return cut


def response_starts(
    items: Sequence[Item], encoded: Sequence[Sequence[Encoded]], tokenizer: Any, template: str | None = None
) -> list[list[int]]:
    """Return the position of each response's first token: after the prompt with the assistant's header.

    If the last token of the prompt merges with the first one of the response, it belongs to the response.
    """
    starts = []
    for item, rows in zip(items, encoded, strict=True):
        ids = question_ids(conversation(item.prompt, "")[:-1], tokenizer, template)
        starts.append([common_prefix([ids, list(row.input_ids)]) for row in rows])
    return starts


def question_ids(messages: Sequence[Message], tokenizer: Any, template: str | None = None) -> list[int]:
    """Return the token ids of messages, followed by the header of the assistant's turn."""
    if template is not None:
        # The last space belongs to the next token.
        text = (TEMPLATES[template].render(messages) + TEMPLATES[template].assistant[0]).rstrip(" ")
    else:
        text = _in_time(lambda: _from_chat_template(messages, tokenizer, add_generation_prompt=True))
    tokens = tokenizer(well_formed(text), return_special_tokens_mask=True, verbose=False)
    ids = tokens["input_ids"][: len(tokens["input_ids"]) - _trailing(tokens["special_tokens_mask"])]
    return _single_bos(ids, getattr(tokenizer, "bos_token_id", None))


def common_prefix(sequences: Sequence[list[int]]) -> int:
    """Return the length of the longest common prefix of all `sequences`.

    >>> common_prefix([[1, 2, 3, 4], [1, 2, 5], [1, 2, 3]])
    2
    """
    # The lexicographically smallest and largest differ at least as early as any other two.
    pairs = zip(min(sequences), max(sequences), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _single_bos(ids: list[int], bos: int | None) -> list[int]:
    return ids[1:] if bos is not None and ids[:2] == [bos, bos] else ids


def _trailing(special: list[int]) -> int:
    """Count the tokens that the tokenizer itself added at the end."""
    return next((count for count, added in enumerate(reversed(special)) if not added), 0)


def _ended(ids: list[int], n_trailing: int, append: int | None) -> tuple[list[int], int]:
    """Let `ids` end with the id in `append`; return them, and how many tokens at the end are to be kept.

    >>> _ended([5, 6], 0, 9), _ended([5, 9], 0, 9), _ended([5, 6], 1, None)
    (([5, 6, 9], 1), ([5, 9], 1), ([5, 6], 1))
    """
    if append is None:
        return ids, n_trailing
    if ids[-1:] == [append]:
        return ids, max(n_trailing, 1)
    return [*ids, append], n_trailing + 1


def _cut(ids: list[int], n_trailing: int, max_length: int) -> tuple[list[int], bool]:
    if len(ids) <= max_length:
        return ids, False
    n_trailing = min(n_trailing, max_length - 1)
    return ids[: max_length - n_trailing] + ids[len(ids) - n_trailing :], True


def well_formed(text: str) -> str:
    """Replace lone surrogates, which JSON allows and tokenizers and servers do not accept, by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def pooled_position(ids: Sequence[int], *, pooling: str = "checkpoint", pad: int | None = None) -> int:
    """Return the position in `ids` (without padding) whose hidden state is the input of the head.

    `checkpoint`: the last id that is not `pad`, or the last one if `pad` is None. So does the stock head,
    with which a checkpoint was trained and published, even if the padding token is the end-of-text token and
    the text ends with it. `last_token`: the last one.

    >>> pooled_position([5, 6, 7, 2], pad=2), pooled_position([5, 6, 7, 2], pad=None)
    (2, 3)
    """
    last = len(ids) - 1
    if pooling == "last_token" or pad is None:
        return last
    return next((position for position in range(last, -1, -1) if ids[position] != pad), 0)


def checkpoint_pad(config: Any) -> int | None:
    """Return the `pad_token_id` of a checkpoint's configuration (of its text part, if it has several)."""
    text_config = config.get_text_config() if hasattr(config, "get_text_config") else config
    pad: int | None = getattr(text_config, "pad_token_id", None)
    return pad
