"""Plans: which models, in which order, and why some are skipped."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rmcalib.batch import Cluster, Listed, Selection
from rmcalib.batch._batch import Job
from rmcalib.batch._models import read_models
from rmcalib.batch._plan import Machine, estimated_tokens, make_plan
from rmcalib.batch._ray_cluster import gpus_for

from rmcalib._util.sizes import parse_parameters
from rmcalib.benchmarks import load_benchmark
from rmcalib.judges import LoadOptions, Recipe

BIG = Machine("cuda", 8, 640e9)


def test_the_leaderboard_is_ordered_by_size_with_reasons_for_skipped_models() -> None:
    plan = make_plan(read_models(), machine=BIG)
    assert len(plan) == len(read_models())
    run = [entry for entry in plan if not entry.skipped]
    sizes = [entry.parameters for entry in run if entry.parameters is not None]
    assert sizes == sorted(sizes)
    assert [bool(entry.skipped) for entry in plan] == sorted(bool(entry.skipped) for entry in plan)
    why = {entry.model: entry.skipped for entry in plan}
    assert "no public weights" in why["Databricks-Mosaic-Research/PGRM"]
    assert "--trust-remote-code" in why["nicolinho/QRM-Gemma-2-27B"]
    trusting = make_plan(read_models(), machine=BIG, trust_remote_code=True)
    assert [entry.model for entry in trusting if entry.skipped] == ["Databricks-Mosaic-Research/PGRM"]


def test_filters_can_be_combined() -> None:
    recipes = [Recipe("a/Llama-8B"), Recipe("a/Qwen-4B"), Recipe("b/Llama-1B"), Recipe("b/Llama-old-3B")]
    chosen = Selection(include=("*llama*",), exclude=("*OLD*",), max_parameters=8, families=("Llama",))
    assert [entry.model for entry in make_plan(recipes, chosen)] == ["b/Llama-1B", "a/Llama-8B"]
    with pytest.raises(ValueError, match=r"no model matches .*llama, qwen"):
        make_plan(recipes, Selection(include=("nobody/*",)))


def test_unknown_sizes_come_last_and_are_skipped_with_a_maximum_size() -> None:
    recipes = [Recipe("a/rm"), Recipe("b/rm-7b")]
    assert [entry.model for entry in make_plan(recipes)] == ["b/rm-7b", "a/rm"]
    skipped = {e.model: e.skipped for e in make_plan(recipes, Selection(max_parameters=10))}
    assert not skipped["b/rm-7b"]
    assert "unknown size" in skipped["a/rm"]


def test_memory_depends_on_dtype_and_device() -> None:
    def memory(machine: Machine, dtype: str = "auto") -> float:
        entry = make_plan([Recipe("a/rm-10b")], machine=machine, dtype=dtype, ignore_memory=True)[0]
        assert entry.memory is not None
        assert not entry.skipped
        return entry.memory / 1e9

    assert memory(Machine("cpu", memory=1e9)) == pytest.approx(48)
    assert memory(Machine("cuda", memory=1e9)) == pytest.approx(24)
    assert memory(Machine("cuda", memory=1e9), "float32") == pytest.approx(48)
    assert (
        "needs about 48 GB" in make_plan([Recipe("a/rm-10b")], machine=Machine("cpu", memory=40e9))[0].skipped
    )


def test_a_bare_id_uses_the_recipe_of_the_registry(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text("- model: infly/INF-ORM-Llama3.1-70B\n- {model: me/rm, parameters: 2}\n")
    first, second = read_models(file)
    assert first.recipe.head == "score"
    assert second == Listed(Recipe("me/rm", parameters=2.0))


def test_a_list_may_mix_kinds_of_judges(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(
        "- {model: me/rm-8b, endpoint: 'http://host:8000', concurrency: 4, column: 1}\n"
        "- {model: me/other-1b, kind: classifier}\n"
        "- {model: me/huge-700b, kind: endpoint, endpoint: 'http://host:8001'}\n"
    )
    models = read_models(file)
    assert models[0] == Listed(
        Recipe("me/rm-8b", column=1),
        {"kind": "endpoint", "endpoint": "http://host:8000", "concurrency": 4},
    )
    plan = {entry.model: entry for entry in make_plan(models, machine=Machine("cuda", memory=80e9))}
    assert [entry.skipped for entry in plan.values()] == ["", "", ""]
    served, loaded = plan["me/huge-700b"], plan["me/other-1b"]
    assert (served.device, served.memory, served.seconds) == ("server", None, None)
    assert gpus_for(served, Cluster(gpus=2), available=8) == 0
    assert gpus_for(loaded, Cluster(), available=8) == 1


def test_a_list_may_have_policies(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(
        "- {model: me/policy-8b, reference: me/base-8b, beta: 0.2}\n"
        "- {model: me/adapter-8b, beta: 0.1}\n"
        "- {model: me/served-8b, reference: me/base-8b, endpoint: 'http://host:8000'}\n"
        "- {model: me/free-8b, reference_free: mean}\n"
    )
    models = read_models(file)
    assert [one.options["kind"] for one in models] == ["policy"] * 4
    assert models[0].options == {"kind": "policy", "reference": "me/base-8b", "beta": 0.2}
    plan = {entry.model: entry for entry in make_plan(models, machine=Machine("cuda", memory=80e9))}
    assert plan["me/policy-8b"].memory == 2 * (plan["me/free-8b"].memory or 0) > 0
    assert plan["me/served-8b"].device == "server"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{model: me/rm, reference: me/base, beta: 0}", "beta: "),
        ("{model: me/rm, endpoint: here}", r"entry 1 \(me/rm\): endpoint: 'here' is not an address"),
        ("{model: me/rm, endpoint: 'http://h', divice: cpu}", "divice: "),
        ("{model: me/rm, endpoint: 'http://h', device: cpu}", "device: has no effect on a served model"),
        ("{model: me/rm, kind: oracle}", "oracle"),
        ("{model: me/rm, endpoint: 3}", "endpoint: "),
        ("{model: me/rm, endpoint_kind: vllm}", "unknown field 'endpoint_kind'"),
        ("{endpoint: 'http://h'}", "an entry needs `model: org/name`"),
    ],
)
def test_bad_entries_name_their_place(tmp_path: Path, entry: str, message: str) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(f"- {entry}\n")
    with pytest.raises(ValueError, match=message):
        read_models(file)


def test_served_judges_can_be_sent_to_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "sk-secret")
    options = {"endpoint": "http://host:8000", "api_key_env": "MINE"}
    (entry,) = make_plan([Listed(Recipe("me/rm", column=1), options)])
    judge = Job(load_benchmark("demo", limit=2), LoadOptions(max_length=64)).judge(entry)
    sent = pickle.dumps(judge)
    assert b"sk-secret" not in sent
    assert pickle.loads(sent).name == "me/rm"


def test_time_grows_with_size_and_text() -> None:
    small, large = make_plan([Recipe("a/rm-1b"), Recipe("a/rm-70b")], machine=BIG)
    assert small.seconds is not None
    assert large.seconds == pytest.approx(70 * small.seconds)
    assert estimated_tokens(None) > 1e6


@given(st.floats(0.001, 1e4, allow_nan=False))
def test_sizes_are_parsed(billions: float) -> None:
    assert parse_parameters(f"{billions:f}B") == pytest.approx(billions, abs=1e-6)
    assert parse_parameters(f"{billions * 1000:f} m") == pytest.approx(billions, abs=1e-6)


@pytest.mark.parametrize("text", ["", "B", "ten", "-1B", "10X", "1e3"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"--max-params: .* is not a size"):
        parse_parameters(text)
