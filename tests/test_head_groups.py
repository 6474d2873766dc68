"""The study of several heads in a layer: what is trained, what is shared, and how claims are judged."""

import json

import numpy as np
import pytest
import torch
from commands import run as command

import ropescope as rs
from ropescope.runs import Run, read_run
from ropescope.studies.claims import CASES, Runs, all_cases
from ropescope.studies.head_groups import PRESETS, Settings, recipes, sharing, tables
from ropescope.studies.head_groups import run as study
from ropescope.studies.head_groups.llama import Llama, model_of
from ropescope.studies.head_groups.recipes import Unit, recipe_of
from ropescope.tasks import split
from ropescope.training.probe import probe_of

TINY = {"seeds": 1, "heads": (2,), "hops": 1, "steps": 6, "layers": 2, "width": 16, "inputs": 40, "probe": 20}
FLAGS = ["--hops", "1", "--steps", "6", "--layers", "2", "--width", "16", "--inputs", "40", "--probe", "20"]


# What is trained


def test_every_number_of_heads_in_every_family():
    settings = Settings(seeds=2, heads=(1, 4), seed=3)
    assert [(unit.setting, unit.seed) for unit in recipes.units(settings)][:9] == [
        *((f"{task} {family} {heads}", 3) for task in ("number", "letter") for family in ("gptj", "llama") for heads in (1, 4)),
        ("number gptj 1", 4),
    ]
    one, four = (recipe_of(settings, Unit("number", "gptj", heads, 3)) for heads in (1, 4))
    assert {**one.settings(), "heads": 4} == four.settings()
    sizes = {family: sum(w.numel() for w in model_of(four, family).parameters()) for family in ("gptj", "llama")}
    assert 0.8 < sizes["llama"] / sizes["gptj"] < 1.3


@pytest.mark.parametrize("family", ["gptj", "llama"])
def test_what_a_model_does_by_slow_loops(family):
    settings, unit = Settings(**TINY), Unit("letter", family, 2, 1)
    found = study.run_unit(settings, unit)
    recipe = recipe_of(settings, unit)
    torch.manual_seed(1)
    data = split(recipe.make_task(), recipe.samples, 1)
    model = study.trained(recipe, data["train"], None, model_of(recipe, family))
    test = data["test"]

    def accuracy(removed=()):
        """The output projection reads a zero from every removed head."""
        blocks = model.inner.model.layers if isinstance(model, Llama) else model.blocks
        hooks = []
        for layer, block in enumerate(blocks):
            out = block.self_attn.o_proj if isinstance(model, Llama) else block.out

            def zero(_, given, layer=layer):
                heads = given[0].unflatten(-1, (2, 8)).clone()
                for head in range(2):
                    if (layer, head) in removed:
                        heads[..., head, :] = 0
                return (heads.flatten(-2),)

            hooks.append(out.register_forward_pre_hook(zero))
        with torch.inference_mode():
            answers = [int(model(torch.from_numpy(row[None]))[0, -1].argmax()) for row in test.tokens]
        for hook in hooks:
            hook.remove()
        return float((answers == test.answer).mean())

    assert found["accuracy"].tolist() == [pytest.approx(accuracy())]
    alone = [[accuracy([(layer, head)]) for head in (0, 1)] for layer in (0, 1)]
    np.testing.assert_allclose(found["alone"], alone, atol=1e-6)
    together = [accuracy([(layer, 0), (layer, 1)]) for layer in (0, 1)]
    np.testing.assert_allclose(found["together"], together, atol=1e-6)
    if family == "llama":
        probe = probe_of(data["validation"], 20)
        prompts = [rs.Prompt(ids, tuple((p, p + 1) for p in range(16)), tuple(map(str, ids))) for ids in probe.tokens]
        profile = rs.profile(rs.Adapter(model.inner), prompts, planes=False, sensitivity=False)
        for name in ("positional", "symbolic"):
            np.testing.assert_allclose(found[name], profile[name].values.mean(0), atol=1e-6)
    again = study.run_unit(settings, unit)
    assert all(np.array_equal(found[name], again[name]) for name in found)


# The command


@pytest.mark.slow
def test_the_command_runs_adds_and_resumes(tmp_path):
    out = tmp_path / "groups"
    done = command("head-groups", *FLAGS, "--seeds", "1", "--heads", "1", "--families", "gptj", "--out", out)
    assert done.returncode == 0, done.stderr
    before = {path: path.stat().st_mtime_ns for path in (out / "units").iterdir()}
    assert sorted(path.name for path in before) == ["letter-gptj-1-0.safetensors", "number-gptj-1-0.safetensors"]
    done = command("head-groups", *FLAGS, "--seeds", "1", "--heads", "1,2", "--out", out)  # more models of the same kind
    assert done.returncode == 0, done.stderr
    assert len(list((out / "units").iterdir())) == 8
    assert {path: path.stat().st_mtime_ns for path in before} == before
    run = read_run(out)
    assert tables.dataset(run).sizes == {"model": 8, "layer": 2, "head": 2, "hops": 1}
    other = command("head-groups", *FLAGS, "--width", "8", "--out", out)
    assert other.returncode == 2
    assert "holds a run with other settings (width differs)" in other.stderr


