"""Metrics for training loops: equal to those of an evaluation, from arrays or tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rmcalib.integrations.training import metric_values, preference_metrics
from rmcalib.metrics.catalogue import TRAINING_METRICS, chosen_metrics
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.table import find_value, metric_rows
from rmcalib.metrics.views import whole_part
from rmcalib.scores import Scores


def pairs(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.normal(1.0, 2.0, size=n), rng.normal(0.0, 2.0, size=n)


def test_the_values_equal_those_of_an_evaluation() -> None:
    chosen, rejected = pairs()
    found = preference_metrics(chosen, rejected)
    part = whole_part(Scores.from_arrays(np.stack([chosen, rejected], 1)))
    rows = metric_rows(part, chosen_metrics(TRAINING_METRICS), Settings(resamples=200))
    for name in ("mean_confidence", "accuracy", "overconfidence", "lost_information", "temperature", "ece"):
        row = find_value(rows, name)
        assert row is not None
        assert found[name] == pytest.approx(row["value"])
    assert set(found) == set(TRAINING_METRICS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_with_gradients(dtype: torch.dtype) -> None:
    chosen, rejected = (torch.tensor(values, dtype=dtype, requires_grad=True) for values in pairs())
    arrays = [values.detach().float().numpy() for values in (chosen, rejected)]
    assert preference_metrics(chosen[:, None], rejected[:, None]) == preference_metrics(*arrays)


def test_a_metric_without_a_value_is_nan() -> None:
    found = preference_metrics([1.0] * 30, [0.0] * 30)  # all right: no finite temperature is best
    assert np.isnan(found["temperature"])
    assert found["accuracy"] == 1


@pytest.mark.parametrize(
    ("chosen", "rejected", "message"),
    [
        ([1.0, 2.0], [1.0], "2 and 1 rewards"),
        ([], [], "chosen: "),
        ([[1.0, 2.0]], [[1.0, 2.0]], r"chosen: .*\(1, 2\)"),
        ([1.0], [float("nan")], "rejected: nan"),
    ],
)
def test_bad_input(chosen: list[float], rejected: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        preference_metrics(chosen, rejected)


def test_prompts_without_one_answer_are_refused() -> None:
    scores = Scores.from_arrays([[1.0, 0.0, 2.0]], correct=np.array([[True, True, False]]))
    with pytest.raises(ValueError, match="exactly one correct response"):
        metric_values(scores)
