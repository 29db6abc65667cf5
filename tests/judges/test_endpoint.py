"""Served reward models: loopback servers that answer like the real ones, and their failures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import rmcalib
from rmcalib.benchmarks import Item
from rmcalib.judges import Recipe, ScoredItem, load_judge
from rmcalib.judges._http import Client, ServerError
from rmcalib.judges._judge import scored_chunks
from rmcalib.judges._server import find_server
from rmcalib.judges._templates import conversation, encode, render
from tests.hub.tiny import tiny_tokenizer
from tests.judges.reward_servers import ALWAYS_ONE, SIGN, Openrlhf, Sglang, Vllm, reward_of
from tests.judges.serving import Reply, Request, serving

ITEMS = [Item(f"p{n}", "Math", f"What is {n} + {n}?", (f"{2 * n}", f"{n}?", "\ud800"), 1) for n in range(34)]


def quick(url: str, name: str = "org/rm", **options: Any) -> Any:
    judge: Any = load_judge(name, kind="endpoint", endpoint=url, **{"timeout": 5.0, **options})
    object.__setattr__(judge.client, "first_wait", 0.001)
    return judge


def scored(judge: Any, items: list[Item] = ITEMS) -> list[ScoredItem]:
    return [one for chunk in scored_chunks(judge, items) for one in chunk]


def sent(item: Item, response: str) -> list[dict[str, str]]:
    """The messages of a response, as the client sends them."""
    return conversation(item.prompt, response.replace("\ud800", "\ufffd"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a tokenizer, and no weights."""
    tiny_tokenizer().save_pretrained(tmp_path / "rm")
    (tmp_path / "rm" / "config.json").write_text("{}")
    return tmp_path / "rm"


# vLLM


def test_vllm_gives_raw_rewards_in_order() -> None:
    with serving(Vllm()) as server:
        judge = quick(f"{server.url}/v1/", concurrency=5)
        counts: list[tuple[int, int]] = []
        chunks = list(judge.score(ITEMS, progress=lambda *numbers: counts.append(numbers)))
    assert [len(chunk) for chunk in chunks] == [32, 2]
    for item, got in zip(ITEMS, (one for chunk in chunks for one in chunk), strict=True):
        assert got.rewards == tuple(reward_of(sent(item, text)) for text in item.responses)
    assert sum(n for n, _ in counts) == 102
    assert server.most_at_once <= 5
    asked = [request.body for request in server.requests if request.path == "/classify"][-1]
    assert asked["use_activation"] is False
    assert asked["add_generation_prompt"] is False


def test_what_a_run_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINE", "sk-secret")
    bench = rmcalib.load_benchmark("demo", limit=4)
    with serving(Vllm(root="/models/rm")) as server:
        scores = rmcalib.score(
            "org/rm", bench, endpoint=server.url, api_key_env="MINE", output=tmp_path, concurrency=4
        )
        asked = server.paths().count("/classify")  # probes and canaries, responses, the check at the end
        again = rmcalib.score("org/rm", bench, endpoint=server.url, output=tmp_path)
        assert server.paths().count("/classify") == 2 * asked - 16 - 4
    manifest = scores.manifest
    assert manifest["endpoint"] == server.url
    assert manifest["server_version"] == "0.32.0"
    assert (manifest["served_model"], manifest["served_checkpoint"]) == ("org/rm", "/models/rm")
    assert manifest["kind"] == "endpoint"
    assert scores.n_tokens.min() > 0
    assert again.reward.tolist() == scores.reward.tolist()
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"sk-secret" not in path.read_bytes()


def test_an_escaped_key_does_not_reach_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key = "sk-very/secret-123"
    monkeypatch.setenv("RMCALIB_API_KEY", key)
    vllm = Vllm()

    def answer(request: Request) -> Reply:
        if request.path == "/version":
            return Reply(json.dumps({"version": f"1 {key}"}).replace("/", "\\/").encode())
        return vllm(request)

    with serving(answer) as server:
        bench = rmcalib.load_benchmark("demo", limit=2)
        scores = rmcalib.score("org/rm", bench, endpoint=server.url, output=tmp_path)
    assert scores.manifest["server_version"] == "1 ***"
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or key.encode() not in path.read_bytes()


def test_long_texts_are_cut_by_the_server() -> None:
    with serving(Vllm(max_length=90)) as server:
        results = scored(quick(server.url), [Item("a", "", "x", ("y", "y" * 300), 1)])
        assert results[0].truncated == (False, True)
        assert results[0].n_tokens[1] == 90


def test_models_that_need_another_text_get_token_ids(folder: Path) -> None:
    recipe = Recipe(str(folder), template="openbmb", append_token_id=7, sign=-1.0)
    with serving(Vllm(model=str(folder))) as server:
        judge = quick(server.url, str(folder), recipe=recipe)
        results = scored(judge)
        assert judge.identity()["texts_by"].startswith(f"{folder}@")
    encoded = encode(ITEMS, tiny_tokenizer(), max_length=4096, template="openbmb", append=7)
    for texts, got in zip(encoded, results, strict=True):
        assert got.rewards == tuple(-reward_of(list(text.input_ids)) for text in texts)
        assert got.n_tokens == tuple(len(text) for text in texts)


