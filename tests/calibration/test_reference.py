"""The reference protocol, compared with results of the paper's public code on the same predictions."""

from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from rmcalib.calibration import full_rank, sub_k, top_k
from rmcalib.ranking import ExplicitRankings, PairwiseProbabilities, PlackettLuce, orders_from_ranks
from rmcalib.ranking.synthetic import synthetic_plackett_luce
from tests.golden import DATA_SETS, figures, predictions

TOLERANCES = {"abs": 2e-6, "jeff": 1e-4, "kl": 1e-4, "kernel": 5e-5}
KINDS: dict[str, Any] = {"abs": "abs", "kl": "kl", "jeff": "jeffreys_unit"}
WEIGHTINGS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "95_prob_mass": {"coverage": 0.95},
    "prevalence": {"weighting": "frequency"},
    "pred_mass": {"weighting": "probability"},
}
LARGE = ("glass", "political")
MODELS = ("PlackettLuce", "MallowsModel", "PreferenceModel", "PlackettLuceRPC")


@lru_cache
def golden(name: str) -> tuple[dict[str, Any], Any]:
    """Return the results of the public code by name, and the true orders."""
    return figures(name), orders_from_ranks(predictions(name)["y_true_ranks"], base=1)


@lru_cache
def forecast(name: str, model: str) -> Any:
    arrays = predictions(name)
    if model == "RPC":
        return PairwiseProbabilities(arrays["rpc_pairwise"])
    p = arrays[f"probs_{model}"].astype(np.float64)
    return ExplicitRankings(arrays["orders"] - 1, p / p.sum(axis=1, keepdims=True))


def ours(name: str, function: str, model: str, k: int, weighting: str, kind: str, *rest: str) -> Any:
    """Return our result with the name of one of the public code."""
    dist, (_, orders) = forecast(name, model), golden(name)
    options: dict[str, Any] = {"protocol": "reference", **WEIGHTINGS[weighting]}
    if model != "RPC":
        options["support"] = predictions(name)["orders"] - 1
    if "full_rank" in function:
        bandwidth, norm = float(rest[0].removeprefix("h=")), int(rest[1].removeprefix("p="))
        family: Any = "sub" if "_sub_" in function else "top"
        return full_rank(dist, orders, family=family, k=k, bandwidth=bandwidth, norm=norm, **options)  # type: ignore[arg-type]
    spacing = {"linear": "width", "log": "log"}[rest[0]]
    notion: Any = sub_k if "_sub_" in function else top_k
    return notion(dist, orders, k, spacing=spacing, discrepancy=KINDS[kind], **options)


@pytest.mark.parametrize("name", DATA_SETS)
def test_the_values_of_the_public_code_are_reproduced(name: str) -> None:
    checked: Counter[str] = Counter()
    for key, theirs in golden(name)[0]["results"].items():
        function, model, *rest = key.split("|")
        if isinstance(theirs, str) or function == "per_event" or "binning" in rest:
            continue
        k, weighting, kind, *more = rest
        if name in LARGE and (model not in ("PlackettLuce", "RPC") or more[0] == "log"):
            continue  # to save time
        if weighting not in WEIGHTINGS or kind not in TOLERANCES:
            continue
        found = ours(name, function, model, int(k), weighting, kind, *more).value
        assert found == pytest.approx(theirs, abs=TOLERANCES[kind]), key
        checked[kind] += 1
    assert set(checked) == {*TOLERANCES}
    assert min(checked.values()) >= 30


@pytest.mark.parametrize("name", DATA_SETS)
def test_every_event_and_filter_is_the_same(name: str) -> None:
    values, _ = golden(name)
    for key, rows in values["results"].items():
        if not key.startswith("per_event|") or "|RPC|" in key:
            continue
        _, function, model, k, *_ = key.split("|")
        result = ours(name, function, model, int(k), "uniform", "abs", "linear")
        errors = {
            tuple(event + 1): error for event, error in zip(result.events, result.per_event, strict=True)
        }
        assert len(errors) == len(rows)
        for event, error, _, _ in rows:
            # The public code sums up to 720 numbers in float32; this is its rounding error.
            assert errors[tuple(event)] == pytest.approx(error, abs=3e-6)
    for model in MODELS:
        result = ours(name, "rankwise_sub_k", model, 2, "95_prob_mass", "abs", "linear")
        assert result.n == values["info"][f"filter|{model}|95_prob_mass"]["n_samples_kept"]


def test_the_protocol_mostly_measures_the_truncation() -> None:
    """On political, the filter drops most of the forecast; the "error" is mostly the missing probability."""
    values, orders = golden("political")
    for model in MODELS:
        dist = forecast("political", model)
        reference = sub_k(dist, orders, 2, protocol="reference", coverage=0.95).value
        kept = values["info"][f"filter|{model}|95_prob_mass"]["mean_mass_kept"]
        assert kept < 0.45
        assert reference == pytest.approx((1 - kept) / 2, abs=0.03)
        assert sub_k(dist, orders, 2).value < 0.5 * reference


def test_many_items_need_the_rankings_of_the_data_set() -> None:
    rng = np.random.default_rng(0)
    d = synthetic_plackett_luce(30, 9, rng=rng)
    with pytest.raises(ValueError, match="support: with 9 items"):
        top_k(d.forecast, d.orders, 2, protocol="reference")
    result = top_k(d.forecast, d.orders, 2, protocol="reference", support=d.orders)
    assert result.n_events == len(np.unique(d.orders[:, :2], axis=0))
    assert (
        full_rank(d.forecast, d.orders, family="top", k=1, protocol="reference", support=d.orders).value > 0
    )


def test_a_calibrated_forecast_measures_as_uncalibrated_only_in_the_reference_protocol() -> None:
    d = synthetic_plackett_luce(150, 6, rng=np.random.default_rng(1))
    assert sub_k(d.forecast, d.orders, 2, protocol="reference", coverage=0.95).value > 0.2
    assert sub_k(d.forecast, d.orders, 2).value < 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": 15}, "bins"),
        ({"spacing": "mass"}, "spacing"),
        ({"discrepancy": "jeffreys"}, "discrepancy"),
        ({"coverage": 0.9}, "coverage"),
        ({"max_events": 5}, "max_events"),
    ],
)
def test_options_that_the_protocol_does_not_have_raise(options: Any, message: str) -> None:
    dist = PlackettLuce([[0.0, 1.0]] * 3)
    with pytest.raises(ValueError, match=message):
        sub_k(dist, [[0, 1]] * 3, 2, protocol="reference", **options)
