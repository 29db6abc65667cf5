"""Models, benchmarks and published scores from a Hub on 127.0.0.1, also when it fails.

The Hugging Face libraries read their settings when they are imported. So one Hub and one folder for the cache
serve all tests; each test begins with an empty cache, and runs in a fork of a process that has imported the
libraries. They run unchanged, except that they do not sleep between attempts.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmcalib._util.hub import HubError, check_repo_id, folder_name, resolve_commit
from rmcalib.benchmarks._entries import known_entry
from tests.benchmarks.shapes import SHAPES, write
from tests.hub import tiny
from tests.hub.server import TOKEN, LoopbackHub
from tests.hub.world import BENCH, MODEL, RESULTS, WITHOUT_WAITING, environment, fill, save_files, serve
from tests.processes import prepared, run_python

_FILES = ("GET /org", "GET /datasets", "GET /a")
PRELUDE = (
    WITHOUT_WAITING
    + """
import datasets, os, runpy, sys
import peft, transformers.models.llama.modeling_llama
from rmcalib.benchmarks import load_benchmark
from rmcalib.judges import Recipe, load_model
from rmcalib.scores import published_scores
def attempt(call):
    try:
        print(call())
    except ValueError as error:
        print(f"{type(error).__name__}: {error}")
def offline():
    from huggingface_hub import constants
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
def bench(*args, **kwargs):
    attempt(lambda: (b := load_benchmark(*args, **kwargs)) and f"{len(b)} prompts at {b.revision}")
def model(*args, **kwargs):
    attempt(lambda: f"{(m := load_model(*args, device='cpu', **kwargs)).kind} at {m.revision}")
"""
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_files(tmp_path_factory.mktemp("files"))


Run = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def client(
    files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LoopbackHub, Path, Any]]:
    """A Hub, the folder of a cache, and what runs code that uses both."""
    home = tmp_path_factory.mktemp("cache") / "home"
    with serve(files) as hub, prepared(PRELUDE, environment(hub.url, home)) as fork:
        yield hub, home, fork


@pytest.fixture
def hub(client: tuple[LoopbackHub, Path, Any], files: dict[str, Path]) -> LoopbackHub:
    """The Hub without what other tests did to it, and an empty cache."""
    fill(client[0], files)
    shutil.rmtree(client[1], ignore_errors=True)
    return client[0]


@pytest.fixture
def run(client: tuple[LoopbackHub, Path, Any]) -> Run:
    """What runs code after the prelude and returns the lines it prints; a traceback fails the test."""
    return lambda code: printed(client[2](code))


def printed(done: Any) -> list[str]:
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    lines: list[str] = done.stdout.splitlines()
    return lines


def commit(hub: LoopbackHub, kind: str, name: str, ref: str = "main") -> str:
    return hub.repos[kind, name].refs[ref]


def test_cold_cache_then_warm_then_offline_then_failing(hub: LoopbackHub, run: Run) -> None:
    at_model, at_bench = commit(hub, "models", MODEL), commit(hub, "datasets", BENCH)
    code = f"bench('reward-bench-2'); model('{MODEL}')"
    expected = [f"8 prompts at {at_bench}", f"causal at {at_model}"]
    assert run(f"{code}; {code}; offline(); {code}") == expected * 3
    contents = [request for request in hub.requests if request.startswith(_FILES) and "/api/" not in request]
    assert contents
    assert len(contents) == len(set(contents))  # no file was sent twice
    for kind, name in (("models", MODEL), ("datasets", BENCH)):  # the names were resolved twice
        assert hub.requests.count(f"GET /api/{kind}/{name}/revision/main") == 2
    hub.fail(".*", status=503)
    counted = "slept = []; time.sleep = slept.append\n"
    *lines, seconds = run(f"{counted}{code}; print(sum(x for x in slept if x >= 0.5))")
    assert lines == expected
    assert float(seconds) == 2.0  # one second for each name, then the cache is used


def test_a_hub_that_drips_is_not_waited_for(
    hub: LoopbackHub, client: tuple[LoopbackHub, Path, Any], tmp_path: Path
) -> None:
    hub.fail(f"GET /{MODEL}", drip=0.05)
    done = client[2](f"""
