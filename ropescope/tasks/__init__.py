"""Tasks that tell places from things: following a path by counting positions (number) or by matching letters (letter).

>>> from ropescope.tasks import LetterTask, NumberTask, split
>>> NumberTask().sample(480_000, seed=0).tokens.shape
(480000, 17)
"""

from .letter import LetterTask
from .multihop import MultihopTask, Samples, Solution, split
from .number import NumberTask

__all__ = ["LetterTask", "MultihopTask", "NumberTask", "Samples", "Solution", "split"]
