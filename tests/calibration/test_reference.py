"""The reference protocol, compared with results of the paper's public code on the same predictions."""

from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from rmcalib.calibration import full_rank, reference, sub_k, top_k
from rmcalib.calibration.reference import (
    ReferenceDiscrepancy,
    reference_full_rank,
    reference_rankwise,
    reference_strong_notion,
)
from rmcalib.ranking import ExplicitRankings, PairwiseProbabilities, PlackettLuce, orders_from_ranks
from rmcalib.ranking.synthetic import synthetic_plackett_luce
from tests.golden import DATA_SETS, figures, predictions

TOLERANCES = {"abs": 2e-6, "jeff": 1e-4, "kl": 1e-4, "kernel": 5e-5}
RELATIVE = {"rel_p": 1e-4, "rel_q": 1e-4, "log_ratio": 1e-4}
MODELS = ("PlackettLuce", "MallowsModel", "PreferenceModel", "PlackettLuceRPC")


@lru_cache
def golden(name: str) -> tuple[dict[str, Any], dict[str, Any], Any, Any]:
    arrays, values = predictions(name), figures(name)
    return arrays, values, arrays["orders"] - 1, orders_from_ranks(arrays["y_true_ranks"], base=1)


def kernel_options(key: list[str]) -> dict[str, Any]:
    return {"bandwidth": float(key[3].removeprefix("h=")), "norm": int(key[4].removeprefix("p="))}


def close(ours: float, theirs: float, kind: str) -> bool:
    if kind in RELATIVE:
        return abs(ours - theirs) <= RELATIVE[kind] * max(abs(theirs), 1e-3)
    return abs(ours - theirs) <= TOLERANCES[kind]


