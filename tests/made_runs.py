"""Small runs of the types that `results` has no example of, made by their own studies, and a profile with all its files."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from profiles import geometry_rows, make_profile, path_rows, trace_rows, write_profile

from ropescope.runs import read_run, write_summary
from ropescope.studies import runner, studies
from ropescope.studies.reproduce.steps import steps
from ropescope.studies.training import run as training

DETAILS = {"traces": trace_rows(), "path": path_rows(8), "geometry": geometry_rows(20)}


def make_missing(at: Path, recorded: set[str]) -> list[Path]:
    """Run folders in `at`: a profile with scores and details, and one of each type that is not recorded."""
    shutil.rmtree(at, ignore_errors=True)
    folders = [_profile(at / "profile-made", 0)]
    for command in sorted(set(studies()) - recorded):
        MAKERS[command](at / command)
        folders += [path for path in _runs(at / command) if read_run(path).command == command]
    return folders


def _run(command: str, out: Path, **settings) -> None:
    """Run a study without pictures and page, as recorded runs have none."""
    study = studies()[command]
    with patch.object(runner, "write_chart", lambda *_: []):
        runner.run_study(study, runner.make_settings(study, settings), out)


def _runs(folder: Path) -> Iterator[Path]:
    return (path.parent for path in sorted(folder.rglob("summary.json")))


def _profile(folder: Path, seed: int) -> Path:
    model, prompts = {"source": "made", "weights": {"model.safetensors": str(seed)}}, {"kind": "binding", "lengths": "equal"}
    scores = make_profile(inputs=8, layers=3, heads=2, planes=8, seed=seed)
    return write_profile(
        folder, scores, DETAILS, config={"model": model, "prompts": prompts, "seed": 0}, results={"model": "made"}
    ).folder


def _compare(folder: Path) -> None:
    a, b = (_profile(folder / name, seed) for seed, name in enumerate("ab"))
    _run("compare", folder / "compared", a=str(a), b=str(b))


def _demo(folder: Path) -> None:
    _run("demo", folder, inputs=8)


def _evaluate(folder: Path) -> None:
    usual = training.recipe
    with patch.object(training, "recipe", lambda task: replace(usual(task), samples=(600, 256, 60))):
        _run("evaluate", folder, task="number")


def _reproduce(folder: Path) -> None:
    """The table of steps, all of them left out."""
    left_out = tuple(step.name for step in steps("quick", "smollm2-135m", chat=False))
    with patch.dict(os.environ, ROPESCOPE_WEIGHTS=str(folder)):  # there is no language model
        _run("reproduce", folder, skip=left_out, jobs=1)


def _sweep(folder: Path) -> None:
    import torch  # noqa: PLC0415
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    for step in (100, 200, 300):
        torch.manual_seed(step // 200)  # the last two are the same
        LlamaForCausalLM(LlamaConfig(**sizes)).save_pretrained(folder / "training" / f"checkpoint-{step}")
    prompts = folder / "ids.json"
    prompts.write_text(json.dumps([[(7 * n + 3 * k) % 40 for k in range(9)] for n in range(3)]))
    _run("dynamics", folder / "swept", sources=(str(folder / "training"),), prompts=str(prompts))
    shutil.rmtree(folder / "training")


def _hostile(folder: Path) -> None:
    """A record like that of `hostile.py`, whose own is left out, as it names every field of every other run."""
    folder.mkdir(parents=True)
    write_summary(folder, "hostile", {"pages": 1, "seed": 0, "runs": ["made"]}, {"all": {"opened": 1, "ran": 0}})


MAKERS = {
    "compare": _compare,
    "demo": _demo,
    "evaluate": _evaluate,
    "hostile": _hostile,
    "reproduce": _reproduce,
    "sweep": _sweep,
}
