"""Which extra of rmcalib installs a library that is not there."""

from __future__ import annotations

_MODELS = (
    *("accelerate", "datasets", "fsspec", "httpx", "huggingface_hub", "psutil", "regex", "safetensors"),
    *("sentencepiece", "tokenizers", "torch", "transformers", "upath"),
)
_TABULAR = ("pooch", "sklearn", "threadpoolctl")
_SERVE = ("httptools", "uvicorn")
_SAME_NAME = ("peft", "ray", "trl")
_EXTRA_OF = {
    **dict.fromkeys(_MODELS, "models"),
    **dict.fromkeys(_TABULAR, "tabular"),
    **dict.fromkeys(_SERVE, "serve"),
    "openpyxl": "excel",
    **{name: name for name in _SAME_NAME},
}


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """Return what to install, in one line, if one of our extras has the library; None otherwise.

    >>> missing_extra(ModuleNotFoundError("No module named 'torch'", name="torch"))
    "this needs 'torch', which is not installed: pip install 'rmcalib[models]'"
    """
    library = (error.name or "").partition(".")[0]
    extra = _EXTRA_OF.get(library)
    if extra is None:
        return None
    return f"this needs {library!r}, which is not installed: pip install 'rmcalib[{extra}]'"