def test_presets_are_settings():
    for changes in PRESETS.values():
        assert recipes.units(Settings(**changes))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seeds": 0}, "seeds must be at least 1, not 0"),
        ({"heads": ()}, "heads must be numbers from 1 on, not empty"),
        ({"heads": (0, 1)}, "heads must be numbers from 1 on, not 0, 1"),
        ({"heads": (3,)}, "width must be a multiple of 2 x heads = 6, not 128"),
        ({"families": ("gpt2",)}, "families must be of gptj, llama, not gpt2"),
        ({"inputs": 3}, "inputs and probe must be at least 4, one for each hop count, not 3 and 256"),
        ({"hops": 9}, "alphabet is 8 but the tokens of 9 hops begin with 10 different letters"),
    ],
)
def test_settings_that_are_not_allowed_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        Settings(**change)


# What is shared


def arrays(positional, symbolic, alone, together, accuracy=1.0):
    values = {"positional": positional, "symbolic": symbolic, "alone": alone, "together": together}
    return {name: np.array(value, dtype=float) for name, value in values.items()} | {
        "accuracy": np.array([accuracy, accuracy]),
        "looks": np.array([(1, 0.2), (2, accuracy)]),
    }


def test_what_no_single_head_does():
    row = study.row_of(
        Unit("number", "gptj", 2, 0),
        arrays([[1, 0], [0.6, 0.5], [1, 1]], [[0, 0.95], [0.2, 0.5], [1, 0]], [[0.5, 1], [0.9, 0.8], [1, 1]], [0.5, 0.2, 0.99]),
    )
    first, second, idle = sharing.layers_of(row)
    assert (first.mixed, first.damage, first.shared) == (True, 0.5, 0.0)  # one head does it all
    assert first.purity == pytest.approx((1 + 0.95) / 2)
    assert (second.mixed, second.shared) == (False, pytest.approx(1 - 0.2 / 0.8))
    assert second.purity == pytest.approx((0.6 + 0.5) / 2)
    assert idle.shared is None
    # That accuracy rises without a head is no work of it.
    better = study.row_of(Unit("number", "gptj", 1, 0), arrays([[1]], [[0]], [[0.9]], [0.5], accuracy=0.8))
    assert sharing.layers_of(better)[0].shared == 1.0


# Claims


def made(folder, seeds=2, pure=0.95, mixed=True, work=(0.0, 0.5, 0.9), learned=1.0):
    """Models of six layers, each of which is less pure the more its heads share."""
    rows = []
    for task in ("number", "letter"):
        for heads in (1, 4):
            for seed in range(seeds):
                level = [1.0] * 6 if heads == 1 else [pure - 0.1 * work[layer % 3] for layer in range(6)]
                positional = np.array([[one] * heads for one in level])
                symbolic = 1 - positional
                if mixed and heads > 1:
                    positional[0, 0], symbolic[0, 0] = 0.0, 1.0
                alone = np.full((6, heads), 1.0)
                alone[:, 0] = [0.2 + 0.8 * work[layer % 3] for layer in range(6)]
                given = arrays(positional, symbolic, alone, [0.2] * 6, learned)
                rows.append(study.row_of(Unit(task, "gptj", heads, seed), given))
    config = {"seeds": seeds, "seed": 0, "layers": 6, "hops": 2}
    return Run(folder, {"command": "head-groups", "config": config, "results": json.loads(json.dumps({"models": rows}))})


def verdict(run, claim):
    all_cases()
    return CASES[claim].row(Runs([run])).verdict


@pytest.mark.parametrize(
    ("claim", "changes", "expected"),
    [
        ("ours-groups-purity", {}, "reproduced"),
        ("ours-groups-purity", {"pure": 1.0, "work": (0, 0, 0), "mixed": False}, "not"),  # as pure
        ("ours-groups-purity", {"learned": 0.5}, "not run"),
        ("ours-groups-mix", {}, "reproduced"),
        ("ours-groups-mix", {"mixed": False}, "not"),
        ("ours-groups-mix", {"learned": 0.5}, "not run"),
        ("ours-groups-shared", {"mixed": False}, "reproduced"),
        ("ours-groups-shared", {"mixed": False, "work": (0, 0, 0)}, "not run"),  # no layer shares more than another
        ("ours-groups-shared", {"seeds": 1}, "not run"),
    ],
)
def test_what_several_heads_do(tmp_path, claim, changes, expected):
    assert verdict(made(tmp_path, **changes), claim) == expected


def test_some_are_partly(tmp_path):
    run = made(tmp_path)
    row = next(row for row in run.results["models"] if row["setting"] == "number gptj 4" and row["seed"] == 1)
    row["positional"] = [[1.0] * 4] * 6
    row["symbolic"] = [[0.0] * 4] * 6
    assert verdict(run, "ours-groups-mix") == "partly"
    assert verdict(run, "ours-groups-purity") == "partly"


def test_a_run_is_shown(tmp_path):
    from ropescope.studies.head_groups.figures import figures  # noqa: PLC0415

    run = made(tmp_path)
    assert tables.headline(run).startswith("mean purity of heads (task, family, heads in a layer): number gptj 1 1.00")
    (table,) = tables.tables(run)
    shown = {row[0]: row[1:] for row in table.rows}
    assert shown["number gptj 4"] == ["2 of 2", "1.00", "0.91", "15", "1", "24", "1", "6", "0.47"]
    spec = figures(run)["purity"].chart.to_dict()
    assert len(spec["hconcat"]) == 2
    alone = [row for row in run.results["models"] if row["heads"] == 1]
    run.summary["results"]["models"] = alone
    assert len(figures(run)["purity"].chart.to_dict()["hconcat"]) == 1
