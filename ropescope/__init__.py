"""ropescope: what each attention head of a RoPE transformer does, exactly.

    >>> import torch, ropescope as rs
    >>> M = rs.counterfactual_logits(torch.randn(64), torch.randn(17, 64), rs.Rope(head_dim=64))
    >>> rs.swap_scores(M)  # the result depends on what was drawn
    SwapScores(positional=tensor(...), symbolic=tensor(...))

Axis letters, in every signature of the project:

    B  input (batch)      T  token            d  dimension of a head
    L  layer              C  content          r  rank of the factors of M
    H  head (query)       P  position         m  keys or blocks that can move
    G  head (key, value)  F  RoPE plane       N  any batch, flattened
    V  vocabulary
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api import open_run as open_run
    from .api import page as page
    from .api import playground as playground
    from .api import preview as preview
    from .api import run as run
    from .api import save_run as save_run
    from .api import scoreboard as scoreboard
    from .charts import plane_chart as plane_chart
    from .charts import share_chart as share_chart
    from .heads import Heads as Heads
    from .logits import LogitFactors as LogitFactors
    from .logits import counterfactual_logits as counterfactual_logits
    from .logits import layer_factors as layer_factors
    from .logits import layer_logits as layer_logits
    from .logits import logit_factors as logit_factors
    from .measures.blocks import block_logits as block_logits
    from .measures.bounded import BoundedScores as BoundedScores
    from .measures.bounded import bounded_swap_scores as bounded_swap_scores
    from .measures.gap import gap as gap
    from .measures.gap import margin as margin
    from .measures.intervals import MeanInterval as MeanInterval
    from .measures.intervals import mean_interval as mean_interval
    from .measures.purity import PuritySteps as PuritySteps
    from .measures.purity import purity as purity
    from .measures.purity import purity_steps as purity_steps
    from .measures.queries import QueryScores as QueryScores
    from .measures.queries import query_scores as query_scores
    from .measures.scores import SwapScores as SwapScores
    from .measures.scores import permutation_scores as permutation_scores
    from .measures.scores import swap_scores as swap_scores
    from .measures.shares import Exclusion as Exclusion
    from .measures.shares import VarianceShares as VarianceShares
    from .measures.shares import entropy as entropy
    from .measures.shares import exclusion as exclusion
    from .measures.shares import variance_shares as variance_shares
    from .models.adapter import Adapter as Adapter
    from .models.adapter import RefusedError as RefusedError
    from .models.adapter.cache import WindowedCache as WindowedCache
    from .models.adapter.cache import cache_bytes as cache_bytes
    from .models.adapter.edits import LayerChange as LayerChange
    from .models.adapter.interventions import drop_planes as drop_planes
    from .models.adapter.interventions import intervene as intervene
    from .models.adapter.interventions import keep_planes as keep_planes
    from .models.adapter.interventions import p_rope as p_rope
    from .models.adapter.interventions import remove_heads as remove_heads
    from .models.adapter.interventions import scale_planes as scale_planes
    from .models.adapter.interventions import sharpen_heads as sharpen_heads
    from .models.adapter.interventions import stop_planes as stop_planes
    from .models.adapter.interventions import window_heads as window_heads
    from .models.built import OneHead as OneHead
    from .models.built import h_mix as h_mix
    from .models.built import h_pos as h_pos
    from .models.built import h_single as h_single
    from .models.built import h_sym as h_sym
    from .models.built import t_index as t_index
    from .models.built import t_retrieval as t_retrieval
    from .models.bundled import bundled as bundled
    from .models.gptj import GPTJ as GPTJ
    from .models.gptj import GPTJConfig as GPTJConfig
    from .models.gptj import load_gptj as load_gptj
    from .models.gptj import save_gptj as save_gptj
    from .models.load import load_model as load_model
    from .models.rope_check import LayerCheck as LayerCheck
    from .models.rope_check import check_rope as check_rope
    from .rope import Rope as Rope
    from .rotations.fit import Rotation as Rotation
    from .rotations.fit import fit_rotation as fit_rotation
    from .studies.profile.answers import plot as plot
    from .studies.profile.answers import top_heads as top_heads
    from .studies.profile.run import profile as profile
    from .studies.result import Result as Result
    from .tasks.letter import LetterTask as LetterTask
    from .tasks.number import NumberTask as NumberTask
    from .tasks.prompts import Prompt as Prompt
    from .tasks.prompts import binding_prompts as binding_prompts
    from .tasks.prompts import id_prompts as id_prompts
    from .tasks.prompts import task_prompts as task_prompts
    from .tasks.texts import prose as prose
    from .tasks.texts import text_prompts as text_prompts
    from .training.head_watcher import HeadWatcher as HeadWatcher
    from .weights import attention_weights as attention_weights

    Door, controlled, heads_out = Adapter, intervene, remove_heads

# Public name -> room. Nothing heavy is imported before a name is used.
_ROOMS = {
    "Rope": "rope",
    "Heads": "heads",
    "LogitFactors": "logits",
    "attention_weights": "weights",
    "counterfactual_logits": "logits",
    "layer_factors": "logits",
    "layer_logits": "logits",
    "logit_factors": "logits",
    "SwapScores": "measures.scores",
    "permutation_scores": "measures.scores",
    "swap_scores": "measures.scores",
    "block_logits": "measures.blocks",
    "BoundedScores": "measures.bounded",
    "bounded_swap_scores": "measures.bounded",
    "QueryScores": "measures.queries",
    "query_scores": "measures.queries",
    "VarianceShares": "measures.shares",
    "variance_shares": "measures.shares",
    "Exclusion": "measures.shares",
    "exclusion": "measures.shares",
    "entropy": "measures.shares",
    "gap": "measures.gap",
    "margin": "measures.gap",
    "PuritySteps": "measures.purity",
    "purity": "measures.purity",
    "purity_steps": "measures.purity",
    "MeanInterval": "measures.intervals",
    "mean_interval": "measures.intervals",
    "Adapter": "models.adapter.adapter",
    "RefusedError": "models.adapter.calls",
    "GPTJ": "models.gptj",
    "GPTJConfig": "models.gptj",
    "load_gptj": "models.gptj",
    "save_gptj": "models.gptj",
    "bundled": "models.bundled",
    "LayerChange": "models.adapter.edits",
    "drop_planes": "models.adapter.interventions",
    "intervene": "models.adapter.interventions",
    "keep_planes": "models.adapter.interventions",
    "p_rope": "models.adapter.interventions",
    "remove_heads": "models.adapter.interventions",
    "scale_planes": "models.adapter.interventions",
    "sharpen_heads": "models.adapter.interventions",
    "stop_planes": "models.adapter.interventions",
    "window_heads": "models.adapter.interventions",
    "WindowedCache": "models.adapter.cache",
    "cache_bytes": "models.adapter.cache",
    "OneHead": "models.built",
    "h_mix": "models.built",
    "h_pos": "models.built",
    "h_single": "models.built",
    "h_sym": "models.built",
    "t_index": "models.built",
    "t_retrieval": "models.built",
    "profile": "studies.profile.run",
    "top_heads": "studies.profile.answers",
    "plot": "studies.profile.answers",
    "load_model": "models.load",
    "LayerCheck": "models.rope_check",
    "check_rope": "models.rope_check",
    "Rotation": "rotations.fit",
    "fit_rotation": "rotations.fit",
    "Prompt": "tasks.prompts",
    "binding_prompts": "tasks.prompts",
    "id_prompts": "tasks.prompts",
    "task_prompts": "tasks.prompts",
    "prose": "tasks.texts",
    "text_prompts": "tasks.texts",
    "HeadWatcher": "training.head_watcher",
    "NumberTask": "tasks.number",
    "LetterTask": "tasks.letter",
    "plane_chart": "charts",
    "share_chart": "charts",
    "Result": "studies.result",
    "open_run": "api",
    "page": "api",
    "playground": "api",
    "preview": "api",
    "run": "api",
    "save_run": "api",
    "scoreboard": "api",
}
# Names of version 0.1, for one more release.
_OLD_NAMES = {"Door": "Adapter", "controlled": "intervene", "heads_out": "remove_heads"}

__all__ = ["__version__", *_ROOMS]  # noqa: PLE0604
__version__ = version("ropescope")


def __getattr__(name: str) -> object:
    name = _OLD_NAMES.get(name, name)
    if name not in _ROOMS:
        raise AttributeError(f"module 'ropescope' has no attribute {name!r}")
    return getattr(import_module(f".{_ROOMS[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
