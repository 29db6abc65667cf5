"""The reference setting reproduces the published figures of the public code."""

from typing import Any

import numpy as np
import pytest

from rmcalib.calibration import sub_k, top_k
from rmcalib.tabular import load_dataset
from rmcalib.tabular._reference import reference_forecast, reference_split, reference_support
from tests.golden import published_errors
from tests.tabular.files import AVAILABLE, FOLDER

MODELS = {"pl": "PlackettLuce", "mallows": "MallowsModel", "rc": "PreferenceModel"}


@pytest.mark.parametrize("learner", MODELS)
@pytest.mark.parametrize("name", [name for name in ("iris", "political", "vowel") if name in AVAILABLE])
def test_published_figures_are_reproduced(learner: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if FOLDER:
        monkeypatch.setenv("RMCALIB_DATA", FOLDER)
    published = published_errors()
    published = published[(published["dataset"] == name) & (published["model"] == MODELS[learner])]
    values = published.set_index(["family", "k", "fold"])["ece"]
    data = load_dataset(name)
    fold = 1
    dist: Any = reference_forecast(learner, data, fold)
    orders = data.orders[reference_split(len(data), fold).test]
    for family, k, notion in (("sub", 2, sub_k), ("sub", 3, sub_k), ("top", 1, top_k), ("top", 2, top_k)):
        value = notion(
            dist, orders, k, protocol="reference", coverage=0.95, support=reference_support(data.orders)
        ).value
        # Trained networks differ between machines by the rounding of float32.
        assert value == pytest.approx(values[family, k, fold], abs=1e-3)


def test_only_long_rankings_are_summed_over_the_observed_ones() -> None:
    assert reference_support(np.array([[0, 1, 2]])) is None
    support = reference_support(np.array([range(8), range(8), [1, 0, *range(2, 8)]]))
    assert support is not None
    assert len(support) == 2