os.environ["RMCALIB_TIMEOUT"] = "1"
os.chdir({str(tmp_path)!r})
sys.argv = ["rmcalib", "eval", "--model", "{MODEL}", "--benchmark", "demo"]
runpy.run_module("rmcalib", run_name="__main__", alter_sys=True)
""")
    assert done.returncode == 2
    assert f"error: {MODEL}: " in done.stderr
    assert "RMCALIB_TIMEOUT" in done.stderr


def test_benchmarks_of_several_data_sets(hub: LoopbackHub, run: Run, tmp_path: Path) -> None:
    for number, (name, row) in enumerate(
        (source.id, SHAPES["ppe-correctness"][0]) for source in known_entry("ppe-correctness").hub
    ):
        rows = [{**row, "question_id": f"{number}-{i}"} for i in range(2)]
        write(tmp_path / f"{number}.parquet", rows)
        hub.add("datasets", name, {"data/train-0.parquet": (tmp_path / f"{number}.parquet").read_bytes()})
    code = """
b = load_benchmark('ppe-correctness')
print(b.name, len(b), b.format, *b.categories)
print(load_benchmark('ppe-correctness', revision=b.revision).revision == b.revision, b.revision.count('+'))
print(*load_benchmark('lmarena-ai/PPE-MATH-Best-of-K').categories)
bench('ppe-correctness', revision='main')
"""
    lines = run(code)
    assert lines[0] == "ppe-correctness 10 ppe-correctness MMLU-Pro MATH GPQA MBPP-Plus IFEval"
    assert lines[1:3] == ["True 4", "MATH"]
    assert "ppe-correctness has 5 data sets; give 5 commits, joined by '+'" in lines[3]


def test_revisions_are_pinned_and_never_mixed_up(hub: LoopbackHub, run: Run) -> None:
    new, old = commit(hub, "models", MODEL), commit(hub, "models", MODEL, "v1")
    bench_new, bench_old = commit(hub, "datasets", BENCH), commit(hub, "datasets", BENCH, "v2")
    lines = run(
        f"""
model('{MODEL}', revision='v1'); model('{MODEL}', revision='{old}'); model('{MODEL}', revision='{new}')
model('{MODEL}', revision='v9'); model('{MODEL}', revision='{"0" * 40}')
bench('{BENCH}', revision='v2'); bench('{BENCH}', revision='v9')
bench('{BENCH}'); bench('{BENCH}', split='train')
offline(); bench('{BENCH}', revision='v2'); bench('{BENCH}'); bench('{BENCH}', revision='{"1" * 40}')
""",
    )
    assert lines[:3] == [f"causal at {old}", f"causal at {old}", f"causal at {new}"]
    assert lines[3].startswith(f"HubError: {MODEL}@v9: no such revision")
    assert lines[4].startswith(f"HubError: {MODEL}@{'0' * 40}: no such revision")
    assert lines[5] == f"11 prompts at {bench_old}"
    assert lines[6].startswith(f"HubError: {BENCH}@v9: no such revision")
    assert lines[7] == f"8 prompts at {bench_new}"
    assert lines[8].startswith(f"HubError: {BENCH}: ")
    assert "train" in lines[8]
    # Offline, each revision is still distinct, and a missing one is not replaced by another.
    assert lines[9:11] == [lines[5], lines[7]]
    assert "the cache has only another revision" in lines[11]


def test_what_cannot_be_loaded_is_reported_in_one_line(
    hub: LoopbackHub, files: dict[str, Path], run: Run
) -> None:
    hub.add("models", "org/gated", files["model"], gated=True)
    hub.add("datasets", "org/gated-bench", files["bench"], gated=True)
    places = ("/api/models/org/a", r"org/b/resolve/.*safetensors", r"datasets/org/c/resolve/.*parquet")
    for place, kind, name in zip(places, ("model", "model", "bench"), "abc", strict=True):
        hub.add("models" if kind == "model" else "datasets", f"org/{name}", files[kind])
        hub.fail(place, status=503)
    code = f"""
