"""Served reward models: loopback servers that answer like the real ones, and their failures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import rmcalib
from rmcalib.benchmarks import Item
from rmcalib.judges import Recipe, ScoredItem, load_judge, scored_chunks
from rmcalib.judges._inference.templates import conversation, encode, render
from rmcalib.judges._served.judge import EndpointJudge
from rmcalib.judges._served.squashed import why_squashed
from tests.hub.tiny import tiny_tokenizer
from tests.judges.reward_servers import ALWAYS_ONE, SIGN, Openrlhf, Sglang, Vllm, reward_of
from tests.judges.serving import Reply, Request, serving

ITEMS = [Item(f"p{n}", "Math", f"What is {n} + {n}?", (f"{2 * n}", f"{n}?", "\ud800"), 1) for n in range(34)]


def quick(url: str, name: str = "org/rm", **options: Any) -> EndpointJudge:
    judge = EndpointJudge(name, url, **{"timeout": 5.0, **options})
    object.__setattr__(judge._asked.client, "first_wait", 0.001)
    return judge


def scored(judge: EndpointJudge, items: list[Item] = ITEMS) -> list[ScoredItem]:
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
    asked = server.requests[-1].body
    assert asked["use_activation"] is False
    assert asked["add_generation_prompt"] is False


def test_what_a_run_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINE", "sk-secret")
    bench = rmcalib.load_benchmark("demo", limit=4)
    with serving(Vllm(root="/models/rm")) as server:
        scores = rmcalib.score(
            "org/rm", bench, endpoint=server.url, api_key_env="MINE", output=tmp_path, concurrency=4
        )
        assert server.paths().count("/classify") == 18 + 16 + 4  # probes, responses, the check at the end
        again = rmcalib.score("org/rm", bench, endpoint=server.url, output=tmp_path)
        assert server.paths().count("/classify") == 38 + 18
    manifest = scores.manifest
    assert manifest["endpoint"] == server.url
    assert manifest["server_version"] == "0.32.0"
    assert (manifest["served_model"], manifest["served_checkpoint"]) == ("org/rm", "/models/rm")
    assert manifest["kind"] == "endpoint"
    assert scores.n_tokens.min() > 0
    assert again.reward.tolist() == scores.reward.tolist()
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"sk-secret" not in path.read_bytes()


def test_the_right_name_is_sent() -> None:
    with serving(Vllm(model="rm", root="org/rm")) as server:
        assert quick(server.url).connection.server.model == "rm"
        assert quick(server.url, "org/other", served_name="rm").connection.server.model == "rm"
        with pytest.raises(ValueError, match=r"the server has 'rm', not 'org/other'.*--served-name"):
            quick(server.url, "org/other").identity()


def test_long_texts_are_cut_by_the_server() -> None:
    with serving(Vllm(max_length=90)) as server:
        results = scored(quick(server.url), [Item("a", "", "x", ("y", "y" * 300), 1)])
        assert results[0].truncated == (False, True)
        assert results[0].n_tokens[1] == 90
        with pytest.raises(ValueError, match="max_length: 91 is more than the 90 tokens"):
            quick(server.url, max_length=91).identity()


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


def test_reward_models_that_are_only_pooled() -> None:
    with serving(Vllm(paths=("/pooling",))) as server:
        judge = quick(server.url)
        assert scored(judge)[0].rewards[0] == reward_of(sent(ITEMS[0], "0"))
        assert judge.identity()["endpoint_path"] == "/pooling"


def test_older_servers_are_asked_by_the_older_name() -> None:
    with serving(Vllm(knows=("activation",))) as server:
        assert scored(quick(server.url))[0].rewards[0] == reward_of(sent(ITEMS[0], "0"))


def test_raw_rewards_between_0_and_1_are_fine_if_the_server_can_return_others() -> None:
    with serving(Vllm(rewards=lambda text: reward_of(text) / 20 + 0.5)) as server:
        assert min(scored(quick(server.url))[0].rewards) > 0


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (Vllm(knows=()), "all 8 rewards lie between 0 and 1, as after a sigmoid"),
        (Vllm(knows=(), squash=ALWAYS_ONE), "every reward is 1: the softmax of a single number"),
        (Vllm(knows=(), squash=SIGN), "every reward is 1 or -1"),
        (Vllm(rewards=lambda _: 3.0, squash=float), "different texts all have the reward 3"),
    ],
    ids=["sigmoid", "softmax", "l2", "constant"],
)
def test_squashed_numbers_are_refused_with_the_remedy(server: Vllm, reason: str) -> None:
    with serving(server) as it, pytest.raises(ValueError, match=f"{reason}.*--pooler-config"):
        next(iter(scored_chunks(quick(it.url), ITEMS)))


def test_a_stated_scale_allows_bounded_rewards() -> None:
    with serving(Vllm(knows=())) as server:
        assert len(scored(quick(server.url, recipe=Recipe("org/rm", scale="ratings")))) == 34


def test_a_server_that_does_not_serve_a_classifier() -> None:
    with (
        serving(Vllm(paths=())) as server,
        pytest.raises(ValueError, match="vllm serve MODEL --runner pooling"),
    ):
        quick(server.url).identity()


# Other servers


def test_sglang_gets_token_ids(folder: Path) -> None:
    with serving(Sglang(model=str(folder))) as server:
        judge = quick(server.url, str(folder))
        results = scored(judge)
        assert judge.about()["server_version"] == "0.5.9"
        assert judge.identity()["endpoint_kind"] == "sglang"
    for texts, got in zip(encode(ITEMS, tiny_tokenizer(), max_length=512), results, strict=True):
        assert got.rewards == tuple(reward_of(list(text.input_ids)) for text in texts)


def test_squashed_numbers_of_sglang_are_refused(folder: Path) -> None:
    with (
        serving(Sglang(str(folder), squash=ALWAYS_ONE)) as server,
        pytest.raises(ValueError, match="is 1: the"),
    ):
        quick(server.url, str(folder)).identity()


def test_openrlhf_gets_the_text_of_the_chat_template(folder: Path) -> None:
    with serving(Openrlhf()) as server:
        judge = quick(server.url, str(folder))
        results = scored(judge)
        assert judge.identity()["served_model"] is None
        with pytest.raises(ValueError, match="OpenRLHF's server has its own limit"):
            quick(server.url, str(folder), max_length=100).identity()
    for item, got in zip(ITEMS, results, strict=True):
        texts = [render(item.prompt, response, tiny_tokenizer()) for response in item.responses]
        assert got.rewards == tuple(reward_of(text) for text in texts)
        assert set(got.n_tokens) == {-1}


def test_openrlhf_needs_the_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with serving(Openrlhf()) as server, pytest.raises(ValueError, match="its tokenizer is needed here"):
        quick(server.url, str(tmp_path)).identity()


def test_a_server_of_an_unknown_kind() -> None:
    with serving(lambda _: Reply({}, 404)) as server, pytest.raises(ValueError, match="--endpoint-kind"):
        quick(server.url).identity()


# Faults


def test_temporary_failures_change_nothing() -> None:
    def faulty() -> Vllm:
        faults = [Reply("busy", 429, {"Retry-After": "0"}), Reply("oops", 500), Reply({"data": []}, cut=True)]
        return Vllm(faults={number: faults[number % 3] for number in range(40, 160, 7)})

    with serving(Vllm()) as server, serving(faulty()) as other:
        assert scored(quick(server.url)) == scored(quick(other.url))
        assert len(other.requests) > len(server.requests)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Reply({"error": {"message": "too long"}}, 400), "prompt 'p33': .*/classify: status 400: too long"),
        (Reply({"hello": 1}), "prompt 'p33': .*not the answer of a reward model's server of kind vllm"),
        (Reply({"data": [{"index": 0, "probs": []}], "usage": {"prompt_tokens": 1}}), "not the answer"),
        (Reply([1, 2]), "not the answer"),
        (Reply({"data": [{"index": 0, "probs": [1.0]}], "usage": {"prompt_tokens": 10**400}}), "not the ans"),
        (Reply(None, 302, {"Location": "http://elsewhere.example/"}), "redirects to http://elsewhere"),
        (Reply(b"[" + b" " * 17 * 2**20 + b"]"), "the answer is larger than 16 MiB"),
    ],
    ids=["400", "other", "no numbers", "list", "tokens", "redirect", "huge"],
)
def test_permanent_failures_name_the_prompt(fault: Reply, message: str) -> None:
    def answer(request: Request) -> Reply:
        last = request.path == "/classify" and "What is 33" in str(request.body)
        return fault if last else Vllm()(request)

    with serving(answer) as server, pytest.raises(ValueError, match=message):
        scored(quick(server.url))


def test_several_outputs_need_a_column() -> None:
    def two(request: Request) -> Reply:
        reply = Vllm()(request)
        if request.path == "/classify":
            row = reply.body["data"][0]
            row["probs"] = [row["probs"][0], row["probs"][0] * 2]
        return reply

    with serving(two) as server:
        with pytest.raises(ValueError, match="returns 2 numbers per text, not one reward"):
            scored(quick(server.url))
        rewards = scored(quick(server.url, recipe=Recipe("org/rm", column=1)))[0].rewards
        assert rewards[0] == 2 * reward_of(sent(ITEMS[0], "0"))
        with pytest.raises(ValueError, match="the recipe has column 2, but the server returns 2 numbers"):
            scored(quick(server.url, recipe=Recipe("org/rm", column=2)))


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        (
            {"model": "org/rm", "root": "/models/step-2"},
            "its checkpoint was 'org/rm' and is '/models/step-2'",
        ),
        ({"seed": 1}, "the rewards of the same texts have changed by"),
        ({"model": "other", "root": "other"}, "the server has 'other', not 'org/rm'|does not exist"),
    ],
    ids=["checkpoint", "weights", "model"],
)
def test_a_model_that_is_replaced_during_a_run_is_noticed(replaced: dict[str, Any], message: str) -> None:
    first, second, changed = Vllm(), Vllm(**replaced), False

    def answer(request: Request) -> Reply:
        return (second if changed else first)(request)

    with serving(answer) as server:
        chunks = scored_chunks(quick(server.url, concurrency=2), ITEMS)
        assert [one.id for one in next(chunks)] == [item.id for item in ITEMS[:32]]
        changed = True
        with pytest.raises(ValueError, match=message):
            next(chunks)


def test_weights_that_sglang_replaces_are_noticed(folder: Path) -> None:
    sglang = Sglang(str(folder))
    with serving(sglang) as server:
        chunks = scored_chunks(quick(server.url, str(folder)), ITEMS)
        next(chunks)
        sglang.weights = "step-2"
        with pytest.raises(ValueError, match="its weights was 'default' and is 'step-2'"):
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
    ("options", "message"),
    [
        ({"endpoint_kind": "tgi"}, "endpoint_kind: unknown 'tgi' .have: auto, vllm, sglang, openrlhf."),
        ({"endpoint": "localhost:8000"}, "endpoint: 'localhost:8000' is not an address"),
        ({"concurrency": 0}, "concurrency: must be at least 1"),
        ({"timeout": 0}, "timeout: must be more than 0"),
        ({"device": "cuda"}, "device: has no effect on a served model"),
        ({"revision": "main"}, "revision: has no effect on a served model"),
        ({"api_key_env": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE is not set"),
        ({"enpoint_kind": "vllm"}, "did you mean 'endpoint_kind'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_judge("org/rm", **{"endpoint": "http://localhost:1", **options})


def test_a_kind_of_server_needs_an_endpoint() -> None:
    with pytest.raises(ValueError, match="endpoint: org/rm needs the address of its server"):
        load_judge("org/rm", kind="endpoint")


def test_rewards_that_are_not_numbers() -> None:
    server = Vllm(rewards=lambda text: math.nan if "33" in str(text) else reward_of(text))
    with (
        serving(server) as it,
        pytest.raises(ValueError, match="prompt 'p33', response 0: the reward is nan"),
    ):
        scored(quick(it.url))


def test_one_reward_is_not_enough_to_detect_squashing() -> None:
    assert why_squashed([1.0]) is None
    assert why_squashed([0.5] * 4 + [0.2]) is None