def test_texts_can_be_tokenised_here(folder: Path) -> None:
    with serving(Vllm(model=str(folder))) as server:
        results = scored(quick(server.url, str(folder), tokenize_here=True, max_length=16))
    for texts, got in zip(encode(ITEMS, tiny_tokenizer(), max_length=16), results, strict=True):
        assert got.rewards == tuple(reward_of(list(text.input_ids)) for text in texts)
        assert got.truncated == tuple(text.truncated for text in texts)


def test_models_that_vllm_does_not_serve_as_classifiers() -> None:
    with serving(Vllm(paths=("/pooling",))) as it:
        assert scored(quick(it.url), ITEMS[:1])[0].rewards[0] == reward_of(sent(ITEMS[0], "0"))


def test_raw_rewards_between_0_and_1_are_fine_if_the_server_can_return_others() -> None:
    with serving(Vllm(rewards=lambda text: reward_of(text) / 20 + 0.5)) as server:
        assert min(scored(quick(server.url))[0].rewards) > 0


@pytest.mark.parametrize(
    "server",
    [
        Vllm(knows=()),
        Vllm(knows=(), squash=ALWAYS_ONE),
        Vllm(knows=(), squash=SIGN),
        Vllm(rewards=lambda _: 3.0, squash=float),
    ],
    ids=["sigmoid", "softmax", "l2", "constant"],
)
def test_squashed_numbers_are_refused_with_the_remedy(server: Vllm) -> None:
    with serving(server) as it, pytest.raises(ValueError, match="--pooler-config"):
        quick(it.url).identity()


def test_a_stated_scale_allows_bounded_rewards() -> None:
    with serving(Vllm(knows=())) as server:
        assert len(scored(quick(server.url, recipe=Recipe("org/rm", scale="rating")))) == 34


@pytest.mark.parametrize(
    ("answer", "options", "named"),
    [
        (Vllm(model="rm", root="rm"), {}, "served_name"),
        (Vllm(max_length=90), {"max_length": 91}, "max_length"),
        (Vllm(paths=()), {}, "--runner pooling"),
        (lambda _: Reply({}, 404), {}, "endpoint_kind"),
    ],
    ids=["name", "length", "classifier", "kind"],
)
def test_servers_that_do_not_fit(answer: Any, options: dict[str, Any], named: str) -> None:
    with serving(answer) as server, pytest.raises(ValueError, match=named):
        quick(server.url, **options).identity()


@pytest.mark.parametrize(
    ("path", "content", "named"),
    [
        ("/v1/models", {"data": [{"id": "org/rm", "owned_by": ["vllm"]}, {"owned_by": {}}]}, "endpoint_kind"),
        ("/openapi.json", {"paths": 5}, "endpoint_kind"),
        ("/openapi.json", {"paths": ["/get_reward"]}, "endpoint_kind"),
        ("/v1/models", Reply({}, 307, {"Location": "http://localhost:1/"}), "redirect"),
    ],
)
def test_odd_answers(path: str, content: Any, named: str) -> None:
    answer = content if isinstance(content, Reply) else Reply(content)
    with (
        serving(lambda request: answer if request.path == path else Reply({}, 404)) as server,
        pytest.raises(ServerError, match=named),
    ):
        quick(server.url).identity()


@pytest.mark.parametrize("length", [-7, 0, True, "long"])
def test_an_impossible_length_is_not_believed(length: Any) -> None:
    with serving(Vllm(max_length=length)) as server:
        assert find_server(Client(server.url), "org/rm").max_length is None


def test_a_name_of_the_server() -> None:
    with serving(Vllm(model="rm", root="org/rm")) as server:
        assert quick(server.url).identity()["served_model"] == "rm"
        assert quick(server.url, "org/other", served_name="rm").identity()["served_model"] == "rm"


# Other servers


def test_sglang_gets_token_ids(folder: Path) -> None:
    with serving(Sglang(model=str(folder))) as server:
        judge = quick(server.url, str(folder))
        results = scored(judge)
        assert judge.about()["server_version"] == "0.5.9"
        assert judge.identity()["endpoint_kind"] == "sglang"
    for texts, got in zip(encode(ITEMS, tiny_tokenizer(), max_length=512), results, strict=True):
        assert got.rewards == tuple(reward_of(list(text.input_ids)) for text in texts)


def test_openrlhf_gets_the_text_of_the_chat_template(folder: Path) -> None:
    with serving(Openrlhf()) as server:
        judge = quick(server.url, str(folder))
        results = scored(judge)
        assert judge.identity()["served_model"] is None
        with pytest.raises(ValueError, match="max_length"):
            quick(server.url, str(folder), max_length=100).identity()
    for item, got in zip(ITEMS, results, strict=True):
        texts = [render(item.prompt, response, tiny_tokenizer()) for response in item.responses]
        assert got.rewards == tuple(reward_of(text) for text in texts)
        assert set(got.n_tokens) == {-1}


# Faults


