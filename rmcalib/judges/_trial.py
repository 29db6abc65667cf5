"""A program that uses a tokenizer and its chat templates on short texts, in a process that may fail.

    python _trial.py FOLDER SECONDS

Only what always fails is looked for: an error of a template is reported when it is used; here, time and memory matter.
"""

import contextlib
import json
import os
import re
import sys
import time
from pathlib import Path

import jinja2.sandbox
import tokenizers

MEMORY = 16 * 2**30
TEXTS = ["Hello, what is 2 + 2? " * 8, "a" * 2000 + "!", " " * 2000, "1" * 2000, "\u00e9\n" * 500]


def limit(seconds: float) -> None:
    """End this process after some CPU time, or if it needs too much memory."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows and macOS have no such limits
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        most = int(time.process_time() + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))


def tokenize(folder: Path) -> None:
    """Tokenize the texts."""
    if (folder / "tokenizer.json").is_file():
        tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode_batch(TEXTS)
    elif (folder / "tokenizer.model").is_file():
        pieces = (folder / "tokenizer.model").read_bytes()
        if not re.match(rb"[A-Za-z0-9+/=]+ \d+\s", pieces):  # that would be tiktoken's format
            from sentencepiece import SentencePieceProcessor

            SentencePieceProcessor(model_proto=pieces).encode(TEXTS)


def render(folder: Path) -> None:
    """Apply all chat templates."""
    templates = [path.read_text("utf-8") for path in sorted(folder.glob("*.jinja"))]
    config = folder / "tokenizer_config.json"
    stated = json.loads(config.read_text("utf-8")).get("chat_template") if config.is_file() else None
    named = [entry.get("template") for entry in stated] if isinstance(stated, list) else [stated]
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(extensions=["jinja2.ext.loopcontrols"])
    environment.globals |= {"strftime_now": str, "raise_exception": str}
    messages = [{"role": "user", "content": TEXTS[0]}, {"role": "assistant", "content": TEXTS[0]}]
    for source in templates + [text for text in named if isinstance(text, str)]:
        try:
            environment.from_string(source).render(messages=messages, bos_token="<s>", eos_token="</s>")
        except MemoryError:
            raise
        except Exception:
            pass


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    limit(float(sys.argv[2]))
    tokenize(Path(sys.argv[1]))
    render(Path(sys.argv[1]))
