"""Is it right, how fast is it: judge, rule sets, baselines, timing sessions, limits."""

from kernelevolve.evaluation.baseline import Baseline
from kernelevolve.evaluation.evaluator import Evaluator

__all__ = ["Baseline", "Evaluator"]
