"""Tasks that need positional or symbolic heads: following a path by counting positions (number) or matching letters (letter).
In the redundant task the same path can be followed either way.

Three smaller tasks are for single heads: find by position (index), by content (retrieval), and by content and latest position
(partial induction). For language models there are prompts: these tasks in English, facts to recall, your own texts.

>>> from ropescope.tasks import NumberTask
>>> NumberTask().sample(48_000, seed=0).tokens.shape
(48000, 17)
"""

from .canonical import CanonicalTask, IndexTask, PairTask, PartialInductionTask, RetrievalTask
from .letter import LetterTask
from .multihop import MultihopTask, Samples, Solution, split
from .number import NumberTask
from .prompts import Prompt, binding_prompts, check_fits, task_prompts
from .redundant import RedundantTask
from .registry import TASKS, task_class, task_names, trainable_class
from .texts import prose, text_prompts

__all__ = [
    "TASKS",
    "CanonicalTask",
    "IndexTask",
    "LetterTask",
    "MultihopTask",
    "NumberTask",
    "PairTask",
    "PartialInductionTask",
    "Prompt",
    "RedundantTask",
    "RetrievalTask",
    "Samples",
    "Solution",
    "binding_prompts",
    "check_fits",
    "prose",
    "split",
    "task_class",
    "task_names",
    "task_prompts",
    "text_prompts",
    "trainable_class",
]