@pytest.mark.parametrize("name", DATA_SETS)
def test_every_golden_value_of_the_list_models_is_reproduced(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays, values, listed, orders = golden(name)
    # Thousands of values share a few dozen marginals: compute each of those once.
    shared: dict[Any, Any] = {}
    compute = reference._listed_forecasts

    def once(listed: Any, p: Any, *rest: Any) -> Any:
        key = (id(p), *rest[1:])
        if key not in shared:
            shared[key] = compute(listed, p, *rest)
        return shared[key]

    monkeypatch.setattr(reference, "_listed_forecasts", once)
    checked: Counter[str] = Counter()
    for key, theirs in values["results"].items():
        function, model, *rest = key.split("|")
        if isinstance(theirs, str) or function == "per_event" or "binning" in rest or model == "RPC":
            continue
        k, kind = int(rest[0]), rest[2]
        family: Any = "sub" if "_sub_" in function else "top"
        call: tuple[Any, ...] = (listed, arrays[f"probs_{model}"], orders, k, family)
        options: dict[str, Any] = {"weighting": rest[1]}
        if "full_rank" in function:
            ours = reference_full_rank(*call, **{**options, **kernel_options(rest)})
        else:
            ours = reference_rankwise(*call, **options, discrepancy=kind, spacing=rest[3]).value
        assert close(ours, theirs, kind), (key, ours, theirs)
        checked[kind] += 1
    assert min(checked.values()) >= 100
    assert set(checked) == {*TOLERANCES, *RELATIVE}


@pytest.mark.parametrize("name", DATA_SETS)
def test_every_golden_value_of_the_pairwise_model_is_reproduced(name: str) -> None:
    arrays, values, _, orders = golden(name)
    pairs = PairwiseProbabilities(arrays["rpc_pairwise"])
    kinds: dict[str, Any] = {"abs": "abs", "kl": "kl", "jeff": "jeffreys_unit"}
    weightings: dict[str, Any] = {"uniform": {}, "95_prob_mass": {"coverage": 0.95}}
    weightings |= {"prevalence": {"weighting": "frequency"}, "pred_mass": {"weighting": "probability"}}
    checked = 0
    for key, theirs in values["results"].items():
        function, model, *rest = key.split("|")
        if model != "RPC" or isinstance(theirs, str) or "binning" in rest or rest[1] not in weightings:
            continue
        options = weightings[rest[1]]
        if "full_rank" in function:
            ours = full_rank(
                pairs,
                orders,
                family="sub",
                k=2,
                protocol="reference",
                **kernel_options(rest),
                **options,
            ).value
        elif rest[2] in kinds:
            spacing: Any = {"linear": "width", "log": "log"}[rest[3]]
            ours = sub_k(
                pairs, orders, 2, protocol="reference", spacing=spacing, discrepancy=kinds[rest[2]], **options
            ).value
        else:
            continue
        assert close(ours, theirs, rest[2]), (key, ours, theirs)
        checked += 1
    assert checked >= 30


@pytest.mark.parametrize("name", DATA_SETS)
def test_every_event_and_filter_is_the_same(name: str) -> None:
    arrays, values, listed, orders = golden(name)
    for key, rows in values["results"].items():
        if not key.startswith("per_event|") or "|RPC|" in key:
            continue
        _, function, model, k, *_ = key.split("|")
        family: Any = "sub" if "_sub_" in function else "top"
        result = reference_rankwise(listed, arrays[f"probs_{model}"], orders, int(k), family)
        ours = {tuple(event + 1): error for event, error in zip(result.events, result.per_event, strict=True)}
        assert len(ours) == len(rows)
        for event, error, _, _ in rows:
            # The public code sums up to 720 numbers in float32; this is its rounding error.
            assert ours[tuple(event)] == pytest.approx(error, abs=3e-6)
    for model in MODELS:
        info = values["info"][f"filter|{model}|95_prob_mass"]
        result = reference_rankwise(
            listed, arrays[f"probs_{model}"], orders, 2, "sub", weighting="95_prob_mass"
        )
        assert result.n == info["n_samples_kept"]


def test_the_protocol_mostly_measures_the_truncation() -> None:
    """On political, the filter drops most of the forecast; the "error" is mostly the missing probability."""
    arrays, values, listed, orders = golden("political")
    for model in MODELS:
        p = arrays[f"probs_{model}"]
        dist = ExplicitRankings(listed, p / p.sum(axis=1, keepdims=True))
        reference = sub_k(dist, orders, 2, protocol="reference", coverage=0.95).value
        kept = values["info"][f"filter|{model}|95_prob_mass"]["mean_mass_kept"]
        assert kept < 0.45
        assert reference == pytest.approx((1 - kept) / 2, abs=0.03)
        assert sub_k(dist, orders, 2).value < 0.5 * reference


def test_notions_select_the_protocol_by_name() -> None:
    d = synthetic_plackett_luce(60, 4, rng=np.random.default_rng(0))
    result = sub_k(d.forecast, d.orders, 2, protocol="reference", coverage=0.95)
    assert result.protocol == "reference"
    assert result.selection == "95_prob_mass"
    p = np.exp(d.forecast.log_prob(np.unique(d.orders, axis=0)))
    direct = reference_rankwise(np.unique(d.orders, axis=0), p, d.orders, 2, "sub", weighting="95_prob_mass")
    listed = sub_k(d.forecast, d.orders, 2, protocol="reference", coverage=0.95, support=d.orders)
    assert listed.value == pytest.approx(direct.value, abs=1e-7)


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
        ({"bins": 15}, "has 10 bins"),
        ({"norm": 2}, "norm 1"),
        ({"spacing": "mass"}, "spacing 'width' or 'log'"),
        ({"discrepancy": "jeffreys"}, "reports jeffreys_unit"),
        ({"coverage": 0.9}, "has coverage=0.95"),
        ({"events": [[0, 1]]}, "chooses its own events"),
    ],
)
def test_options_that_the_protocol_does_not_have_raise(options: Any, message: str) -> None:
    dist = PlackettLuce([[0.0, 1.0]] * 3)
    with pytest.raises(ValueError, match=message):
        sub_k(dist, [[0, 1]] * 3, 2, protocol="reference", **options)


def test_errors_name_the_bad_array() -> None:
    with pytest.raises(ValueError, match=r"probabilities: shape \(1, 1\), expected \(1, 2\)"):
        reference_rankwise([[0, 1], [1, 0]], [[1.0]], [[0, 1]], 2, "sub")
    kind: ReferenceDiscrepancy = "l1"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="discrepancy: unknown 'l1'"):
        reference_rankwise([[0, 1]], [[1.0]], [[0, 1]], 2, "sub", discrepancy=kind)
    with pytest.raises(ValueError, match=r"has coverage=0\.95 or None"):
        reference_strong_notion(PlackettLuce([[0.0, 1.0]]), np.array([[0, 1]]), 2, "sub", coverage=0.5)
