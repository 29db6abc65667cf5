"""`rmcalib watch` on the files of verl: the commands of the documentation, and a column that is missing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.cli.conftest import Invoke

FOLDERS = Path(__file__).parents[1] / "scores" / "frameworks"


def test_labels_of_verl_come_from_a_column_or_a_function(invoke: Invoke, tmp_path: Path) -> None:
    for folder in ("verl-legacy", "verl-validation"):
        done = invoke("watch", FOLDERS / folder, "--columns", "reward=score,label=acc", "--json")
        assert json.loads(done.out)["steps"][0]["right"] == 0.5
    (tmp_path / "check.py").write_text("def correct(row):\n    return row['gts'] in row['output']\n")
    done = invoke("watch", FOLDERS / "verl-v1", "--label-from", "check.py:correct", "--json")
    assert json.loads(done.out)["steps"][0]["n_labels"] == 6
    wrong = invoke("watch", FOLDERS / "verl-v1", "--columns", "reward=score,label=acc")
    assert wrong.code == 2
    assert all(name in wrong.err for name in ("'acc'", "label"))


def test_labels_that_name_the_best_sample_are_not_read_as_correct(invoke: Invoke, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    run, labels, table = tmp_path / "run", tmp_path / "labels.jsonl", ["step,prompt,response,reward,is_best"]
    run.mkdir()
    samples, said = [], []
    for prompt in range(200):
        reward = rng.normal(size=8)
        best = rng.choice(8, p=np.exp(reward) / np.exp(reward).sum())
        for i, number in enumerate(reward.tolist()):
            samples.append({"input": f"p{prompt}", "output": f"o{i}", "score": number, "step": 1})
            said.append({"prompt": f"p{prompt}", "response": f"o{i}", "label": int(i == best), "ask": "best"})
            table.append(f"1,p{prompt},{i},{number},{int(i == best)}")
    (run / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in samples))
    (tmp_path / "table.csv").write_text("\n".join(table))
    labels.write_text("".join(json.dumps(row) + "\n" for row in said))
    options = ("--scale", "log_odds", "--json")
    refused = invoke("watch", run, "--labels", labels, *options)
    assert refused.code == 2
    assert all(name in refused.err for name in ("labels.jsonl", "--ask correct"))
    for source, more in ((run, ("--labels", labels, "--labels-are", "best")), (tmp_path / "table.csv", ())):
        done = invoke("watch", source, *more, *options)
        watched = json.loads(done.out)
        assert (done.code, watched["alarm"], watched["labels"]["are"]) == (0, None, "best")
        assert watched["steps"][0]["right"] is None
        assert watched["steps"][0]["auroc"] > 0.6
    labels.write_text("".join(json.dumps({**row, "ask": "correct"}) + "\n" for row in said))
    assert json.loads(invoke("watch", run, "--labels", labels, *options).out)["steps"][0]["right"] == 1 / 8
    several = [{"rm": row.pop("score"), "other": 1.0, **row} for row in samples]
    (run / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in several))
    unlabelled = invoke("watch", run, "--columns", "reward=rm").out
    command = next(line for line in unlabelled.splitlines() if line.startswith("  rmcalib label"))
    assert "--ask correct" in command
    assert invoke(*command.split()[1:]).code == 0
