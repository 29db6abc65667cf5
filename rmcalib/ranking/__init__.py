"""Distributions over rankings, their exact sub-k and top-k marginals, and the events these speak of."""

from rmcalib.ranking import events
from rmcalib.ranking.distribution import RankingDistribution, TooCostlyError
from rmcalib.ranking.encodings import all_rankings, as_orders, orders_from_ranks, ranks_from_orders
from rmcalib.ranking.explicit import ExplicitRankings, Mixture, enumerate_rankings
from rmcalib.ranking.mallows import Mallows, MarginalEstimate
from rmcalib.ranking.pairwise import PairwiseProbabilities
from rmcalib.ranking.plackett_luce import PlackettLuce
from rmcalib.ranking.sparse import SparseRankings

__all__ = [
    "ExplicitRankings",
    "Mallows",
    "MarginalEstimate",
    "Mixture",
    "PairwiseProbabilities",
    "PlackettLuce",
    "RankingDistribution",
    "SparseRankings",
    "TooCostlyError",
    "all_rankings",
    "as_orders",
    "enumerate_rankings",
    "events",
    "orders_from_ranks",
    "ranks_from_orders",
]
