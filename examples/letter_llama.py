"""Train a small Llama from scratch on the letter task and watch its heads, in your own training loop.

    python examples/letter_llama.py --out out/letter-llama
    ropescope report out/letter-llama --out out/page.html        # also during training
    ropescope dynamics out/letter-llama --out out/dynamics

The task is that of `ropescope train letter`; the model is not our GPT-J but `LlamaForCausalLM`, with several heads per layer.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

import ropescope as rs
from ropescope.tasks import LetterTask, Samples, split


def main(arguments: list[str] | None = None) -> None:
    """Train, watch, and print the result."""
    options = parsed(arguments)
    torch.manual_seed(options.seed)
    task = LetterTask(hops=options.hops)
    data = split(task, (options.steps * options.batch, 600, 4000), options.seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=task.vocab_size,
            hidden_size=options.width,
            intermediate_size=4 * options.width,
            num_hidden_layers=options.layers,
            num_attention_heads=options.heads,
            max_position_embeddings=64,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=options.rate, weight_decay=1e-4)
    warm_up = max(1, options.steps // 9)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warm_up, (options.steps - step) / (options.steps - warm_up))
    )

    seen = data["validation"][: options.probe]
    tokens = range(task.length - 1)  # every key moves, except the query's own
    prompts = [rs.Prompt(ids, tuple((p, p + 1) for p in tokens), tuple(map(str, ids))) for ids in seen.tokens]
    name = f"Llama on the letter task, {options.layers} layers of {options.heads} heads"
    recipe = {key: value for key, value in vars(options).items() if key != "out"}
    with rs.HeadWatcher(model, prompts, out=options.out, every=options.every, name=name, about=recipe) as watcher:
        watcher.step(0, accuracy=lambda: accuracy(model, data["validation"]))
        for step in range(1, options.steps + 1):
            batch = data["train"][(step - 1) * options.batch : step * options.batch]
            loss = F.cross_entropy(answers(model, batch), torch.from_numpy(batch.answer))
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
            rate.step()
            watcher.step(step, loss=loss, accuracy=lambda: accuracy(model, data["validation"]))
            if step % 500 == 0:
                print(f"step {step}: loss {loss.item():.4f}", flush=True)

    model.eval()
    right = accuracy(model, data["test"])
    print(f"test accuracy by hops: {', '.join(f'{x:.4f}' for x in right)}; {watcher.results()}")


def answers(model: LlamaForCausalLM, samples: Samples) -> Tensor:
    """Logits of the token that follows the query."""
    logits: Tensor = model(torch.from_numpy(samples.tokens), use_cache=False, logits_to_keep=1).logits[:, -1]
    return logits


@torch.no_grad()
def accuracy(model: LlamaForCausalLM, samples: Samples) -> list[float]:
    """Share of right answers for each hop count."""
    right = answers(model, samples).argmax(-1).numpy() == samples.answer
    return [float(right[samples.hops == hops].mean()) for hops in range(1, samples.hops.max() + 1)]


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Command-line options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="out/letter-llama", help="run folder of the watcher")
    for name, default in {
        "layers": 4, "heads": 4, "width": 128, "hops": 2, "steps": 2000, "batch": 64, "every": 50, "probe": 128, "seed": 0,
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rate", type=float, default=5e-4)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
