"""Calibration of RLHF reward models, and of the distributions over rankings underneath them.

>>> import rmcalib
>>> bench = rmcalib.load_benchmark("demo", limit=40)
>>> scores = rmcalib.score(model="demo", benchmark=bench)
>>> report = rmcalib.evaluate(scores, benchmark=bench, resamples=100)
>>> list(report.table.columns)
['category', 'metric', 'value', 'low', 'high', 'n', 'note']

``report.to_html("report.html")`` writes the page. The functions that you will use most:

- `load_scores`: open a file, a folder, a DataFrame or a list of rewards; `load_benchmark`: open prompts.
- `score`: run a reward model on a benchmark.
- `evaluate`: what a model says, how often it is right, and the gap, with intervals.
- `compare`, `leaderboard`: two models, or many.
- `label`: draw prompts for people to label.
- `calibrate`, `apply`, `decide`: repair probabilities, use them, and accept sure choices.
- `best_of_n`: how many samples are worth it.
- `watch`: follow the rewards of a training run; `Reward`: give rewards to one.

Results have ``.table`` (a DataFrame), ``.plot()``, ``.to_html(path)``, and show themselves in a notebook.
:mod:`rmcalib.ranking` and :mod:`rmcalib.calibration` hold distributions over rankings and calibration notions.
"""

from typing import TYPE_CHECKING

from rmcalib._util.lazy import lazy

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark as Benchmark
    from rmcalib.benchmarks import load_benchmark as load_benchmark
    from rmcalib.integrations import Watcher as Watcher
    from rmcalib.integrations import watch as watch
    from rmcalib.judges import load_judge as load_judge
    from rmcalib.leaderboards import leaderboard as leaderboard
    from rmcalib.live import Reward as Reward
    from rmcalib.metrics import best_of_n as best_of_n
    from rmcalib.metrics import compare as compare
    from rmcalib.metrics import metric as metric
    from rmcalib.metrics import prompts_needed as prompts_needed
    from rmcalib.metrics.comparison import Comparison as Comparison
    from rmcalib.repair import Calibrator as Calibrator
    from rmcalib.repair import apply as apply
    from rmcalib.repair import calibrate as calibrate
    from rmcalib.repair import combine as combine
    from rmcalib.repair import decide as decide
    from rmcalib.report import Evaluation as Evaluation
    from rmcalib.report import evaluate as evaluate
    from rmcalib.runs import score as score
    from rmcalib.scores import Scores as Scores
    from rmcalib.scores import label as label
    from rmcalib.scores import load_board as load_board
    from rmcalib.scores import load_scores as load_scores

__version__ = "0.1.0"

_HOMES = {
    "Benchmark": "rmcalib.benchmarks",
    "Calibrator": "rmcalib.repair",
    "Comparison": "rmcalib.metrics.comparison",
    "Evaluation": "rmcalib.report",
    "Reward": "rmcalib.live",
    "Scores": "rmcalib.scores",
    "Watcher": "rmcalib.integrations",
    "apply": "rmcalib.repair",
    "best_of_n": "rmcalib.metrics",
    "calibrate": "rmcalib.repair",
    "combine": "rmcalib.repair",
    "compare": "rmcalib.metrics",
    "decide": "rmcalib.repair",
    "evaluate": "rmcalib.report",
    "label": "rmcalib.scores",
    "leaderboard": "rmcalib.leaderboards",
    "load_benchmark": "rmcalib.benchmarks",
    "load_board": "rmcalib.scores",
    "load_judge": "rmcalib.judges",
    "load_scores": "rmcalib.scores",
    "metric": "rmcalib.metrics",
    "prompts_needed": "rmcalib.metrics",
    "score": "rmcalib.runs",
    "watch": "rmcalib.integrations",
}

__all__ = ["__version__", *sorted(_HOMES)]


__getattr__ = lazy(__name__, _HOMES)


def __dir__() -> list[str]:
    """List the public names."""
    return list(__all__)
