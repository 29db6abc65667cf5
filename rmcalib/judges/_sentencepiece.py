"""Tokenizers whose only file is `tokenizer.model`, and whose class is code that must not run.

transformers reads such a file for its built-in classes. For others, such as InternLM2's, the tokenizer is
built here from the pieces in the file, and compared with the sentencepiece library on some texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmcalib._util.files import read_object
from rmcalib._util.hub import HubError

_TRIED = ("Hello, what is 2 + 2?\nIt is four.", "a  b\n\n\tx=1;", "Größe 東京 🙂", " x")
_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")


def read_sentencepiece(name: str, folder: Path) -> Any:
    """Return the tokenizer of a folder with `tokenizer.model` and `tokenizer_config.json`."""
    from sentencepiece import SentencePieceProcessor
    from tokenizers import AddedToken, processors
    from transformers import PreTrainedTokenizerFast

    config = read_object(folder / "tokenizer_config.json")
    pieces = SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    added = config.get("added_tokens_decoder")
    added = {int(key): value for key, value in added.items()} if isinstance(added, Mapping) else {}
    tokenizer = _byte_pairs(pieces, {key: str(value["content"]) for key, value in added.items()})
    for text in _TRIED:
        if tokenizer.encode(text, add_special_tokens=False).ids != pieces.encode(text):
            raise HubError(
                f"{name}: its tokenizer.model is of a kind that can only be read by the model's own code: "
                "save a tokenizer.json beside it"
            )
    for key, value in sorted(added.items()):
        flags = {flag: value.get(flag, False) for flag in ("lstrip", "rstrip", "single_word", "normalized")}
        tokenizer.add_special_tokens([AddedToken(value["content"], special=True, **flags)])
        if tokenizer.token_to_id(value["content"]) != key:
            raise HubError(f"{name}: tokenizer_config.json: {value['content']!r} cannot have the id {key}")
    special = {key: _text(config.get(key)) for key in _SPECIAL}
    if config.get("add_bos_token", True) and (bos := special["bos_token"]) is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=None, special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    make: Any = PreTrainedTokenizerFast
    fast = make(
        tokenizer_object=tokenizer, **{key: text for key, text in special.items() if text is not None}
    )
    template = folder / "chat_template.jinja"
    fast.chat_template = template.read_text("utf-8") if template.is_file() else config.get("chat_template")
    return fast


def _byte_pairs(pieces: Any, renamed: Mapping[int, str]) -> Any:
    """Return a byte-pair tokenizer with sentencepiece's pieces; unused ones may be renamed to special tokens."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    names = [pieces.id_to_piece(index) for index in range(len(pieces))]
    rank = {piece: index for index, piece in enumerate(names)}
    merges = [
        (rank[piece], rank[piece[:cut]], rank[piece[cut:]], piece[:cut], piece[cut:])
        for piece in names
        for cut in range(1, len(piece))
        if piece[:cut] in rank and piece[cut:] in rank
    ]
    unknown = names[pieces.unk_id()]
    for index, content in renamed.items():
        if index < len(names) and content not in rank:
            names[index] = content
    vocabulary = {piece: index for index, piece in enumerate(names)}
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=[merge[3:] for merge in sorted(merges)],
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    has_prefix = pieces.encode("x", out_type=str)[0].startswith("▁")
    prefix = [normalizers.Prepend("▁")] if has_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def _text(token: Any) -> str | None:
    """Return a special token as text: tokenizer_config.json may have its content, or more about it."""
    content = token.get("content") if isinstance(token, Mapping) else token
    return content if isinstance(content, str) else None
