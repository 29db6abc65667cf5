"""Distributions over rankings with exact sub-k and top-k marginals, and the events they describe.

```python
from rmcalib.ranking import PlackettLuce

rewards = PlackettLuce([[2.1, 0.3, -1.0]])  # one prompt with three responses
rewards.top([[0]])  # the probability that response 0 is the best
rewards.sub([[0, 1]])  # the probability that response 0 beats response 1
```

`__all__` lists the names by subject, in the order of the documentation.
"""

from rmcalib.ranking import events, synthetic
from rmcalib.ranking._distribution import PairMarginals, PairwiseProbabilities, RankingDistribution
from rmcalib.ranking._listed import ExplicitRankings, Mixture, SparseRankings
from rmcalib.ranking._mallows import Mallows
from rmcalib.ranking._partial import PartialRankings, conditional_probabilities, read_preflib
from rmcalib.ranking._plackett_luce import PlackettLuce
from rmcalib.ranking.events import all_rankings, orders_from_ranks, ranks_from_orders

__all__ = [  # noqa: RUF022 (by subject)
    "PlackettLuce",
    "Mallows",
    "SparseRankings",
    "ExplicitRankings",
    "Mixture",
    "PairwiseProbabilities",
    "PairMarginals",
    "RankingDistribution",
    "orders_from_ranks",
    "ranks_from_orders",
    "all_rankings",
    "PartialRankings",
    "conditional_probabilities",
    "read_preflib",
    "events",
    "synthetic",
]
