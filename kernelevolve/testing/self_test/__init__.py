"""Show on the user's own machine what its verdicts and times are worth.

`self_test` runs bad candidates that must be caught, controls between them, kernels that are known to be slower and
faster, and measures kills, leftovers, memory and the cost of isolation. `kernelevolve doctor --self-test` is the same.
"""

from kernelevolve.testing.self_test.engine import PARTS, self_test
from kernelevolve.testing.self_test.record import Outcome, Row, SelfTest

__all__ = ["PARTS", "Outcome", "Row", "SelfTest", "self_test"]
