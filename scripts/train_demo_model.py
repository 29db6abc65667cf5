"""Make the built-in demo: a small benchmark, and a small reward model that is trained for it.

    python scripts/train_demo_model.py [--output rmcalib/demo]

The questions come from `demo_world.py`. The model is a llama of about 420 thousand parameters. It is trained
on questions that are not in the benchmark, with the Bradley-Terry loss (one comparison in ten is deliberately
wrong, as human comparisons are) and with language modelling on the correct answers. The script is seeded and
single-threaded: the same machine makes the same files, in about five minutes.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import torch
from demo_world import Question, benchmark_rows, training_questions
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

from rmcalib.judges._templates import render

SPECIAL = ["<pad>", "<s>", "<|user|>", "<|assistant|>", "<|end|>"]
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "<|{{ message['role'] }}|>{{ message['content'] }}<|end|>"
    "{% endfor %}"
)
WRONG_WAY_ROUND = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("rmcalib/demo"))
    parser.add_argument("--steps", type=int, default=1_200)
    parser.add_argument("--questions", type=int, default=16_000, help="different ones in training")
    parser.add_argument("--batch", type=int, default=32, help="questions in a step")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    torch.use_deterministic_algorithms(True)

    questions = training_questions(args.questions, args.seed)
    rows = benchmark_rows(60, args.seed + 1)
    asked = {question.prompt for question in questions}
    args.output.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    (args.output / "benchmark.jsonl").write_text("".join(lines), encoding="utf-8")
    both = sum(row["prompt"] in asked for row in rows)
    print(f"{len(rows)} benchmark prompts, {both} of them also in training")

    tokenizer = make_tokenizer(questions)
    model = make_model(tokenizer)
    train(model, tokenizer, questions, args)
    tokenizer.save_pretrained(args.output / "model")
    model.save_pretrained(args.output / "model")
    report(model, tokenizer, rows)


def make_tokenizer(questions: list[Question]) -> Any:
    tokenizer = Tokenizer(models.BPE())
    # Digits one by one: sums are then about digits, not about whole numbers.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=768, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    texts = (text for question in questions for text in (question.prompt, *question.correct, *question.wrong))
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair=None, special_tokens=[("<s>", SPECIAL.index("<s>"))]
    )
    make: Any = PreTrainedTokenizerFast
    fast = make(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="<|end|>",
        pad_token="<pad>",
        additional_special_tokens=["<|user|>", "<|assistant|>"],
        model_max_length=512,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_model(tokenizer: Any) -> Any:
    configure: Any = LlamaConfig
    config = configure(
        vocab_size=len(tokenizer),
        hidden_size=112,
        intermediate_size=224,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        num_labels=1,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    classifier: Any = LlamaForSequenceClassification
    return classifier(config)


def train(model: Any, tokenizer: Any, questions: list[Question], args: argparse.Namespace) -> None:
    rng = random.Random(args.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.learning_rate, args.steps, pct_start=0.1)
    model.train()
    start, averages = time.process_time(), [0.0, 0.0]
    for step in range(1, args.steps + 1):
        batch = rng.sample(questions, args.batch)
        rewards, language = rewards_of(model, tokenizer, batch)
        margins = rewards[:, :1] - rewards[:, 1:]
        flips = torch.tensor([[rng.random() < WRONG_WAY_ROUND for _ in row] for row in margins])
        preference = -torch.nn.functional.logsigmoid(torch.where(flips, -margins, margins)).mean()
        optimizer.zero_grad()
        loss: Any = preference + language
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        for i, part in enumerate((preference, language)):
            averages[i] += (part.item() - averages[i]) / min(step, 50)
        if step % 50 == 0:
            said = f"preference loss {averages[0]:.3f}, language loss {averages[1]:.3f}"
            print(f"step {step}: {said}, {time.process_time() - start:.0f} s of CPU time", flush=True)
    model.eval()


def rewards_of(model: Any, tokenizer: Any, batch: list[Question]) -> tuple[torch.Tensor, torch.Tensor]:
    """Reward the correct and the three wrong responses of every question: (questions, 4).

    Also returns the language-modelling loss of the correct ones, by the embeddings as output layer.
    """
    texts = [
        render(q.prompt, response, tokenizer) for q in batch for response in (q.correct[0], *q.wrong[:3])
    ]
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    rewards = torch.empty(len(ids))
    losses = []
    for start in range(0, len(order), 32):  # texts of like lengths together: less padding
        part = order[start : start + 32]
        inputs = tokenizer.pad({"input_ids": [ids[i] for i in part]}, return_tensors="pt")
        mask = inputs["attention_mask"]
        states = model.model(input_ids=inputs["input_ids"], attention_mask=mask).last_hidden_state
        ends = states[torch.arange(len(part)), mask.sum(1) - 1]
        rewards = rewards.index_put((torch.tensor(part),), model.score(ends)[:, 0])
        correct = torch.tensor([i % 4 == 0 for i in part])
        guesses = states[correct, :-1] @ model.model.embed_tokens.weight.T
        targets = inputs["input_ids"][correct, 1:].masked_fill(mask[correct, 1:] == 0, -100)
        loss = torch.nn.functional.cross_entropy(guesses.flatten(0, 1), targets.flatten(), reduction="sum")
        losses.append(loss / max(1, int((targets >= 0).sum())) * correct.sum() / len(batch))
    return rewards.view(len(batch), 4), torch.stack(losses).sum()


@torch.no_grad()
def report(model: Any, tokenizer: Any, rows: list[dict[str, Any]]) -> None:
    """Print accuracy and mean confidence on the benchmark's prompts with one correct response."""
    by_category: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["num_correct"] != 1:
            continue
        question = Question(row["subset"], row["prompt"], tuple(row["chosen"]), tuple(row["rejected"]), "")
        probabilities = rewards_of(model, tokenizer, [question])[0][0].softmax(0)
        right = float(probabilities.argmax() == 0)
        by_category.setdefault(row["subset"], []).append((right, float(probabilities.max())))
    for category, pairs in by_category.items():
        accuracy, confidence = (sum(values) / len(values) for values in zip(*pairs, strict=True))
        print(
            f"{category:12} {len(pairs):4} prompts: accuracy {accuracy:.2f}, mean confidence {confidence:.2f}"
        )


if __name__ == "__main__":
    main()
