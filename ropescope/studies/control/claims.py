"""Claims on frequencies as a knob (paper A, section 5)."""

from __future__ import annotations

from collections.abc import Mapping

from ...runs import Run
from ..claims import Found, NotRunError, Runs, claims_in, every, graded, span

claim = claims_in("Canonical tasks and frequency control")


def _controlled(runs: Runs, task: str | None = None) -> Run:
    """The first run on the model of a task; without a task, on a language model."""
    for run in runs.of("control"):
        if (task in run.config["model"]) if task else ("perplexity" in run.results["changes"]["nothing"]["measures"]):
            return run
    raise NotRunError(f"no run of `ropescope control` on {f'the {task} model' if task else 'a language model'}")


def _accuracy(run: Run, change: str) -> float:
    value: float = run.results["changes"][change]["measures"]["accuracy"]
    return value


def _random(run: Run, change: str) -> Mapping[str, float]:
    found: Mapping[str, float] = run.results["changes"][change]["random"]["accuracy"]
    return found


@claim(
    "A-5-knob-fast",
    "A",
    "section 5",
    "performance follows",
    "Number model without its fast third: below any random third by 0.2, while the letter model keeps 0.95; partly if "
    "only the first.",
)
def knob_fast(runs: Runs) -> Found:
    """Frequency as a knob: without fast planes a trained model loses the positional task."""
    number, letter = _controlled(runs, "number"), _controlled(runs, "letter")
    change = "fast third dropped"
    ours, others, kept = _accuracy(number, change), _random(number, change), _accuracy(letter, change)
    falls = ours <= others["least"] - 0.2
    text = f"number {ours:.2f} (random thirds {others['least']:.2f} to {others['most']:.2f}), letter {kept:.2f}"
    return Found(text, graded(falls and kept >= 0.95, falls), number, "effects")


@claim(
    "A-5-knob-slow",
    "A",
    "section 5",
    "performance follows",
    "Letter model without its slow third: below random thirds by 0.2. Partly if a slow quarter alone does better than "
    "a fast one: symbolic heads use most planes.",
)
def knob_slow(runs: Runs) -> Found:
    """Without slow planes a trained model loses the symbolic task."""
    run = _controlled(runs, "letter")
    ours, others = _accuracy(run, "slow third dropped"), _random(run, "slow third dropped")
    slow, fast = _accuracy(run, "only slowest 25% kept"), _accuracy(run, "only fastest 25% kept")
    text = f"without the slow third {ours:.2f}; slowest quarter alone {slow:.2f}, fastest quarter alone {fast:.2f}"
    return Found(text, graded(ours <= others["least"] - 0.2, slow >= fast + 0.2), run, "effects")


@claim(
    "A-5-p-rope",
    "A",
    "section 5; Barbero et al. 2024",
    "little or nothing is lost",
    "The slowest half stopped in the number, the letter and a language model: 0.99 of accuracy, perplexity up by at most "
    "a tenth; all three, "
    "partly if some.",
)
def p_rope(runs: Runs) -> Found:
    """p-RoPE: the slowest planes need not turn."""
    change = "slowest 50% stopped"
    tasks = {task: _accuracy(_controlled(runs, task), change) for task in ("number", "letter")}
    run = _controlled(runs)
    before, after = (run.results["changes"][name]["measures"]["perplexity"] for name in ("nothing", change))
    text = "".join(f"{task} {value:.3f}, " for task, value in tasks.items())
    text += f"{run.config['model']}: perplexity {before:.1f} to {after:.1f}"
    return Found(text, every([*(value >= 0.99 for value in tasks.values()), after <= 1.1 * before]), run, "effects")


@claim(
    "A-5-knob-real",
    "A",
    "section 5",
    "performance follows",
    "Thirds stopped: binding (log probability, 8 pairs) falls below all random thirds with fast planes stopped, and by "
    "less than 0.1 with "
    "slow ones stopped. Thirds dropped: binding falls below random thirds without slow planes only. Both, partly if one.",
)
def knob_real(runs: Runs) -> Found:
    """The knob works on real models too: fast planes carry places, slow ones things."""
    run = _controlled(runs)
    changes, measure = run.results["changes"], "8 pairs: log probability"

    def binds(change: str) -> float:
        value: float = changes[change]["measures"][measure]
        return value

    def below(change: str) -> bool:
        return bool(binds(change) < changes[change]["random"][measure]["least"])

    stopped = below("fast third stopped") and binds("slow third stopped") >= binds("nothing") - 0.1
    dropped = below("slow third dropped") and not below("fast third dropped")
    names = ("nothing", "fast third stopped", "slow third stopped", "fast third dropped", "slow third dropped")
    text = f"{run.config['model']}: " + ", ".join(f"{name} {binds(name):.2f}" for name in names)
    return Found(text, every([stopped, dropped]), run, "effects")


@claim(
    "A-5-heads-follow",
    "A",
    "section 5",
    "behaviour follows frequency",
    "Heads of the number model that are positional (0.9 and more): all symbolic by 0.9 without the fast third, partly if "
    "some are.",
)
def heads_follow(runs: Runs) -> Found:
    """Heads follow their planes: the same weights turn symbolic without fast planes."""
    run = _controlled(runs, "number")
    before, after = (run.results["changes"][name] for name in ("nothing", "fast third dropped"))
    heads = [n for n, value in enumerate(before["positional"]) if value >= 0.9]
    if not heads:
        raise NotRunError("the number model has no positional head")
    now = [after["symbolic"][n] for n in heads]
    return Found(f"{len(heads)} heads, symbolic {span(now)} after", every(value >= 0.9 for value in now), run, "scores")
