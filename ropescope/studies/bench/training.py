"""What drawing data, a training step and watching cost, as ratios within one run."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...models.gptj import GPTJ, GPTJConfig, save_gptj
from ...tasks import LetterTask, MultihopTask, NumberTask
from ...tasks.number import LETTERS
from ...training.probe import probe_of, probe_row
from ...training.trainer import Recipe, train_step
from .scores import in_turns


def bench_sampling(count: int, rounds: int, seed: int) -> dict[str, float]:
    """How many times as long one sequence takes in a plain Python loop, and the seconds for `count` vectorised ones."""
    results: dict[str, float] = {}
    loops: dict[str, tuple[MultihopTask, Callable[[random.Random], list[str]]]] = {
        "number": (NumberTask(), plain_number),
        "letter": (LetterTask(), plain_letter),
    }
    few = max(1, count // 200)
    for name, (task, plain) in loops.items():

        def drawn(task: MultihopTask = task) -> None:
            task.sample(count, seed)

        def looped(plain: Callable[[random.Random], list[str]] = plain) -> None:
            rng = random.Random(seed)
            for _ in range(few):
                plain(rng)

        seconds, plain_seconds = in_turns([drawn, looped], rounds)
        results[f"{name}_seconds"] = seconds
        results[f"{name}_loop_over_vectorised"] = plain_seconds / few / (seconds / count)
    return results


def plain_number(rng: random.Random) -> list[str]:
    """One sequence of the number task at its default size, one token after the other."""
    hops = rng.randint(1, 4)
    path = [16, *sorted(rng.sample(range(8, 16), hops - 1), reverse=True), rng.randrange(8)]
    tokens = [rng.choice(LETTERS[:120]) for _ in range(8)] + [str(rng.randint(1, p)) for p in range(8, 17)]
    for here, there in pairwise(path):
        tokens[here] = str(here - there)
    return tokens


def plain_letter(rng: random.Random) -> list[str]:
    """One sequence of the letter task at its default size, one token after the other."""
    hops = rng.randint(1, 4)
    path = [16, *sorted(rng.sample(range(8, 16), hops - 1), reverse=True), rng.randrange(8)]
    letters = rng.sample("abcdefgh", 8)
    on_path, free = letters[: hops + 1], letters[hops + 1 :]
    tokens = [rng.choice(free) + rng.choice("12345678") for _ in range(8)]
    tokens += [rng.choice(free) + rng.choice(free) for _ in range(9)]
    for step, here in enumerate(path[:-1]):
        tokens[here] = on_path[step] + on_path[step + 1]
    tokens[path[-1]] = on_path[-1] + rng.choice("12345678")
    return tokens


def bench_training(steps: int, seed: int) -> dict[str, float | None]:
    """A training step against the same step under the `Trainer` of `transformers`, and the share that watching takes.

    Preset `paper` on the number task, both in turns. Without `transformers` its ratio is None.
    """
    recipe = Recipe(task="number", seed=seed)
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(seed)
    task = recipe.make_task()
    data = task.sample(recipe.batch * steps, seed)
    model = GPTJ(GPTJConfig(task.vocab_size, dropout=recipe.dropout)).train()
    optimiser = recipe.optimiser(model)
    probe = probe_of(task.sample(recipe.samples[1], seed + 1), recipe.probe)
    ids, answers = torch.from_numpy(data.tokens).split(recipe.batch), torch.from_numpy(data.answer).split(recipe.batch)

    ours: list[float] = []
    for part, answer in zip(ids, answers, strict=True):
        start = time.perf_counter()
        train_step(recipe, recipe.warm_up, part, answer, model, optimiser)
        ours.append(time.perf_counter() - start)
    (watching,) = in_turns([lambda: probe_row(model, probe)], max(3, steps // 10))
    step = statistics.median(ours)
    theirs = None
    if find_spec("transformers") is not None and find_spec("accelerate") is not None:
        theirs = _trainer_step_seconds(recipe, model, list(zip(ids, answers, strict=True)))
    return {
        "step_seconds": step,
        "transformers_over_ours": None if theirs is None else theirs / step,
        "watching_share": watching / (recipe.watch_every * step),
    }


def _trainer_step_seconds(recipe: Recipe, model: GPTJ, batches: list[tuple[Tensor, Tensor]]) -> float:
    """Median seconds of a step of `GPTJForCausalLM` under `Trainer`, same weights, data and settings."""
    from transformers import GPTJForCausalLM, PrinterCallback, Trainer, TrainerCallback, TrainingArguments  # noqa: PLC0415
    from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

    disable_progress_bar()

    taken: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.started = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            taken.append(time.perf_counter() - self.started)

    class LastToken(Trainer):
        def compute_loss(self, model: Any, inputs: dict[str, Any], *_: Any, **__: Any) -> Tensor:
            return F.cross_entropy(model(input_ids=inputs["input_ids"]).logits[:, -1], inputs["answer"])

    rows = [{"input_ids": i, "answer": a} for ids, answers in batches for i, a in zip(ids, answers, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        save_gptj(model, Path(folder) / "model")
        theirs = GPTJForCausalLM.from_pretrained(Path(folder) / "model", use_safetensors=True, trust_remote_code=False)
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=recipe.batch,
            max_steps=len(batches),
            learning_rate=recipe.rate,
            weight_decay=recipe.weight_decay,
            max_grad_norm=0.0,
            lr_scheduler_type="constant",
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            remove_unused_columns=False,
            disable_tqdm=True,
            logging_strategy="no",
        )
        trainer = LastToken(model=theirs, args=arguments, train_dataset=rows, callbacks=[Clock()])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return statistics.median(taken)