def test_temporary_failures_change_nothing() -> None:
    def faulty() -> Vllm:
        faults = [Reply("busy", 429, {"Retry-After": "0"}), Reply("oops", 500), Reply({"data": []}, cut=True)]
        return Vllm(faults={number: faults[number % 3] for number in range(40, 160, 7)})

    with serving(Vllm()) as server, serving(faulty()) as other:
        assert scored(quick(server.url)) == scored(quick(other.url))
        assert len(other.requests) > len(server.requests)


@pytest.mark.parametrize(
    "fault",
    [
        Reply({"error": {"message": "too long"}}, 400),
        Reply({"hello": 1}),
        Reply({"data": [{"index": 0, "probs": []}], "usage": {"prompt_tokens": 1}}),
        Reply([1, 2]),
        Reply({"data": [{"index": 0, "probs": [1.0]}], "usage": {"prompt_tokens": 10**400}}),
        Reply({"data": [{"index": 0, "probs": [math.nan]}], "usage": {"prompt_tokens": 1}}),
        Reply(None, 302, {"Location": "http://elsewhere.example/"}),
        Reply(b"[" + b" " * 17 * 2**20 + b"]"),
    ],
    ids=["400", "other", "no numbers", "list", "tokens", "nan", "redirect", "huge"],
)
def test_permanent_failures_name_the_prompt(fault: Reply) -> None:
    def answer(request: Request) -> Reply:
        last = request.path == "/classify" and "What is 33" in str(request.body)
        return fault if last else Vllm()(request)

    with serving(answer) as server, pytest.raises(ValueError, match="prompt 'p33'") as caught:
        scored(quick(server.url), ITEMS[32:])
    assert "\n" not in str(caught.value)


def test_several_outputs_need_a_column() -> None:
    def two(request: Request) -> Reply:
        reply = Vllm()(request)
        if request.path == "/classify":
            row = reply.body["data"][0]
            row["probs"] = [row["probs"][0], row["probs"][0] * 2]
        return reply

    with serving(two) as server:
        with pytest.raises(ValueError, match="column"):
            scored(quick(server.url))
        rewards = scored(quick(server.url, recipe=Recipe("org/rm", column=1)))[0].rewards
        assert rewards[0] == 2 * reward_of(sent(ITEMS[0], "0"))
        with pytest.raises(ValueError, match="column 2"):
            scored(quick(server.url, recipe=Recipe("org/rm", column=2)))


@pytest.mark.parametrize(
    "replaced",
    [{"model": "org/rm", "root": "/models/step-2"}, {"seed": 1}, {"model": "other", "root": "other"}],
    ids=["checkpoint", "weights", "model"],
)
def test_a_model_that_is_replaced_during_a_run_is_noticed(replaced: dict[str, Any]) -> None:
    first, second, changed = Vllm(), Vllm(**replaced), False

    def answer(request: Request) -> Reply:
        return (second if changed else first)(request)

    with serving(answer) as server:
        chunks = scored_chunks(quick(server.url, concurrency=2), ITEMS)
        assert [one.id for one in next(chunks)] == [item.id for item in ITEMS[:32]]
        changed = True
        with pytest.raises(ValueError):
            next(chunks)


def test_weights_that_sglang_replaces_are_noticed(folder: Path) -> None:
    sglang = Sglang(str(folder))
    with serving(sglang) as server:
        chunks = scored_chunks(quick(server.url, str(folder)), ITEMS)
        next(chunks)
        sglang.weights = "step-2"
        with pytest.raises(ValueError, match="step-2"):
            next(chunks)


def test_a_killed_run_continues(tmp_path: Path) -> None:
    bench = rmcalib.load_benchmark("demo", limit=48)

    def answer(request: Request) -> Reply:
        return Reply("down", 400) if request.path == "/classify" and request.number > 180 else Vllm()(request)

    with serving(answer) as server, serving(Vllm()) as other:
        with pytest.raises(ValueError, match="down"):
            rmcalib.score("org/rm", bench, endpoint=server.url, output=tmp_path, concurrency=2)
        # It continues even if the server has moved to another address.
        resumed = rmcalib.score("org/rm", bench, endpoint=other.url, output=tmp_path)
        assert len([r for r in other.requests if r.path == "/classify"]) < 120
        whole = rmcalib.score("org/rm", bench, endpoint=other.url)
    assert resumed.reward.tolist() == whole.reward.tolist()


# Bad input


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"endpoint_kind": "tgi"}, "endpoint_kind.*vllm.*sglang.*openrlhf"),
        ({"endpoint": "localhost:8000"}, "localhost:8000"),
        ({"concurrency": 0}, "concurrency"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"max_length": 7}, "max_length"),
        ({"device": "cuda"}, "device"),
        ({"api_key_env": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE"),
        ({"enpoint_kind": "vllm"}, "did you mean 'endpoint_kind'"),
        ({"endpoint": None, "kind": "endpoint"}, "endpoint"),
        ({"endpoint": None, "served_name": "x", "kind": "policy"}, "served_name"),
    ],
)
def test_bad_settings(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        load_judge("org/rm", **{"endpoint": "http://localhost:1", **options})
