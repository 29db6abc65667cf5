"""Does the form of a reward matter in a real RL run? GRPO by TRL with a tiny language model and a known gold reward.

The task: "3 + 5 =" has 19 possible answers, 0 to 18. A small transformer is first trained to be right about a third
of the time; 1% of its answers end in "!". Gold is 1 for the right answer without "!". The reward model is noisy:
its log-odds s of being right are calibrated on the samples of that first policy, and fixed for each answer. With the
flaw, "!" adds 8 to s, although it makes the answer wrong.

Three forms of the same reward: on scale (s), raw (4s + 5), and as a probability, σ(s). Two ways to train: advantages
divided by their standard deviation in the group (TRL's default), and not divided, with a KL penalty of β = 1. Each with
and without the flaw, five seeds: 60 runs. Also: when would `rmcalib.Watcher` have stopped, if one
prompt in eight is labelled, or all? Writes results/downstream_grpo.csv; runs that are in it are not repeated.

    python scripts/downstream_grpo.py [--seeds 5] [--steps 80]
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import itertools
import logging
import os
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measuring import RESULTS, Row
from scipy.special import expit, logit
from scipy.stats import norm

from rmcalib._util.files import write_csv

DIGITS, ANSWERS, TRICK = 10, 19, "!"
PROMPTS = [f"{a} + {b} =" for a in range(DIGITS) for b in range(DIGITS)]
RIGHT_AT_START, TRICKS_AT_START, BONUS, SHARPNESS = 0.35, 0.01, 8.0, 2.5
BATCH, GROUP, EVERY = 16, 8, 5
FORMS = {"on scale": (1.0, 0.0), "raw": (4.0, 5.0), "probability": (1.0, 0.0)}


@dataclass(frozen=True)
class World:
    """The reward model: a seed, whether it has the flaw, and how often the first policy is right."""

    seed: int
    flawed: bool
    right_at_start: float

    def log_odds(self, prompt: str, completion: str) -> float:
        """Calibrated log-odds of being right: normal likelihood ratios, fixed for each answer by a hash."""
        digest = hashlib.sha256(f"{self.seed} {prompt} {completion}".encode()).digest()
        noise = float(norm.ppf((int.from_bytes(digest[:6], "big") + 0.5) / 2**48))
        side = 0.5 if gold(prompt, completion) else -0.5
        s = float(logit(self.right_at_start)) + side * SHARPNESS**2 + SHARPNESS * noise
        return s + BONUS * (self.flawed and TRICK in completion)


def gold(prompt: str, completion: str) -> bool:
    a, _, b, _ = prompt.split()
    return completion.split() == [str(int(a) + int(b))]


def given(form: str, s: float) -> float:
    """Return the log-odds as the training sees them."""
    scale, shift = FORMS[form]
    return float(expit(s)) if form == "probability" else scale * s + shift


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<eos>", "+", "=", TRICK, *(str(i) for i in range(ANSWERS))]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )


def first_policy(folder: Path, steps: int) -> float:
    """Train the policy before RL (right with probability .35, some answers with "!"), save it; return P(right)."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    words = tokenizer()
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=16,
        pad_token_id=words.pad_token_id,
        bos_token_id=None,
        eos_token_id=words.eos_token_id,
    )
    model, rng = LlamaForCausalLM(config), np.random.default_rng(0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        texts = []
        for prompt in rng.choice(PROMPTS, 128):
            a, _, b, _ = prompt.split()
            answer = int(a) + int(b) if rng.random() < RIGHT_AT_START - 0.04 else int(rng.integers(ANSWERS))
            ending = f" {TRICK} <eos>" if rng.random() < TRICKS_AT_START else " <eos>"
            texts.append(f"{prompt} {answer}{ending}")
        batch = words(texts, return_tensors="pt", padding=True, padding_side="right")
        labels = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)
        labels[:, :4] = -100
        loss = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=labels).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(folder)
    return exact_gold(model, words)[0]


def exact_gold(model: Any, words: Any) -> tuple[float, float]:
    """Return P(right) over all prompts, and P("!" after the answer), without sampling."""
    import torch

    right, tricks = [], []
    with torch.no_grad():
        batch = words(PROMPTS, return_tensors="pt")
        first = model(input_ids=batch.input_ids).logits[:, -1].softmax(-1)
        for answer in range(ANSWERS):
            token = words.convert_tokens_to_ids(str(answer))
            longer = torch.cat([batch.input_ids, torch.full((len(PROMPTS), 1), token)], dim=1)
            second = model(input_ids=longer).logits[:, -1].softmax(-1)
            is_right = torch.tensor([gold(prompt, str(answer)) for prompt in PROMPTS])
            right.append(first[:, token] * second[:, words.eos_token_id] * is_right)
            tricks.append(first[:, token] * second[:, words.convert_tokens_to_ids(TRICK)])
    return float(torch.stack(right).sum(0).mean()), float(torch.stack(tricks).sum(0).mean())


