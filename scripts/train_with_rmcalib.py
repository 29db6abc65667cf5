"""Train a reward model with TRL, and watch its calibration at every evaluation.

    python scripts/train_with_rmcalib.py --model Qwen/Qwen3-0.6B --data trl-lib/ultrafeedback_binarized
    rmcalib report runs/step-* --output report

`--data` is a data set in TRL's preference format, on the Hub or as a JSONL file. `--benchmark` is scored with
the live model at every evaluation. Needs `pip install -e '.[trl]'`.

Without arguments, it runs a small example that takes about a minute on a CPU: it continues the training of
the built-in demo model on half of the demo's questions, and evaluates it on the other half.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

import rmcalib
from rmcalib.benchmarks import Benchmark
from rmcalib.integrations.trl import BenchmarkCallback, reward_metrics

DEMO = Path(rmcalib.__file__).parent / "demo" / "model"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="a Hub id or a folder; default the embedded demo model")
    parser.add_argument("--data", help="preferences: a Hub id or a JSONL file; default pairs of the demo")
    parser.add_argument("--benchmark", help="what to score at every evaluation; default the demo")
    parser.add_argument("--limit", type=int, help="only so many prompts of the benchmark")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--eval-steps", type=int, default=25)
    parser.add_argument("--batch", type=int, default=16, help="pairs in a step")
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--output", type=Path, default=Path("trained"))
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where run folders are kept")
    parser.add_argument("--report-to", default="none", help="wandb, trackio, tensorboard, ...")
    args = parser.parse_args()
    if importlib.util.find_spec("trl") is None:
        parser.error("TRL is missing: pip install -c constraints.txt -e '.[trl]'")
    trainer = make_trainer(args)
    trainer.train()
    trainer.save_model()
    print(f"\nThe curve: rmcalib report {args.runs}/step-*")


def make_trainer(args: argparse.Namespace) -> Any:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from trl import RewardConfig, RewardTrainer

    name = args.model or DEMO
    model = AutoModelForSequenceClassification.from_pretrained(name, num_labels=1)
    train, held_out, bench = data(args)
    trainer = RewardTrainer(
        model,
        args=RewardConfig(
            output_dir=str(args.output),
            max_steps=args.steps,
            per_device_train_batch_size=args.batch,
            per_device_eval_batch_size=args.batch,
            learning_rate=args.learning_rate,
            eval_strategy="steps",
            eval_steps=args.eval_steps,
            eval_on_start=True,
            save_strategy="no",
            logging_steps=args.eval_steps,
            report_to=args.report_to,
            bf16=False,
        ),
        processing_class=AutoTokenizer.from_pretrained(name),
        train_dataset=train,
        eval_dataset=held_out,
        **reward_metrics(),
    )
    trainer.add_callback(BenchmarkCallback(trainer, bench, output=args.runs))
    return trainer


def data(args: argparse.Namespace) -> tuple[Any, Any, Benchmark]:
    """Return pairs to train on, pairs to evaluate on, and the benchmark."""
    from datasets import Dataset, load_dataset

    bench = rmcalib.load_benchmark(args.benchmark or "demo", limit=args.limit)
    if args.data is not None:
        local = Path(args.data).is_file()
        pairs = load_dataset("json", data_files=args.data) if local else load_dataset(args.data)
        if "test" in pairs:
            return pairs["train"], pairs["test"], bench
        split = pairs["train"].train_test_split(test_size=0.05, seed=0)
        return split["train"], split["test"], bench
    items = rmcalib.load_benchmark("demo").items
    if args.benchmark is None:
        bench = Benchmark("demo-other-half", bench.revision, items[1::2][: args.limit])
    rows = [
        {
            "prompt": [{"role": "user", "content": item.prompt}],
            "chosen": [{"role": "assistant", "content": item.responses[0]}],
            "rejected": [{"role": "assistant", "content": wrong}],
        }
        for item in items[::2]
        for wrong in item.responses[item.n_correct :]
    ]
    split = Dataset.from_list(rows).train_test_split(test_size=0.2, seed=0)
    return split["train"], split["test"], bench


if __name__ == "__main__":
    main()
