"""The steps of a reproduction: studies and their settings, by preset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...tasks import TASKS
from . import PRESETS

MODEL = "smollm2-135m"
OTHERS = {
    "stories15M": 120,
    "minimind2-small": 120,
    "gemma3-270m": 700,
    "qwen2.5-coder-0.5b": 1500,
    "tinyllama-1.1b": 3000,
    "qwen2.5-coder-1.5b": 3500,
}
"""Language models that are profiled beside the first with preset paper, and the seconds that takes about."""
CHAT = "chat"
"""What steps call the chat model."""


@dataclass(frozen=True)
class Of:
    """A setting that is the run folder of a step, or the place of a language model, with this name."""

    name: str


@dataclass(frozen=True)
class Step:
    """A study with settings, and the run folder it fills.

    seconds  it takes about so long on one core
    """

    name: str
    does: str
    study: str
    seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    preset: str | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """Steps and models it is made from."""
        values = [each for value in self.settings.values() for each in (value if isinstance(value, tuple) else (value,))]
        return tuple(value.name for value in values if isinstance(value, Of))

    def asked(self) -> dict[str, Any]:
        """The study and its settings as JSON holds them."""
        return {"study": self.study, "preset": self.preset, "settings": {name: _plain(v) for name, v in self.settings.items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return f"@{value.name}" if isinstance(value, Of) else value


def steps(preset: str, model: str = MODEL, chat: bool = False) -> tuple[Step, ...]:
    """The steps for a preset and the name of a language model; a chat model is asked, too, if that is wanted.

    Preset quick trains small models for the dynamics, and looks into the bundled ones of full size on few inputs. Preset paper
    has the settings of the recorded results; the bundled models are those of its number-0 and letter-1, in half precision.
    """
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {preset!r}")
    return (*_quick(Of(model), chat),) if preset == "quick" else (*_paper(Of(model), chat),)


WHAT = {
    "theory": "built heads, bounds, exact gaps",
    "dynamics": "when heads turn pure and hops are learned",
    "evaluate": "test accuracy of the bundled model",
    "mechanisms": "what heads do along paths",
    "generalise": "accuracy on longer inputs",
    "canonical": "one-head models at every angle",
    "profile": "every head of a language model",
    "control": "planes and heads changed",
    "bench": "what scores cost, as ratios",
    "llm": "both tasks as questions to a chat model",
}


def _trained(seeds: int, preset: str, seconds: float) -> list[Step]:
    """A training run for each task and seed, and the dynamics of all of them."""
    runs = [
        Step(
            f"{task}-{seed}",
            f"a GPT-J learns the {task} task",
            "train",
            seconds,
            {"task": task, "seed": seed, "resume": True, "preset": preset},
        )
        for seed in range(seeds)
        for task in TASKS
    ]
    folders = tuple(Of(run.name) for run in runs)
    return [*runs, Step("dynamics", WHAT["dynamics"], "dynamics", 10 * seeds, {"sources": folders})]


def _each_task(study: str, seconds: float, field_name: str = "task", **settings: Any) -> list[Step]:
    return [Step(f"{study}-{task}", WHAT[study], study, seconds, {field_name: task, **settings}) for task in TASKS]


def _quick(model: Of, chat: bool) -> list[Step]:
    lengths = (17, 33, 65, 129, 257, 513, 850, 1700)
    found = [
        Step("theory", WHAT["theory"], "theory", 30, {"inputs": 20_000, "draws": 1_000}),
        *_trained(1, "quick", 150),
        *_each_task("evaluate", 80),
        Step("mechanisms", WHAT["mechanisms"], "mechanisms", 120, {"inputs": 2_000, "changed": 200}),
        *_each_task("generalise", 85, lengths=lengths, samples=128, seeds=2),
        Step("canonical", WHAT["canonical"], "canonical", 90, preset="quick"),
        Step(f"profile-{model.name}", WHAT["profile"], "profile", 50, {"model": model, "count": 8, "pairs": 12}),
        *_each_task("control", 110, "model", inputs=400, draws=3),
        Step(
            f"control-{model.name}",
            "the same in a language model",
            "control",
            250,
            {"model": model, "count": 4, "pairs": (8,), "draws": 1},
        ),
        Step("bench", WHAT["bench"], "bench", 40, {"what": "scores", "tokens": (17, 32, 64), "rerun_up_to": 64, "rounds": 3}),
        Step("bench-profile", "the same in a language model", "bench", 30, _bench_profile(model, pairs=(12,), rounds=1)),
    ]
    asked = {"model": Of(CHAT), "yes": True, "lengths": (12, 16, 32, 100), "runs": 2, "samples": 10}
    return [*found, *([Step("llm", WHAT["llm"], "llm", 300, asked)] if chat else [])]


def _bench_profile(model: Of, **settings: Any) -> dict[str, Any]:
    return {"what": "profile", "model": model, **settings}


def _paper(model: Of, chat: bool) -> list[Step]:
    found = [
        Step("theory", WHAT["theory"], "theory", 90),
        *_trained(3, "paper", 3000),
        *_each_task("evaluate", 80),
        Step("mechanisms", WHAT["mechanisms"], "mechanisms", 1000),
        *_each_task("generalise", 3000),
        Step("canonical", WHAT["canonical"], "canonical", 900),
        Step(f"profile-{model.name}", WHAT["profile"], "profile", 700, {"model": model}),
        Step(
            f"profile-{model.name}-unequal",
            "the same, sentences of unequal length",
            "profile",
            700,
            {"model": model, "lengths": "unequal"},
        ),
        *(
            Step(f"profile-{other}", WHAT["profile"], "profile", seconds, {"model": Of(other)})
            for other, seconds in OTHERS.items()
            if other != model.name
        ),
        *_each_task("control", 300, "model", inputs=1_000),
        Step(
            f"control-{model.name}", "the same in a language model", "control", 6000, {"model": model, "count": 24, "draws": 3}
        ),
        Step("bench", WHAT["bench"], "bench", 900),
        Step("bench-profile", "the same in a language model", "bench", 900, _bench_profile(model, rounds=3)),
    ]
    return [*found, *([Step("llm", WHAT["llm"], "llm", 3600, {"model": Of(CHAT), "yes": True})] if chat else [])]
