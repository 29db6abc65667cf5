"""A batch of published scores from a loopback Hub: in parallel, with failures, resumed, from the cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rmcalib.batch._status import read_events
from tests.batch.batch_hub import BENCH, all_scores, batch, environment, models_file, states, status_of
from tests.hub import tiny
from tests.hub.server import LoopbackHub

RESULTS = "allenai/reward-bench-2-results"
N = 3


def scores_file(name: str, shift: float) -> dict[str, Any]:
    rows = tiny.benchmark_rows(40)
    return {
        "id": [row["id"] for row in rows],
        "model": name,
        "num_correct": [row["num_correct"] for row in rows],
        "scores": [
            [(i * 7 + j * 3 + shift) % 5 for j in range(row["total_completions"])]
            for i, row in enumerate(rows)
        ],
        "subset": [row["subset"] for row in rows],
        "text": [["x"] * 4 for _ in rows],
    }


def test_published_batch(tmp_path: Path) -> None:
    good = [f"org/rm-{number}" for number in range(N)]
    files = {f"eval-set-scores/{name}.json": scores_file(name, i) for i, name in enumerate(good)}
    judge = scores_file("org/judge", 0)
    files["eval-set-scores/org/judge.json"] = judge | {"scores": [None] * len(judge["id"])}
    broken = scores_file("org/broken", 0)
    broken["scores"][3][1] = float("nan")
    files["eval-set-scores/org/broken.json"] = broken
    env = environment("", tmp_path / "home")
    options = ("--scores", "published", "--output", tmp_path / "runs", "--json", "--jobs", 2)
    with LoopbackHub() as hub:
        env["HF_ENDPOINT"] = hub.url
        hub.add("datasets", RESULTS, {path: json.dumps(content).encode() for path, content in files.items()})
        hub.add("datasets", BENCH, tiny.save_benchmark(tmp_path / "bench", tiny.benchmark_rows(40)))

        done = batch(env, *options)
        assert done.returncode == 1, done.stderr
        expected = {**dict.fromkeys(good, "done"), "org/judge": "skipped", "org/broken": "failed"}
        assert states(status_of(done)) == expected
        why = {entry["model"]: entry["why"] for entry in status_of(done)["models"]}
        assert "generative judge" in why["org/judge"]
        assert "nan" in why["org/broken"]
        scores = all_scores(tmp_path / "runs")
        assert len(scores) == N
        assert scores["org__rm-1"].reward[0] == files["eval-set-scores/org/rm-1.json"]["scores"][0][0]
        assert len(list((tmp_path / "runs").glob("*/*-published/metrics.json"))) == N

        # Second run: only the broken one is downloaded, and nothing else changes.
        n_events, n_requests = len(read_events(tmp_path / "runs")), len(hub.requests)
        assert states(status_of(batch(env, *options))) == expected
        fetched = {
            e["model"] for e in read_events(tmp_path / "runs")[n_events:] if e["event"] == "downloading"
        }
        assert fetched == {"org/broken"}
        assert not [r for r in hub.requests[n_requests:] if "resolve" in r and "/org/rm-" in r]

        # With --fresh, all are processed again from the cache, also the one without scores.
        n_events = len(read_events(tmp_path / "runs"))
        assert states(status_of(batch(env, *options, "--fresh", "--no-metrics"))) == expected
        taken = {e["model"] for e in read_events(tmp_path / "runs")[n_events:] if e["event"] == "downloading"}
        assert taken == set(expected)

        # Another output: the listed models come from the cache, and unpublished ones are skipped.
        models = models_file(tmp_path / "m.yaml", ("org/rm-1", "org/unpublished"))
        n_requests = len(hub.requests)
        other = ("--scores", "published", "--output", tmp_path / "other", "--json", "--no-metrics")
        done = batch(env, *other, "--models", models)
        assert done.returncode == 0, done.stderr
        assert states(status_of(done)) == {"org/rm-1": "done", "org/unpublished": "skipped"}
        assert not [r for r in hub.requests[n_requests:] if "resolve" in r and "/org/rm-" in r]
