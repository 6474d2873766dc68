"""Fine-tune SmolLM2 for a few steps with `transformers.Trainer` and watch its 270 heads.

    python examples/watch_smollm2.py --model weights/smollm2-135m --out out/watch-smollm2
    ropescope report out/watch-smollm2 --out out/page.html       # also during training
    tensorboard --logdir out/watch-smollm2-trainer

Watching needs two things: prompts, and the watcher that is attached to the trainer.
"""

from __future__ import annotations

import argparse

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

import ropescope as rs
from ropescope.tasks.passage import PASSAGE


def main(arguments: list[str] | None = None) -> None:
    """Fine-tune, watch, and print the result."""
    options = parsed(arguments)
    tokenizer = AutoTokenizer.from_pretrained(options.model, trust_remote_code=False)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32, trust_remote_code=False)
    ids = torch.tensor(tokenizer(PASSAGE)["input_ids"])
    pieces = ids.unfold(0, options.tokens, options.tokens // 4)
    settings = TrainingArguments(
        f"{options.out}-trainer",
        max_steps=options.steps,
        per_device_train_batch_size=options.batch,
        learning_rate=options.rate,
        logging_steps=options.every,
        save_strategy="no",
        report_to="tensorboard",
        dataloader_pin_memory=torch.cuda.is_available(),
        seed=options.seed,
    )
    trainer = Trainer(model, settings, train_dataset=[{"input_ids": piece, "labels": piece} for piece in pieces])

    prompts = rs.binding_prompts(tokenizer, options.prompts, pairs=12, seed=options.seed)
    recipe = {key: value for key, value in vars(options).items() if key not in ("out", "model")}
    name = "SmolLM2-135M on a short text"
    watcher = rs.HeadWatcher(model, prompts, out=options.out, every=options.every, name=name, about=recipe)
    watcher.attach(trainer)

    trainer.train()
    print(watcher.results())


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Command-line options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="weights/smollm2-135m", help="folder or hub id of a causal language model")
    parser.add_argument("--out", default="out/watch-smollm2", help="run folder of the watcher")
    for name, default in {"steps": 40, "batch": 2, "tokens": 128, "prompts": 8, "every": 4, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rate", type=float, default=1e-4)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
