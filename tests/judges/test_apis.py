"""APIs of rewards: `serve` reads what clients write, and clients read what it answers; nothing else is understood."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from rmcalib.judges._settings import ServedSettings
from rmcalib.judges.apis import APIS, UNKNOWN, api_of
from rmcalib.judges.apis._api import Api
from rmcalib.judges.apis.samples import Scored
from rmcalib.live.policy import Texts

TEXTS: dict[str, list[Any]] = {
    "texts": ["<s>Why? Because.", "<s>Why? No."],
    "tokens": [[1, 5, 6], [1, 7]],
    "messages": [
        [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": text}]
        for text in ("Because.", "No.")
    ],
}


def from_contributing() -> Api:
    """The class that CONTRIBUTING shows."""
    page = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (block,) = (
        one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "class Plain(Api)" in one
    )
    names: dict[str, Any] = {}
    exec(block, names)  # our own page
    plain: Api = names["Plain"]()
    return plain


BOTH_WAYS = [api for api in (*APIS, from_contributing()) if api.paths and api.keys]


@pytest.mark.parametrize("api", BOTH_WAYS, ids=lambda api: api.name)
def test_serve_reads_what_clients_write_and_clients_read_what_it_answers(api: Api) -> None:
    bodies = [json.loads(json.dumps(body)) for body in api.write(TEXTS[api.reads], 100)]
    samples = [sample for body in bodies for sample in api.read(body, Texts(as_is=True))]
    responses = [text if isinstance(text, str) else text[-1]["content"] for text in TEXTS[api.reads]]
    assert [sample.response for sample in samples] == responses
    rewards = [-1.5, 0.25]
    scored = [Scored(reward, reward, None, outside=False) for reward in rewards]
    for path in api.served_at:
        answer = json.loads(json.dumps(api.answer(path, "rm", scored)))
        assert api.rows(answer) == [[reward] for reward in rewards]


def test_vllm_takes_token_ids_and_texts_too() -> None:
    vllm = next(api for api in APIS if api.name == "vllm")
    for texts in (TEXTS["tokens"], TEXTS["texts"]):
        (body,) = vllm.write(texts, 100)
        read = vllm.read(body, Texts())
        assert [
            list(one.response) if isinstance(one.response, tuple) else one.response for one in read
        ] == texts


def test_each_server_is_recognised_by_what_it_reports() -> None:
    known = {"vllm": ({"vllm"}, ()), "sglang": ({"sglang"}, ()), "openrlhf": (set(), ("/get_reward",))}
    for name, (owners, paths) in known.items():
        assert [api.name for api in APIS if api.recognise(owners, paths)] == [name]
    assert not [
        api.name for api in (*APIS, UNKNOWN) if api.recognise({"other", "", "slime"}, ("/", "/score"))
    ]


def test_apis_that_can_be_asked_are_choices_of_the_setting() -> None:
    kinds = get_args(get_type_hints(ServedSettings, include_extras=True)["endpoint_kind"])
    assert {*kinds} == {"auto", *(api.name for api in APIS if api.paths)}


def test_no_request_is_of_two_apis() -> None:
    for api in APIS:
        for path in api.served_at:
            for keys in api.keys:
                assert api_of(path, dict.fromkeys(keys, "x")) is api
