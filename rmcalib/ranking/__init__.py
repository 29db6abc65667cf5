"""Distributions over rankings with exact sub-k and top-k marginals, and the events they are about."""

from rmcalib.ranking import events, synthetic
from rmcalib.ranking._conditional import HasPartialRankings, conditional_probabilities
from rmcalib.ranking._distribution import (
    HasTemperature,
    PairMarginals,
    RankingDistribution,
    TooCostlyError,
)
from rmcalib.ranking._encodings import (
    all_rankings,
    arrangements,
    as_orders,
    orders_from_ranks,
    ranks_from_orders,
)
from rmcalib.ranking._explicit import ExplicitRankings, Mixture, enumerate_rankings, index_of_orders
from rmcalib.ranking._independent import IndependentRewards
from rmcalib.ranking._mallows import Mallows, MarginalEstimate
from rmcalib.ranking._pairwise import PairwiseProbabilities
from rmcalib.ranking._partial import PartialRankings
from rmcalib.ranking._plackett_luce import PlackettLuce
from rmcalib.ranking._preflib import Profile, read_preflib
from rmcalib.ranking._sparse import SparseRankings, log_integer

__all__ = [
    "ExplicitRankings",
    "HasPartialRankings",
    "HasTemperature",
    "IndependentRewards",
    "Mallows",
    "MarginalEstimate",
    "Mixture",
    "PairMarginals",
    "PairwiseProbabilities",
    "PartialRankings",
    "PlackettLuce",
    "Profile",
    "RankingDistribution",
    "SparseRankings",
    "TooCostlyError",
    "all_rankings",
    "arrangements",
    "as_orders",
    "conditional_probabilities",
    "enumerate_rankings",
    "events",
    "index_of_orders",
    "log_integer",
    "orders_from_ranks",
    "ranks_from_orders",
    "read_preflib",
    "synthetic",
]
