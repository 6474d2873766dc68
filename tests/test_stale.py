"""Work that a folder stores is never mixed with new work: whatever has changed, it is refused in one sentence or done anew."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_canonical import TINY
from test_prompts import by_words
from transformers import LlamaConfig, LlamaForCausalLM

import ropescope as rs
from ropescope.models.checkpoints import Checkpoint
from ropescope.runs import HERE, key
from ropescope.studies import study_named
from ropescope.studies.canonical import sweeps
from ropescope.studies.dynamics import sweep as checkpoints
from ropescope.studies.length import run as length
from ropescope.studies.reproduce import state
from ropescope.studies.reproduce.steps import Of, Step
from ropescope.studies.runner import make_settings
from ropescope.studies.study import Work
from ropescope.training.recipe import Recipe
from ropescope.training.trainer import check_folder, train

REFUSED = r"^\S+ (holds|was made with) [^\n]*: choose another folder( for out)?$"


def make_model(folder, seed=0):
    """A tiny model with a tokenizer that knows words."""
    torch.manual_seed(seed)
    tokenizer = by_words()
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes, max_position_embeddings=4096)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def rotate_otherwise(folder):
    settings = json.loads((folder / "config.json").read_text())
    (settings.get("rope_parameters") or settings)["rope_theta"] = 500.0
    (folder / "config.json").write_text(json.dumps(settings))


def read_otherwise(folder):
    found = json.loads((folder / "tokenizer.json").read_text())
    words = found["model"]["vocab"]
    words["Alice"], words["Facts"] = words["Facts"], words["Alice"]
    (folder / "tokenizer.json").write_text(json.dumps(found))


FILES = {
    "weights": lambda folder: make_model(folder, seed=1),
    "config.json": rotate_otherwise,
    "tokenizer": read_otherwise,
    "template": lambda folder: (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] }} a"),
}
CODE = ("measure version", "library")


def change_code(monkeypatch, what):
    """Another version of a measure, or of a library."""
    if what == "library":
        monkeypatch.setattr(key, "_version", lambda name: "0.0")
    else:
        monkeypatch.setattr(key, "_code_hash", lambda study: "0" * 64)


def computed(name, folder, **given):
    """What a study computes in a folder, without figures and summary."""
    study = study_named(name)
    return study.run(make_settings(study, given), Work(folder, HERE, lambda items, *_: items, lambda _: None, quiet=True))


def scores_of(outcome):
    return json.loads(json.dumps(outcome.results))


def profiled(model, out, **changes):
    given = {"model": str(model), "count": 2, "pairs": 2, "planes": False, "sensitivity": False, "chat": False}
    return scores_of(computed("profile", out, **given | changes))


def controlled(model, out, **changes):
    given = {"model": str(model), "count": 1, "pairs": (2,), "draws": 1, "drop": "fast"}
    return scores_of(computed("control", out, **given | changes))


def asked(model, out, **changes):
    given = {"model": f"local/{model}", "tasks": ("letter",), "lengths": (12,), "runs": 1, "samples": 1, "max_tokens": 2}
    return scores_of(computed("llm", out, anyway=True, **given | changes))


def swept(model, out, **changes):
    """Checkpoints: the model itself is the only one."""
    given = {"count": 2, "pairs": 2, "chat": False} | changes
    found = checkpoints.sweep(str(model.parent), (), checkpoints.Asked(**given), out)
    return [{name: values.tolist() for name, values in one.row.items()} for one in found]


COMMANDS = {"profile": profiled, "control": controlled, "llm": asked, "dynamics": swept}
SETTINGS = {"profile": {"tau": 1e-3}, "control": {"drop": "slow"}, "llm": {"max_tokens": 3}, "dynamics": {"tau": 1e-3}}
PROMPTS = {"profile": {"seed": 1}, "control": {"pairs": (3,)}, "llm": {"seed": 5}, "dynamics": {"seed": 1}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """By command: a function that gives a model, and a folder that holds its finished work."""
    root = tmp_path_factory.mktemp("finished")
    made = {}

    def copied(command, into):
        if command not in made:
            model = make_model(root / command / "training" / "checkpoint-1")
            made[command] = COMMANDS[command](model, root / command / "out")
        shutil.copytree(root / command, into, dirs_exist_ok=True)
        return into / "training" / "checkpoint-1", into / "out", made[command]

    return copied


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", [*FILES, "prompts", "settings", *CODE])
@pytest.mark.slow
def test_stale_work_is_refused_or_done_anew(command, what, finished, tmp_path, monkeypatch):
    model, out, before = finished(command, tmp_path)
    changes = {"prompts": PROMPTS, "settings": SETTINGS}.get(what, {}).get(command, {})
    if what in FILES:
        FILES[what](model)
    elif what in CODE:
        change_code(monkeypatch, what)
    if command == "dynamics" and what in ("weights", "config.json", "template"):  # a unit is known by weights and settings
        now = swept(model, out)
        assert now == swept(model, tmp_path / "fresh"), "measured anew, and not mixed"
        assert (now == before) == (what == "template"), "no prompt was made with it"
        return
    with pytest.raises(ValueError, match=REFUSED):
        COMMANDS[command](model, out, **changes)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_same_work_is_resumed(command, finished, tmp_path):
    model, out, before = finished(command, tmp_path)
    stored = {path: path.stat().st_mtime_ns for path in out.glob("*/*") if path.is_file()}
    assert COMMANDS[command](model, out) == before
    assert {path: path.stat().st_mtime_ns for path in stored} == stored


def test_another_rope_theta_gives_no_old_scores(finished, tmp_path):
    """The refusal names the file; a fresh folder has other scores."""
    model, out, before = finished("profile", tmp_path)
    rotate_otherwise(model)
    with pytest.raises(
        ValueError, match=r"holds a profile of another model, prompts or settings \(model.files.config.json differs"
    ):
        profiled(model, out)
    assert profiled(model, tmp_path / "fresh")["heads"] != before["heads"]


@pytest.mark.parametrize("what", ["settings", *CODE])
def test_stale_sweeps_of_canonical(what, tmp_path, monkeypatch):
    def first(**changes):
        settings = make_settings(study_named("canonical"), TINY | changes)
        return next(sweeps.trained_units(settings, Work(tmp_path, HERE, lambda items, *_: items, print)))[1]

    before = first()
    assert all(np.array_equal(before[name], values, equal_nan=True) for name, values in first().items())
    if what in CODE:
        change_code(monkeypatch, what)
    with pytest.raises(ValueError, match=REFUSED):
        first(**({"steps": 13} if what == "settings" else {}))


@pytest.mark.parametrize("what", ["settings", *CODE])
def test_stale_training(what, tmp_path, monkeypatch):
    sizes = {"layers": 1, "width": 8, "mlp_width": 8, "batch": 4, "probe": 8, "watch_every": 2, "checkpoint_every": 2}
    sizes |= {"steps": 2, "warm_up": 1, "samples": (40, 20, 20)}
    recipe = Recipe("number", **sizes)
    train(recipe, tmp_path)
    check_folder(recipe, tmp_path, resume=True)
    if what in CODE:
        change_code(monkeypatch, what)
    with pytest.raises(ValueError, match=REFUSED):
        check_folder(recipe if what in CODE else Recipe("number", **sizes | {"rate": 1e-3}), tmp_path, resume=True)


@pytest.mark.parametrize("what", ["weights", "config.json", "settings", *CODE])
def test_stale_rows_of_generalise(what, tmp_path, monkeypatch):
    torch.manual_seed(0)
    model = rs.GPTJ(rs.GPTJConfig(136, layers=1, width=16, mlp_width=16))
    files = rs.models.gptj.save_gptj(model, tmp_path / "model")
    given = {"task": "number", "model": tmp_path / "model", "lengths": (17,), "samples": 4, "seeds": 1}
    before = computed("generalise", tmp_path / "out", **given).results
    assert computed("generalise", tmp_path / "out", **given).results == before
    assert files == ["config.json", "model.safetensors"]
    if what in CODE:
        change_code(monkeypatch, what)
    elif what == "settings":
        given["seed"] = 1
    elif what == "weights":
        rs.models.gptj.save_gptj(rs.GPTJ(model.config), tmp_path / "model")
    else:
        settings = json.loads((tmp_path / "model" / "config.json").read_text()) | {"activation_function": "gelu"}
        (tmp_path / "model" / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=REFUSED):
        computed("generalise", tmp_path / "out", **given)
    assert length.stored_rows(tmp_path / "new", {}) == []


@pytest.mark.parametrize("what", [*FILES, "settings", *CODE])
def test_stale_steps_of_reproduce(what, tmp_path, monkeypatch):
    model = make_model(tmp_path / "model")
    step = Step("profile-model", "", "profile", 1, {"model": Of("model"), "count": 2})
    plan = state.Plan(tmp_path / "out", (step,), {"model": state._model(model)})
    state.make_room(plan, state.look(plan)[0])
    (tmp_path / "out" / "profile-model").mkdir()
    rs.runs.write_summary(tmp_path / "out" / "profile-model", "profile", {}, {})
    assert state.look(plan)[0].state == state.DONE
    if what in FILES:
        FILES[what](model)
        now = state.Plan(plan.folder, plan.steps, {"model": state._model(model)})
        assert state.look(now)[0].state == state.CHANGED
        return
    if what in CODE:
        change_code(monkeypatch, what)
    other = Step(step.name, "", "profile", 1, {"model": Of("model"), "count": 3 if what == "settings" else 2})
    with pytest.raises(ValueError, match=REFUSED):
        state.look(state.Plan(plan.folder, (other,), plan.models))


def test_a_revision_that_was_moved_to_another_commit_is_measured_anew(monkeypatch):
    names = []
    for commit in ("a" * 40, "b" * 40, "a" * 40):
        monkeypatch.setattr(checkpoints, "hub_commit", lambda *_, commit=commit: commit)
        names.append(checkpoints._known_by(Checkpoint(1, "step1", "org/name", "step1"))[0])
    assert names[0] == names[2] != names[1]


def test_steps_of_a_hub_id_are_known_by_its_commit(tmp_path, monkeypatch):
    """Without the hub a finished step stays as it is: making it anew would remove it."""
    step = Step("profile-name", "", "profile", 1, {"model": Of("name"), "count": 2})

    def planned(commit):
        monkeypatch.setattr(state, "hub_commit", commit)
        return state.Plan(tmp_path / "out", (step,), state.models_at_hand("quick", "org/name"))

    def unknown(_):
        raise ValueError("org/name at main cannot be downloaded: no network")

    plan = planned(lambda _: "a" * 40)
    state.make_room(plan, state.look(plan)[0])
    (tmp_path / "out" / "profile-name").mkdir()
    rs.runs.write_summary(tmp_path / "out" / "profile-name", "profile", {}, {})
    assert [state.look(planned(commit))[0].state for commit in (lambda _: "a" * 40, lambda _: "b" * 40, unknown)] == [
        state.DONE, state.CHANGED, state.DONE,
    ]  # fmt: skip


@pytest.mark.parametrize("what", ["config.json", "prompts", "settings", *CODE])
def test_stale_looks_of_a_watcher(what, tmp_path, monkeypatch):
    """Weights may differ: a training that resumes has other ones."""

    def watched(theta=10_000.0, prompts=((1, 2, 3, 4, 5, 6),), **changes):
        sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 16}
        model = LlamaForCausalLM(LlamaConfig(**sizes, rope_parameters={"rope_type": "default", "rope_theta": theta}))
        return rs.HeadWatcher(model, [torch.tensor(prompt) for prompt in prompts], tmp_path / "out", every=1, **changes)

    watched().look(1)
    assert watched()._folder.history.steps == [1]
    if what in CODE:
        change_code(monkeypatch, what)
    changes = {"config.json": {"theta": 500.0}, "prompts": {"prompts": ((1, 2, 3, 4, 5, 7),)}, "settings": {"tau": 1e-3}}
    with pytest.raises(ValueError, match=REFUSED):
        watched(**changes.get(what, {}))


def test_every_module_that_computes_counts(tmp_path):
    """Code counts and comments do not; what only shows results and other studies do not."""
    names = {path.relative_to(key.PACKAGE).as_posix() for path in key.computing_files("profile")}
    assert {"rope.py", "measures/scores.py", "models/adapter/adapter.py", "tasks/prompts.py", "studies/profile/run.py"} <= names
    assert not names & {"charts.py", "report/page.py", "studies/profile/figures.py", "studies/control/run.py"}
    (tmp_path / "measures").mkdir()
    (tmp_path / "measures" / "new.py").write_text("")
    assert [path.name for path in key.computing_files(None, tmp_path)] == ["new.py"], "without being named anywhere"
    assert key._bare('"""a"""\nx = 1  # why\n') == key._bare("x = 1\n") != key._bare("x = 2\n")


def test_measures_from_outside_count_by_their_file(tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text("one = 1\n")
    mine = SimpleNamespace(module="mine")
    monkeypatch.setattr("ropescope.measures.registry.measures", lambda: {"mine": mine})
    monkeypatch.setitem(key.sys.modules, "mine", SimpleNamespace(__file__=str(file)))
    before = key.made_with("ropescope.training.trainer")
    file.write_text("one = 2\n")
    assert key.made_with("ropescope.training.trainer") != before
    assert "measures" in before
