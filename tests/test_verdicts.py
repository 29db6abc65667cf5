"""Verdicts by order, repeat and wording: judges whose behaviour is known."""

from __future__ import annotations

import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from verdicts import VerdictAnalysis, analyse_verdicts, load_verdicts

ORDERS = ["".join(map(str, order)) for order in permutations(range(3))]


def analysis(choose: object, *, n: int = 40, repeats: int = 1, seed: int = 0) -> VerdictAnalysis:
    """Ask a judge, a function of (prompt, order, rng) to a place, about n prompts in all six orders."""
    rng = np.random.default_rng(seed)
    rows = [
        {"judge": "j", "prompt": p, "order": order, "verdict": choose(p, order, rng)}  # type: ignore[operator]
        for p in range(n)
        for order in ORDERS
        for _ in range(repeats)
    ]
    return analyse_verdicts(load_verdicts(pd.DataFrame(rows)))["j"]


def test_a_judge_that_always_takes_the_first_place() -> None:
    found = analysis(lambda _p, _order, _rng: "A", repeats=2)
    assert found.right.value == pytest.approx(1 / 3)
    assert {place: rate.value for place, rate in found.right_at.items()} == {"A": 1.0, "B": 0.0, "C": 0.0}
    assert found.noise is not None
    assert found.noise.value == 0
    # Two different orders name different responses unless they begin with the same one: 12 of 15 pairs.
    assert found.position_effect == pytest.approx(12 / 15)
    assert found.disagreement.value == pytest.approx(2 / 3)
    assert found.orders_needed is None


def test_a_judge_that_is_right_or_consistently_wrong() -> None:
    found = analysis(lambda p, order, _rng: "ABC"[order.index("0" if p % 4 else "2")])
    assert found.right.value == pytest.approx(0.75)
    assert found.right.n == 40
    assert found.right.low < 0.75 < found.right.high
    assert found.across_orders is not None
    assert found.across_orders.value == 0
    assert found.disagreement.value == pytest.approx(0.25)
    assert found.orders_needed == 1


def test_noise_between_repeats_is_no_position_effect() -> None:
    found = analysis(lambda _p, _order, rng: "ABC"[rng.integers(3)], n=300, repeats=2)
    assert found.noise is not None
    assert found.noise.value == pytest.approx(2 / 3, abs=0.05)
    assert found.position_effect == pytest.approx(0, abs=0.05)
    assert found.agreement_by_orders[1] < found.agreement_by_orders[3] < found.agreement_by_orders[6]


def test_unread_verdicts_are_counted_and_not_credited() -> None:
    found = analysis(lambda p, order, _rng: "I cannot say" if p % 2 else "ABC"[order.index("0")])
    assert (found.n_unread, found.n_verdicts, found.n_prompts) == (120, 240, 40)
    assert found.right.value == pytest.approx(0.5)
    assert found.disagreement.value == pytest.approx(0.5)
    assert found.across_orders is not None
    assert found.across_orders.n == 20


def test_wordings_are_compared_within_orders() -> None:
    rows = [
        {"judge": "j", "prompt": p, "order": "01", "verdict": "AB"[w], "wording": str(w)}
        for p in range(5)
        for w in range(2)
    ]
    found = analyse_verdicts(load_verdicts(pd.DataFrame(rows)))["j"]
    assert found.across_wordings is not None
    assert found.across_wordings.value == 1
    assert found.noise is None
    assert found.across_orders is None


@pytest.mark.parametrize("order", ["102", "1,0,2", "1 0 2", [1, 0, 2]])
def test_orders_and_verdicts_in_several_spellings(order: object) -> None:
    table = pd.DataFrame({"prompt": ["a"] * 4, "order": [order] * 4, "verdict": ["B", "b ", "2", "D"]})
    assert load_verdicts(table)["response"].tolist() == [0, 0, 0, -1]


def test_only_the_place_of_the_correct_response(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    path.write_text("judge,prompt,correct_at,verdict\nj,1,A,A\nj,1,B,A\nj,1,C,C\n")
    found = load_verdicts(path, {"order": "correct_at"})
    assert found["response"].tolist() == [0, 1, 0]
    assert found["judge"].tolist() == ["j"] * 3


@pytest.mark.parametrize(
    ("table", "columns", "named"),
    [
        ({"prompt": [1], "verdict": ["A"]}, None, "order"),
        ({"prompt": [1], "order": ["113"], "verdict": ["A"]}, None, "order is '113'"),
        ({"prompt": [1], "order": ["01"], "verdict": ["A"]}, {"verdict": "nothing"}, "'nothing'"),
    ],
)
def test_bad_tables_are_named(
    table: dict[str, list[object]], columns: dict[str, str] | None, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        load_verdicts(pd.DataFrame(table), columns)


def test_the_real_judges() -> None:
    found = analyse_verdicts(load_verdicts())
    assert len(found) == 5
    critic = found["Skywork/Skywork-Critic-Llama-3.1-8B"]
    places = [round(100 * rate.value) for rate in critic.right_at.values()]
    assert places == [89, 78, 31, 27]
    assert sum(one.n_unread for one in found.values()) == 313
    assert all(one.n_prompts == 1763 for one in found.values())
