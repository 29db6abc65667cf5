"""From a prompt and its responses to token ids: the text a reward model was trained on, and nothing else.

The text comes from the tokenizer's own chat template, or from a named template for models that have none. The
ids follow one rule: tokenise as the tokenizer does by itself, and drop a beginning-of-sequence token that is
there twice, because the template wrote one and the tokenizer added another. (Masking the second one instead
would shift every position by one.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item

Message = dict[str, str]
Prompt = str | tuple[Message, ...]


@dataclass(frozen=True)
class Template:
    """How a conversation is written down: what stands before and after the text of each role."""

    user: tuple[str, str]
    assistant: tuple[str, str]
    start: str = ""
    system: tuple[str, str] | None = None  # None: the system's text goes in front of the first user's
    default_system: str = ""

    def render(self, messages: Sequence[Message]) -> str:
        """Write `messages` (first the user's, or the system's) as one string."""
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
                raise ValueError(f"role {role!r}: this template knows system (first), user and assistant")
            if system and role == "user":
                content, system = f"{system}\n\n{content}", ""
            text += content.join(self.user if role == "user" else self.assistant)
        return text


TEMPLATES: dict[str, Template] = {
    "raw": Template(user=("", ""), assistant=("", "")),
    "oasst_pythia": Template(
        user=("<|prompter|>", "<|endoftext|>"), assistant=("<|assistant|>", "<|endoftext|>")
    ),
    "mistral": Template(user=("[INST] ", " [/INST] "), assistant=("", "</s>")),
    "Yi-34b-chat": Template(
        user=("<|im_start|>user\n", "<|im_end|>\n"),
        assistant=("<|im_start|>assistant\n", "<|im_end|>\n"),
        system=("<|im_start|>system\n", "<|im_end|>\n"),
    ),
    "pku-align": Template(
        user=("USER: ", " "), assistant=("ASSISTANT: ", " "), start="BEGINNING OF CONVERSATION: "
    ),
    "openbmb": Template(user=("User: ", "\n\n"), assistant=("Assistant: ", "\n\n")),
    "Ziya": Template(user=("Human: ", "\n\n"), assistant=("Assistant: ", "\n\n"), start="\n\n"),
    "Robin": Template(
        user=("###Human:\n", "\n"),
        assistant=("###Assistant:\n", "\n"),
        system=("", "\n"),
        default_system="A chat between a curious human and an artificial intelligence assistant. "
        "The assistant gives helpful, detailed, and polite answers to the human's questions.",
    ),
}

# Templates like Llama 3.2's write today's date into the text, and the scores would change from day to day.
# This macro stands in for the clock: it is always 26 July 2024, the date those templates fall back to.
_PINNED_DATE = {"%d": "26", "%b": "Jul", "%B": "July", "%m": "07", "%Y": "2024", "%y": "24", "%A": "Friday"}
_PINNED_CLOCK = (
    "{% macro strftime_now(format) %}{{ format"
    + "".join(f"|replace('{code}', '{value}')" for code, value in _PINNED_DATE.items())
    + "|replace('%H', '00')|replace('%M', '00')|replace('%S', '00') }}{% endmacro +%}"
)


@dataclass(frozen=True)
class Encoded:
    """One response with its prompt as token ids.

    The first `prefix_len` ids are the same for all responses of the prompt. `truncated` says that the text
    was longer than the limit and its end was cut off; `empty` that the response has no text.
    """

    input_ids: tuple[int, ...]
    prefix_len: int
    truncated: bool
    empty: bool

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
    """Write one response with its prompt as the text the model reads.

    `template` is a name in `TEMPLATES`; None means the tokenizer's own chat template, with its clock stopped.

    >>> render("2 + 2?", "4", template="openbmb")
    'User: 2 + 2?\\n\\nAssistant: 4\\n\\n'
    """
    messages = conversation(prompt, response)
    if template is not None:
        if template not in TEMPLATES:
            raise ValueError(f"template: unknown {template!r} (have: {', '.join(TEMPLATES)})")
        return _well_formed(TEMPLATES[template].render(messages))
    if not getattr(tokenizer, "chat_template", None):
        name = getattr(tokenizer, "name_or_path", "") or "this model"
        raise ValueError(
            f"the tokenizer of {name} has no chat template: name one in the model's recipe "
            f"(template: {' | '.join(TEMPLATES)})"
        )
    source = tokenizer.get_chat_template()
    if "strftime_now" in source:
        source = _PINNED_CLOCK + source
    import jinja2

    try:
        text: str = tokenizer.apply_chat_template(messages, chat_template=source, tokenize=False)
    except jinja2.TemplateError as error:
        raise ValueError(f"the model's chat template refuses these messages: {error}") from error
    return _well_formed(text)


def encode(
    items: Sequence[Item],
    tokenizer: Any,
    *,
    max_length: int,
    template: str | None = None,
    append: int | None = None,
) -> list[tuple[Encoded, ...]]:
    """Turn every response of every item into token ids, at most `max_length` of them.

    What is too long loses the end of its text; the tokens that the tokenizer itself puts at the end (`[SEP]`)
    and the id to `append` after every text stay. All texts go through the tokenizer in one call.
    """
    if max_length < 1:
        raise ValueError(f"max_length: must be at least 1, got {max_length}")
    texts: list[str] = []
    for item in items:
        for number, response in enumerate(item.responses):
            try:
                texts.append(render(item.prompt, response, tokenizer, template))
            except ValueError as error:
                raise ValueError(f"item {item.id!r}, response {number}: {error}") from error
    if not texts:
        return []
    tokens = tokenizer(texts, return_special_tokens_mask=True, return_attention_mask=False, verbose=False)
    bos = getattr(tokenizer, "bos_token_id", None)
    end = [] if append is None else [append]
    cut = [
        _cut(_single_bos(ids, bos) + end, _trailing(mask) + len(end), max_length)
        for ids, mask in zip(tokens["input_ids"], tokens["special_tokens_mask"], strict=True)
    ]
    encoded, start = [], 0
    for item in items:
        rows = cut[start : start + len(item.responses)]
        start += len(rows)
        if not all(ids for ids, _ in rows):
            raise ValueError(f"item {item.id!r}: neither prompt nor response has any text")
        shared = common_prefix([ids for ids, _ in rows])
        encoded.append(
            tuple(
                Encoded(tuple(ids), shared, truncated, not response.strip())
                for (ids, truncated), response in zip(rows, item.responses, strict=True)
            )
        )
    return encoded


def response_starts(
    items: Sequence[Item], encoded: Sequence[Sequence[Encoded]], tokenizer: Any, template: str | None = None
) -> list[list[int]]:
    """Return where each response begins: after the prompt, written so that the assistant speaks next.

    If the prompt's last token merges with the response's first one, that token counts as the response's.
    """
    starts = []
    for item, rows in zip(items, encoded, strict=True):
        ids = question_ids(conversation(item.prompt, "")[:-1], tokenizer, template)
        starts.append([common_prefix([ids, list(row.input_ids)]) for row in rows])
    return starts


def question_ids(messages: Sequence[Message], tokenizer: Any, template: str | None = None) -> list[int]:
    """Return the token ids of messages, written so that the assistant speaks next."""
    if template is not None:
        # Without the last space, which belongs to the next token.
        text = (TEMPLATES[template].render(messages) + TEMPLATES[template].assistant[0]).rstrip(" ")
    else:
        import jinja2

        source = tokenizer.get_chat_template()
        source = _PINNED_CLOCK + source if "strftime_now" in source else source
        try:
            text = tokenizer.apply_chat_template(
                list(messages), chat_template=source, tokenize=False, add_generation_prompt=True
            )
        except jinja2.TemplateError as error:
            raise ValueError(f"the model's chat template refuses these messages: {error}") from error
    tokens = tokenizer(_well_formed(text), return_special_tokens_mask=True, verbose=False)
    ids = tokens["input_ids"][: len(tokens["input_ids"]) - _trailing(tokens["special_tokens_mask"])]
    return _single_bos(ids, getattr(tokenizer, "bos_token_id", None))


def common_prefix(sequences: Sequence[list[int]]) -> int:
    """Return how many ids at the beginning are the same in all `sequences`.

    >>> common_prefix([[1, 2, 3, 4], [1, 2, 5], [1, 2, 3]])
    2
    """
    # The lexicographically smallest and largest differ at least as early as any other two.
    first, last = min(sequences), max(sequences)
    for position, (a, b) in enumerate(zip(first, last, strict=False)):
        if a != b:
            return position
    return min(len(first), len(last))


def _single_bos(ids: list[int], bos: int | None) -> list[int]:
    return ids[1:] if bos is not None and ids[:2] == [bos, bos] else ids


def _trailing(special: list[int]) -> int:
    """Count the tokens that the tokenizer itself added at the end."""
    return next((count for count, added in enumerate(reversed(special)) if not added), 0)


def _cut(ids: list[int], n_trailing: int, max_length: int) -> tuple[list[int], bool]:
    if len(ids) <= max_length:
        return ids, False
    n_trailing = min(n_trailing, max_length - 1)
    return ids[: max_length - n_trailing] + ids[len(ids) - n_trailing :], True


def _well_formed(text: str) -> str:
    """Replace lone surrogates, which JSON can carry and no tokenizer takes, by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