def train(start: Path, form: str, normalised: bool, world: World, steps: int) -> list[Row]:
    """Run GRPO, and return one row per measured step."""
    from transformers import LlamaForCausalLM, PrinterCallback, TrainerCallback

    from tests.grpo import grpo_trainer

    words, rows, samples = tokenizer(), [], []

    def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        s = [world.log_odds(*pair) for pair in zip(prompts, completions, strict=True)]
        right = [gold(*pair) for pair in zip(prompts, completions, strict=True)]
        samples.append((prompts, s, right))
        return [given(form, one) for one in s]

    class Measure(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, _: Any, state: Any, __: Any, model: Any = None, **___: Any) -> None:
            if state.global_step % EVERY == 0:
                rows.append({"step": state.global_step, **named(exact_gold(model, words))})

        def on_train_end(self, _: Any, state: Any, __: Any, model: Any = None, **___: Any) -> None:
            rows.append({"step": state.global_step, **named(exact_gold(model, words))})

    with tempfile.TemporaryDirectory() as folder:
        trainer = grpo_trainer(
            Path(folder),
            [reward],
            [{"prompt": prompt} for prompt in PROMPTS],
            BATCH,
            GROUP,
            max_steps=steps,
            max_completion_length=3,
            learning_rate=1e-3,
            scale_rewards="group" if normalised else "none",
            beta=0.0 if normalised else 1.0,
            seed=world.seed,
            log_completions=False,
            logging_strategy="no",
            model=LlamaForCausalLM.from_pretrained(start),
            processing_class=words,
            callbacks=[Measure()],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    about = {"form": form, "normalised": normalised, "flawed": world.flawed, "seed": world.seed}
    alarms = watched(samples)
    return [{**about, **row, **alarms} for row in rows]


def named(found: tuple[float, float]) -> Row:
    return {"gold": round(found[0], 4), "tricks": round(found[1], 4)}


def watched(samples: list[tuple[list[str], list[float], list[bool]]]) -> Row:
    """Return when the alarm is raised if one prompt in eight is labelled, and if all are."""
    from rmcalib import Watcher

    found: Row = {}
    for name, every in (("alarm", 8), ("alarm_all", 1)):
        watcher, found[name] = Watcher(scale="log_odds"), ""
        for step, (prompts, s, right) in enumerate(samples):
            group = np.arange(len(s)) // GROUP
            label = np.where(group % every == 0, np.array(right, dtype=float), np.nan)
            watcher.add(step, [f"{step} {prompts[i]} {group[i]}" for i in range(len(s))], s, label)
            if (alarm := watcher.result().alarm) is not None:
                found |= {name: step, f"{name}_gap": round(alarm["value"], 3)}
                break
        found.setdefault(f"{name}_gap", "")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--first-steps", type=int, default=1500, help="of training the first policy")
    parser.add_argument("--only", default="", help="only forms whose name contains this")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    quiet()
    path, rows = options.output / "downstream_grpo.csv", []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    done = {tuple(str(row[key]) for key in ("form", "normalised", "flawed", "seed")) for row in rows}
    runs = itertools.product(range(options.seeds), (False, True), (True, False), FORMS)
    with tempfile.TemporaryDirectory() as folder:
        right = first_policy(Path(folder), options.first_steps)
        for seed, flawed, normalised, form in runs:
            if options.only not in form or (form, str(normalised), str(flawed), str(seed)) in done:
                continue
            begun = time.process_time()
            rows += train(Path(folder), form, normalised, World(seed, flawed, right), options.steps)
            write_csv(path, rows)
            last = rows[-1]
            print(
                f"{form}, {'normalised' if normalised else 'KL'}, {'flawed' if flawed else 'clean'}, seed {seed}: "
                f"gold {last['gold']}, tricks {last['tricks']}, alarm {last['alarm'] or 'none'}, "
                f"{time.process_time() - begun:.0f} s",
                flush=True,
            )


def quiet() -> None:
    """One thread, no network, no messages of libraries."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.getLogger("trl").setLevel(logging.ERROR)
    torch.set_num_threads(1)


if __name__ == "__main__":
    main()
