"""Seeds: what a person said about the objects of each file."""

from labeler.seeds.checks import canonical, check_inside, check_still
from labeler.seeds.matching import Match, match
from labeler.seeds.native import SeedFile, load

__all__ = ["Match", "SeedFile", "canonical", "check_inside", "check_still", "load", "match"]
