"""Models to train: our GPT-J, and the Llama of `transformers` called in the same way."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from ...models.gptj import GPTJ
from ...training.recipe import Recipe


class Llama(nn.Module):
    """The Llama of `transformers`, called as our GPT-J is: token ids to logits, or to those at the last position."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.inner = LlamaForCausalLM(config)

    def forward(
        self, ids: Int[Tensor, "B T"], last_only: bool = False, positions: None = None
    ) -> Float[Tensor, "B t vocabulary"]:
        """Logits at every position, or with `last_only` at the last one alone; it has no positions but 0, 1, 2 ..."""
        logits: Tensor = self.inner(ids, use_cache=False, logits_to_keep=1 if last_only else 0).logits
        return logits


def model_of(recipe: Recipe, family: str) -> GPTJ | Llama:
    """A model with random weights."""
    if family == "gptj":
        return recipe.make_model()
    return Llama(
        LlamaConfig(
            vocab_size=recipe.make_task().vocab_size,
            hidden_size=recipe.width,
            intermediate_size=recipe.mlp_width,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            max_position_embeddings=64,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
