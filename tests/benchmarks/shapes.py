"""Small files in the formats in which benchmarks are published, with our own texts."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


def said(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def talk(question: str, answer: str) -> list[dict[str, Any]]:
    return [said("user", question), said("assistant", answer)]


def parts(role: str, text: str, image: str | None = None) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text, "image": image, "mimeType": None}]}


def annotation(preference: str) -> dict[str, Any]:
    return {
        "overall_pref": preference,
        "overall_confidence": "absolutely-confident",
        "evaluator": "w1",
        "time_spent": 31,
    }


def judgment(winner: str, judge: str, a: str = "alpha", b: str = "beta", turn: int = 1) -> dict[str, Any]:
    second = [said("user", "And now in rhyme."), said("assistant", "second")]
    texts = {"alpha": "A poem.", "beta": "B poem."}
    return {
        "question_id": 81,
        "model_a": a,
        "model_b": b,
        "winner": winner,
        "judge": judge,
        "conversation_a": talk("Write a poem.", texts[a]) + second,
        "conversation_b": talk("Write a poem.", texts[b]) + second,
        "turn": turn,
    }


def solution(problem: str, author: str, *steps: str) -> dict[str, Any]:
    return {"problem": problem, "solution_reference": author, "eval_solution": list(steps)}


def best_of_n(uid: str, category: str, n: int = 3) -> dict[str, Any]:
    return {
        "bon_uid": uid,
        "conversation_input": [{"role": "user", "content": "Explain tides.", "language": "English"}],
        "bon_best": {"llm_name": "a", "answer": "The moon."},
        "loser_list": [{"llm_name": "b", "answer": f"The wind {i}."} for i in range(n - 1)],
        "category_path": category,
    }


def pair(uid: str, category: str) -> dict[str, Any]:
    row = best_of_n(uid, category)
    chosen, reject = row.pop("bon_best"), row.pop("loser_list")[0]
    return {"pair_uid": uid, **row, "chosen": chosen, "reject": reject} | {"bon_uid": None}


SHAPES: dict[str, Rows] = {
    "reward-bench-1": [
        {
            "id": i,
            "prompt": "Name a fruit.",
            "chosen": "Apple.",
            "chosen_model": "m1",
            "rejected": "Brick.",
            "rejected_model": "m2",
            "subset": subset,
        }
        for i, subset in enumerate(["alpacaeval-easy", "mt-bench-hard", "donotanswer", "math-prm", "hep-go"])
    ],
    "reward-bench-2": [
        {
            "id": "7",
            "prompt": "2+2?",
            "chosen": ["4"],
            "rejected": ["5", "6", "7"],
            "num_correct": 1,
            "num_incorrect": 3,
            "total_completions": 4,
            "models": ["a", "b", "c", "d"],
            "subset": "Math",
            "additional_metadata": {"method": "hand"},
        }
    ],
    "rm-bench": [
        {
            "id": str(i),
            "subset": "chat",
            "domain": domain,
            "prompt": "Say hello.",
            "chosen": ["Hello.", "Hello to you.", "**Hello** to you."],
            "rejected": ["Bye.", "Bye to you.", "**Bye** to you."],
            "error_key": "greeting",
            "error": "a farewell",
        }
        for i, domain in enumerate(["chat", "safety-refuse", "safety-response"])
    ],
    "rmb": [
        best_of_n("u1", "BoN_set/Helpfulness/Brainstorming/ideas.json"),
        best_of_n("u2", "BoN_set/Harmlessness/S1.json", 5),
    ],
    "rmb-pairwise": [pair("p1", "Pairwise_set/Helpfulness/Chat/hi.json"), pair("p2", "Harmlessness/S2")],
    "judgebench": [
        {
            "pair_id": f"id-{i}",
            "original_id": "3",
            "source": source,
            "question": "Which is a prime?",
            "response_model": "m",
            "response_A": "Seven.",
            "response_B": "Eight.",
            "label": label,
        }
        for i, (source, label) in enumerate([("mmlu-pro-math", "A>B"), ("livecodebench", "B>A")])
    ],
    "rewardmath": [
        solution("1+1?", "some/model", "It is", "3."),
        solution("1+1?", "human_to_GPT-4", "It is", "2."),
        solution("2+3?", "human_to_GPT-4", "5."),
        solution("2+3?", "some/model", "6."),
        solution("2+3?", "other/model", "7."),
    ],
    "ppe-human": [
        {
            "question_id": f"q{i}",
            "model_a": "m1",
            "model_b": "m2",
            "winner": winner,
            "prompt": "Tell a joke.",
            "response_1": "First joke.",
            "response_2": "Second joke.",
            "language": "German",
            "conv_metadata": {"turns": 1},
            "is_code": False,
            "is_refusal": False,
            "category_tag": {"math": False},
            "hard_prompt": True,
            "easy_prompt": False,
            "if_prompt": False,
            "math_prompt": False,
        }
        for i, winner in enumerate(["model_a", "model_b", "tie", "tie (bothbad)"])
    ],
    "ppe-correctness": [
        {
            "question_id": "q1",
            "prompt": "Capital of Peru?",
            **{f"response_{i + 1}": f"Answer {i}" for i in range(4)},
            "scores": [False, True, False, True],
            "mean_score": 0.5,
            "conflict_pairs": [[0, 1], [1, 2], [2, 3], [0, 3]],
            "sampled_conflict_pairs": [[0, 1], [3, 2]],
            "model_name": "m",
        }
    ],
    "helpsteer3": [
        {
            "domain": "code",
            "language": "python",
            "context": [said("user", "Sort a list.")],
            "response1": "sorted(x)",
            "response2": "x.sort",
            "overall_preference": -2,
            "individual_preference": [
                {"score": score, "reasoning": "r", "feedback1": "f", "feedback2": "g"}
                for score in (-3, -1, 1)
            ],
        },
        {
            "domain": "general",
            "language": "english",
            "context": [said("user", "Hi"), said("assistant", "Hello"), said("user", "Bye")],
            "response1": "No.",
            "response2": "Goodbye!",
            "overall_preference": 1,
            "individual_preference": [{"score": score} for score in (2, 0, 1)],
        },
    ],
    "multipref": [
        {
            "comparison_id": "c1",
            "prompt_id": "p1",
            "text": "Name a river.",
            "completion_a": "The wall.",
            "completion_b": "The Nile.",
            "model_a": "m1",
            "model_b": "m2",
            "normal_worker_annotations": [annotation("B-is-clearly-better"), annotation("Tie")],
            "expert_worker_annotations": [
                annotation("B-is-slightly-better"),
                annotation("A-is-clearly-better"),
            ],
        }
    ],
    "mt-bench-human": [
        judgment("model_a", "author_0"),
        judgment("tie", "expert_1"),
        judgment("model_a", "expert_2", a="beta", b="alpha"),
        judgment("model_b", "expert_3", a="beta", b="alpha"),
        judgment("model_a", "expert_4", turn=2),
    ],
    "arena-55k": [
        {
            "id": "1",
            "model_a": "m1",
            "model_b": "m2",
            "prompt": '["Say \\"hi\\", please."]',
            "response_a": '["hi"]',
            "response_b": '["bye"]',
            "winner_model_a": "0",
            "winner_model_b": "1",
            "winner_tie": "0",
        },
        {
            "id": "2",
            "model_a": "m1",
            "model_b": "m2",
            "prompt": '["One?", "Two?"]',
            "response_a": '["1", "2"]',
            "response_b": '["I", "II"]',
            "winner_model_a": "0",
            "winner_model_b": "0",
            "winner_tie": "1",
        },
    ],
    "arena-140k": [
        {
            "id": f"b{i}",
            "model_a": "m1",
            "model_b": "m2",
            "winner": winner,
            "conversation_a": [parts("user", "Sing.", image), parts("assistant", "La.")],
            "conversation_b": [parts("user", "Sing."), parts("assistant", "Lo.")],
            "language": "en",
            "is_code": False,
        }
        for i, (winner, image) in enumerate([("model_b", None), ("both_bad", None), ("tie", "a.png")])
    ],
    "ultrafeedback": [
        {
            "source": "truthful_qa",
            "instruction": "Name a planet.",
            "models": ["a", "b", "c"],
            "completions": [
                {"model": "a", "response": "Moon.", "overall_score": 3.0},
                {"model": "b", "response": "Mars.", "overall_score": 8.5},
                {"model": "c", "response": "Sun.", "overall_score": 2.0},
            ],
        },
        {
            "source": "flan",
            "instruction": "Name a star.",
            "completions": [{"response": x, "overall_score": 5} for x in ("Sun.", "Vega.")],
        },
    ],
    "trl": [
        {"prompt": "2+2?", "chosen": "4", "rejected": "5"},
        {
            "prompt": [said("user", "Hi")],
            "chosen": [said("assistant", "Hello!")],
            "rejected": [said("assistant", "What?")],
        },
        {"chosen": talk("Sky?", "Blue."), "rejected": talk("Sky?", "Green.")},
        {"chosen": "The sky is blue.", "rejected": "The sky is green."},
        {
            "chosen": "\n\nHuman: Hi\n\nAssistant: I am fine",
            "rejected": "\n\nHuman: Hi\n\nAssistant: I am not",
        },
        {"prompt": "Sky?", "chosen": talk("Sky?", "Blue."), "rejected": talk("Sky?", "Red.")},
        {"prompt": "Same?", "chosen": "yes", "rejected": "yes"},
    ],
    "rmcalib": [
        {"id": 1, "prompt": "2+2?", "chosen": ["4"], "rejected": ["5"], "subset": "Math", "language": "en"},
        {
            "id": 2,
            "prompt": "Tea?",
            "responses": ["No", "Yes"],
            "votes": [1, 3],
            "ties": 2,
            "subset": "Chat",
        },
    ],
}


def write(path: Path, rows: Rows) -> Path:
    """Write rows in the format of the file name's ending."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path
