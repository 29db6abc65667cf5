"""An evaluation in the schema of Every Eval Ever, version 0.3.0 (github.com/evaleval/every_eval_ever)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from rmcalib import __version__
from rmcalib.metrics import OVERALL, catalogue
from rmcalib.publish._hub_results import is_on_hub
from rmcalib.report import Evaluation

__all__ = ["RELATIONSHIPS", "Evaluator", "every_eval_ever"]

SCHEMA = "0.3.0"
RELATIONSHIPS = ("first_party", "third_party", "collaborative", "other")
# The exported metrics, each with its smallest and largest value.
_RANGES: dict[str, tuple[float | str, float | str]] = {
    "accuracy": (0, 1),
    "overconfidence": (-1, 1),
    "kept_information": ("-Infinity", 1),
    "lost_information": (0, "Infinity"),
    "usable_information": (0, 1),
    "ece": (0, 1),
    "confidence_ece": (0, 1),
    "brier": (0, 2),
    "nll": (0, "Infinity"),
}


@dataclass(frozen=True)
class Evaluator:
    """Who ran the evaluation, for a record of Every Eval Ever.

    Parameters
    ----------
    organization : str
        Name of the organization that ran it.
    relationship : str
        Its relation to the developer of the model: "first_party", "third_party", "collaborative" or "other".

    Examples
    --------
    >>> Evaluator("My lab", "third_party").relationship
    'third_party'
    """

    organization: str = "unknown"
    relationship: str = "other"

    def __post_init__(self) -> None:
        """Refuse a relationship that the schema does not have."""
        if self.relationship not in RELATIONSHIPS:
            raise ValueError(
                f"relationship: unknown {self.relationship!r} (have: {', '.join(RELATIONSHIPS)})"
            )


def every_eval_ever(
    evaluation: Evaluation, *, evaluator: Evaluator | None = None, now: float | None = None
) -> dict[str, Any]:
    """Return an evaluation as a record of Every Eval Ever, with one result per metric and category.

    ``now`` is the time of the record in seconds since 1970, by default the current time.

    >>> from rmcalib.report import evaluate
    >>> from rmcalib.scores import Scores
    >>> report = evaluate(Scores.from_arrays([[2.0, 0.0], [0.0, 2.0]]), model="org/rm", resamples=20)
    >>> record = every_eval_ever(report, now=0)
    >>> record["evaluation_id"], record["evaluation_results"][0]["metric_config"]["metric_id"]
    ('unnamed-benchmark/org/rm/0', 'accuracy')
    """
    evaluator = evaluator or Evaluator()
    made, manifest = str(int(time.time() if now is None else now)), evaluation.manifest
    finished = (manifest.get("timings") or {}).get("finished")
    return {
        "schema_version": SCHEMA,
        "evaluation_id": f"{evaluation.benchmark}/{evaluation.model}/{made}",
        **({"evaluation_timestamp": str(finished)} if finished else {}),
        "retrieved_timestamp": made,
        "source_metadata": {
            "source_name": "rmcalib",
            "source_type": "evaluation_run",
            "source_organization_name": evaluator.organization,
            "evaluator_relationship": evaluator.relationship,
        },
        "eval_library": {"name": "rmcalib", "version": __version__},
        "model_info": _model(evaluation),
        "evaluation_results": _results(evaluation),
    }


def _model(evaluation: Evaluation) -> dict[str, Any]:
    manifest, name = evaluation.manifest, evaluation.model
    on_hub = is_on_hub(name, manifest.get("model_revision"))
    details = {
        "deployment_type": "self_deployed" if manifest.get("dtype") else "unknown",
        "model_availability": "open_weights" if on_hub else "unknown",
    }
    for key in ("model_revision", "dtype", "max_length", "device"):
        if manifest.get(key) is not None:
            details[key] = str(manifest[key])
    engine = (manifest.get("versions") or {}).get("transformers")
    return {
        "name": name,
        "id": name,
        **({"developer": name.partition("/")[0]} if on_hub else {}),
        **({"inference_engine": {"name": "transformers", "version": str(engine)}} if engine else {}),
        "additional_details": details,
    }


def _results(evaluation: Evaluation) -> list[dict[str, Any]]:
    level, results = evaluation.settings.level, []
    for row in evaluation.metrics:
        if row["metric"] not in _RANGES or row["value"] is None:
            continue
        about = catalogue()[row["metric"]]
        low, high = _RANGES[about.name]
        where = "" if row["category"] == OVERALL else f"/{row['category']}"
        details: dict[str, Any] = {"score": float(row["value"]), "details": {"category": row["category"]}}
        details["uncertainty"] = {"num_samples": int(row["n"])}
        if row["low"] is not None:
            details["uncertainty"]["confidence_interval"] = {
                "lower": float(row["low"]),
                "upper": float(row["high"]),
                "confidence_level": level,
            }
        results.append(
            {
                "evaluation_result_id": f"{evaluation.benchmark}{where}/{about.name}",
                "evaluation_name": f"{evaluation.benchmark}{where}",
                "source_data": _data(evaluation),
                "metric_config": {
                    "evaluation_description": about.meaning,
                    "metric_id": about.name,
                    "metric_name": about.label or about.name,
                    "metric_unit": about.unit or "number",
                    # The gap is best at 0, but the schema has only two directions.
                    "lower_is_better": about.better != "high",
                    "score_type": "continuous",
                    "min_score": low,
                    "max_score": high,
                    **({"additional_details": {"best_score": "0"}} if about.better == "zero" else {}),
                },
                "score_details": details,
            }
        )
    return results


def _data(evaluation: Evaluation) -> dict[str, Any]:
    name, manifest = evaluation.benchmark, evaluation.manifest
    revision = manifest.get("benchmark_revision")
    details = {"additional_details": {"revision": str(revision)}} if revision else {}
    if is_on_hub(name, revision):
        return {
            "dataset_name": name.rpartition("/")[2],
            "source_type": "hf_dataset",
            "hf_repo": name,
            **details,
        }
    return {"dataset_name": name, "source_type": "other", **details}
