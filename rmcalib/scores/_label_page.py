"""The page to label with: one file that works without a network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from typing import Any

import numpy as np

from rmcalib._util.files import json_hash
from rmcalib._util.texts import script_json, source_hash
from rmcalib.scores._joining import FROM_STEP, ID, INCLUSION, TEXT, UNSHOWN

DOWNLOADED = "~/Downloads/labels.jsonl"
"""Where most browsers save the labels of a page, as a word of a command."""


def label_page(rows: Sequence[Mapping[str, Any]], *, ask: str, seed: int) -> str:
    """Return the page for rows of a `LabelSheet`. Responses are shuffled; rewards are not in it.

    Its policy allows its own script and style, and nothing from elsewhere.
    """
    rng = np.random.default_rng(seed)
    items = []
    for _, group in groupby(rows, key=lambda row: row["prompt"]):
        of_prompt = list(group)
        responses = [
            {
                "response": row["response"],
                "text": _shown(row[TEXT]) if TEXT in row else None,
                "label": row["label"],
                "about": {ID: _shown(row[ID])} if row.get(ID) else {},
            }
            for row in of_prompt
        ]
        items.append(
            {
                "prompt": of_prompt[0]["prompt"],
                "about": {
                    name: of_prompt[0][name] for name in (INCLUSION, FROM_STEP) if name in of_prompt[0]
                },
                "text": _shown(of_prompt[0].get("prompt_text") or of_prompt[0]["prompt"]),
                "fixed": any(row["label"] is not None for row in of_prompt),
                "responses": [responses[i] for i in rng.permutation(len(of_prompt))],
            }
        )
    script, style = _asset("label.js"), _asset("label.css")
    policy = (
        f"default-src 'none'; script-src {source_hash(script)}; style-src {source_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "style": style,
        "script": script,
        "data": script_json({"ask": ask, "key": json_hash([ask, items])[:16], "items": items}),
    }
    # In one pass: a text may hold what looks like a place for another part.
    return re.sub(r"@(policy|style|script|data)@", lambda match: parts[match[1]], _asset("label.html"))


def _asset(name: str) -> str:
    return files("rmcalib.scores").joinpath(name).read_text(encoding="utf-8")


def _shown(text: Any) -> str:
    """Return a text without characters that change how other text is displayed."""
    return UNSHOWN.sub("\ufffd", str(text or "").replace("\r\n", "\n"))