model('org/a'); model('org/b'); bench('org/c'); model('org/none'); bench('org/none')
model('org/gated'); bench('org/gated-bench')
os.environ["HF_TOKEN"] = {TOKEN!r}
model('org/gated'); bench('org/gated-bench')
"""
    lines = run(code)
    for line, name in zip(lines, "abc", strict=False):
        assert line.startswith(f"HubError: org/{name}: the Hub failed (503)")
    assert lines[3].startswith("HubError: org/none: no such model")
    assert lines[4].startswith("HubError: org/none: no such data set")
    assert lines[5].startswith("HubError: org/gated: ")
    assert f"{hub.url}/org/gated" in lines[5]
    assert f"{hub.url}/datasets/org/gated-bench" in lines[6]
    assert lines[7].startswith("causal at")
    assert lines[8].startswith("8 prompts at")


def test_temporary_failures_are_retried(hub: LoopbackHub, run: Run) -> None:
    hub.fail(r"GET /api/models/org/tiny-rm/revision", status=429, headers={"Retry-After": "86400"}, times=1)
    hub.fail(r"HEAD .*/config\.json", status=429, times=2)
    hub.fail(r"GET /api/datasets/.*/revision/main", status=503, times=2)
    hub.fail(r"HEAD .*parquet", status=500, times=1)
    hub.fail(r"GET /[0-9a-f]{64}", cut=2000, times=2)  # the Parquet and the weights, or one of them twice
    hub.fail(r"GET .*/tokenizer\.json", delay=0.2, cut=100, times=1)
    code = f"""
import warnings
said, slept = [], []
warnings.showwarning = lambda text, *_: said.append(str(text))
time.sleep = slept.append
bench('{BENCH}'); model('{MODEL}')
print(max(slept), any("86400 s" in text for text in said))
"""
    assert run(code) == [
        f"8 prompts at {commit(hub, 'datasets', BENCH)}",
        f"causal at {commit(hub, 'models', MODEL)}",
        "60.0 True",  # a long pause is shown, and cut
    ]
    assert all(fault.times == 0 for fault in hub.faults)  # every failure occurred


def test_no_hub_and_an_empty_cache(tmp_path: Path) -> None:
    code = f"model('{MODEL}'); bench('{BENCH}'); offline(); model('{MODEL}'); bench('{BENCH}')"
    env = environment("http://127.0.0.1:9", tmp_path)
    lines = printed(run_python(["-c", PRELUDE + code], env=env))
    for line, name in zip(lines, (MODEL, BENCH), strict=False):
        assert line.startswith(f"HubError: {name}: the Hub at http://127.0.0.1:9 cannot be reached")
    assert all("HF_HUB_OFFLINE" in line for line in lines[2:])
    assert len(lines) == 4


def pickled(folder: Path, model: Path) -> Path:
    import torch

    folder.mkdir()
    for path in model.iterdir():
        if path.suffix != ".safetensors":
            (folder / path.name).write_bytes(path.read_bytes())
    torch.save(tiny.tiny_classifier().state_dict(), folder / "pytorch_model.bin")
    return folder


def adapter(folder: Path, base: str) -> dict[str, bytes]:
    content = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    settings = json.loads(content["adapter_config.json"]) | {"base_model_name_or_path": base}
    return content | {"adapter_config.json": json.dumps(settings).encode()}


def test_all_kinds_of_repositories(
    hub: LoopbackHub, files: dict[str, Path], run: Run, tmp_path: Path
) -> None:
    from torch import nn

    from tests.judges.folders import OWN_CODE, CustomHead, adapter_of

    whole = {path.name: path.read_bytes() for path in files["model"].iterdir()}
    hub.add("models", "org/pickled", pickled(tmp_path / "pickled", files["model"]))
    extra = {"modeling_x.py": b"raise SystemExit('ran')", "original/consolidated.safetensors": b"x" * 100}
    hub.add("models", "org/coded", whole | extra)
    hub.add("models", "org/broken", whole | {"model.safetensors": whole["model.safetensors"][:1000]})
    tiny.tiny_classifier().save_pretrained(tmp_path / "sharded", max_shard_size="30KB")
    assert len(list((tmp_path / "sharded").glob("model-*.safetensors"))) > 1
    hub.add("models", "org/sharded", tmp_path / "sharded")
    auto = {"AutoModelForSequenceClassification": "modeling_own.OwnRewardModel"}
    own = CustomHead([nn.Linear(32, 1, bias=False)]).save(
        tmp_path / "own", "gate", auto_map=auto, num_labels=1
    )
    (own / "modeling_own.py").write_text(OWN_CODE)
    hub.add("models", "org/own-code", own)
    folder, _ = adapter_of(files["model"], tmp_path / "adapter")
    hub.add("models", "org/adapter", adapter(folder, MODEL))
    hub.add("models", "org/orphan", adapter(folder, "org/none"))
    lines = run(
        f"""
