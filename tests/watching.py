"""A small Llama, prompts and a loop to train it, shared by the tests of the watcher."""

import numpy as np
import torch
import transformers

import ropescope as rs
from ropescope.training.measuring import watched

VOCABULARY = 60


def llama(dtype=torch.float32, seed=0, **more):
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        num_key_value_heads=2,
        max_position_embeddings=64,
        attention_dropout=0.1,
        initializer_range=0.3,
        **sizes | more,
    )
    return transformers.LlamaForCausalLM(config).to(dtype)


def drawn(*lengths, seed=0):
    draws = np.random.default_rng(seed)
    return [draws.integers(0, VOCABULARY, size) for size in lengths]


PROMPTS = [
    *drawn(9, 9, 7),
    rs.Prompt(drawn(12)[0], ((1, 3), (3, 6), (7, 10)), ("x",) * 12),
]


def means(model, prompts=PROMPTS):
    found = rs.profile(model, prompts, planes=False, sensitivity=False)
    return {name: found[name].mean("input").values for name in watched()}


def loop(model, steps, on_step=lambda step, loss: None, rate=1e-2):
    """A loop of one's own, with dropout; data depend on the step alone."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate)
    model.train()
    torch.manual_seed(1)
    for step in range(1, steps + 1):
        ids = torch.from_numpy(np.stack(drawn(16, 16, seed=step)))
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        on_step(step, loss)  # gradients are there
        optimiser.step()
        optimiser.zero_grad()


def weights(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def events(folder):
    """All scalars of TensorBoard's files below a folder: name to {step: number}."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415

    found = {}
    for file in folder.rglob("events.out.tfevents.*"):
        read = EventAccumulator(str(file), size_guidance={"scalars": 0})
        read.Reload()
        for name in read.Tags()["scalars"]:
            found.setdefault(name, {}).update({event.step: event.value for event in read.Scalars(name)})
    return found
