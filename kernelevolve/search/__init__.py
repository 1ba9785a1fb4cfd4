"""Where to go next: the tree of candidates, their fitness, the policies that choose among them, and when to stop.

Everything here is a pure function of the tree and of a seeded generator; nothing is written or run.
"""

from kernelevolve.search import policies
from kernelevolve.search.fitness import fitness
from kernelevolve.search.memory import history
from kernelevolve.search.stop import BoundReached, Spent, Stall, Steps, StopRule, Target, WallTime
from kernelevolve.search.tree import Tree

__all__ = [
    "BoundReached",
    "Spent",
    "Stall",
    "Steps",
    "StopRule",
    "Target",
    "Tree",
    "WallTime",
    "fitness",
    "history",
    "policies",
]