model('org/pickled'); model('org/pickled', allow_pickle=True); model('org/coded'); model('org/broken')
model('org/sharded', recipe=Recipe('org/sharded', tokenizer='{MODEL}'))
print(load_model('org/adapter', device='cpu').sources['base']); model('org/orphan')
model('org/own-code'); model('org/own-code', trust_remote_code=True)
""",
    )
    assert lines[0].startswith("HubError: org/pickled: ")
    assert "allow_pickle" in lines[0]
    assert lines[1] == f"causal at {commit(hub, 'models', 'org/pickled')}"
    assert lines[2] == f"causal at {commit(hub, 'models', 'org/coded')}"
    assert lines[3].startswith("HubError: org/broken: ")
    assert lines[4] == f"causal at {commit(hub, 'models', 'org/sharded')}"
    assert lines[5] == f"{MODEL}@{commit(hub, 'models', MODEL)}"
    assert lines[6].startswith("HubError: org/orphan: ")
    assert "org/none" in lines[6]
    assert "trust_remote_code" in lines[7]
    assert lines[8] == f"opaque at {commit(hub, 'models', 'org/own-code')}"
    # Code that must not run and unused weights are not downloaded.
    assert not any("modeling_x.py" in request or "consolidated" in request for request in hub.requests)


# Published scores


def results(n: int = 400) -> dict[str, Any]:
    """Return a file of `eval-set-scores` with sorted keys, so that the texts come last."""
    rows = tiny.benchmark_rows(n)
    return {
        "chat_template": "tokenizer",
        "id": [row["id"] for row in rows],
        "model": "org/scored",
        "model_type": "Seq. Classifier",
        "num_correct": [row["num_correct"] for row in rows],
        "results": [1.0 for _ in rows],
        "scores": [[[float(i)] for i in range(row["total_completions"])] for row in rows],
        "subset": [row["subset"] for row in rows],
        "text": [["x" * 4000 for _ in range(4)] for _ in rows],
    }


def test_published_scores_are_kept_without_their_texts(
    hub: LoopbackHub, run: Run, client: tuple[LoopbackHub, Path, Any]
) -> None:
    judge = results(3) | {"scores": [None] * 5}
    content = {
        "eval-set-scores/org/scored.json": json.dumps(results(), indent=4).encode(),
        "eval-set-scores/org/judge.json": json.dumps(judge).encode(),
    }
    assert len(content["eval-set-scores/org/scored.json"]) > 6_000_000
    hub.add("datasets", RESULTS, content)
    code = """
def published(name):
    attempt(lambda: (s := published_scores(name)) and
        f"{s.n_items} {len(s)} {s.reward.sum()} {s.manifest['source_revision']}")
published('org/scored'); published('org/judge'); published('org/scroed'); published('../../x')
offline(); published('org/scored'); published('org/judge')
"""
    lines = run(code)
    expected = f"402 {400 * 4 + 3 + 5} {400 * 6 + 3 + 10.0} {commit(hub, 'datasets', RESULTS)}"
    assert lines[0] == expected
    assert "generative judge" in lines[1]
    assert lines[2].startswith("HubError: org/scroed: ")
    assert "org/scored" in lines[2]
    assert "../../x" in lines[3]
    stored = list((client[1] / "rmcalib").rglob("*.parquet"))
    assert len(stored) == 1
    assert stored[0].stat().st_size < 100_000
    assert lines[4] == expected  # offline
    assert lines[5].startswith("HubError")


# Names and messages


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "a/b/c", "org/", "-x/y", "a b/c", "org/x\n", ""])
def test_invalid_repository_ids(name: str) -> None:
    with pytest.raises(HubError, match="is neither a file or folder"):
        check_repo_id(name)


@pytest.mark.parametrize("revision", ["../../x", "/etc/passwd", "a..b", "v1\n", "-x", "a b"])
def test_invalid_revisions(revision: str) -> None:
    with pytest.raises(HubError, match="is not a branch, tag or commit"):
        resolve_commit("org/x", revision=revision)


@pytest.mark.parametrize(
    "name", ["../../x", "/", "a/../..", "~/rm", "C:\\models\\rm", "org/<script>", "été/é"]
)
def test_folder_names_stay_inside_the_output_folder(name: str, tmp_path: Path) -> None:
    try:
        folder = folder_name(name)
    except HubError:
        return
    assert (tmp_path / folder).resolve().parent == tmp_path.resolve()
    assert not set(folder) & set("/\\<>:~")
