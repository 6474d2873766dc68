"""The command line: parse, call, show. Heavy parts are imported by the command that needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

T = TypeVar("T")

app = typer.Typer(
    name="ropescope",
    help="What each attention head of a RoPE transformer does: does it attend to places or to things, exactly.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _checked_seed(seed: int | None) -> int | None:
    # What torch and numpy both take, with room for the seeds that follow a given one.
    if seed is not None and not 0 <= seed < 2**63:
        raise ValueError(f"seed must be {'at least 0' if seed < 0 else 'below 2**63'}, not {seed}")
    return seed


Seed = Annotated[int, typer.Option(callback=_checked_seed, help="Seed of everything random.")]
RunSeed = Annotated[
    int | None,
    typer.Option(
        callback=_checked_seed,
        help="Seed of the run whose test sequences to use.  [default: the bundled model's own, or 0]",
    ),
]
Model = Annotated[Path | None, typer.Option(help="Folder of a GPT-J; the bundled model of the task unless given.")]
Tasks = Annotated[str, typer.Argument(help="number, letter or all, at the size of preset paper.")]
EngineName = Annotated[
    str, typer.Option("--engine", help="here, or ray: side by side on a Ray cluster, with the same results.")
]
Address = Annotated[
    str | None,
    typer.Option(help="Ray cluster to join: host:port of its head, or auto.  [default: one is started here for the run]"),
]


_held = ExitStack()
"""Folders that the command at work holds."""


def _folder(out: Path) -> Path:
    """The folder for results, made if need be, and held against other writers until the command ends."""
    from . import runs

    _held.close()  # a command holds one folder: what is still held is that of an earlier one of this process
    _held.enter_context(runs.locked(out))
    return out


@app.command(
    epilog="Example:  ropescope train number --seed 0 --out out/number-0\n\n"
    "Example:  ropescope train number --seeds 0,1,2 --engine ray --address auto --out out/seeds"
)
def train(
    task: Annotated[str, typer.Argument(help="number or letter.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder; with --seeds a folder of them, TASK-SEED each.  [default: out/TASK-SEED; out]"),
    ] = None,
    preset: Annotated[str, typer.Option(help="Recipe to start from: paper, or quick (two hops, four layers).")] = "paper",
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Change one entry of the recipe, as in steps=500; repeat it.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder, bit for bit.")] = False,
    snapshots: Annotated[bool, typer.Option("--snapshots", help="Keep the weights of every checkpoint.")] = False,
    seed: Seed = 0,
    seeds: Annotated[str | None, typer.Option(help="Several seeds, as in 0,1,2: a run of each.")] = None,
    engine: EngineName = "here",
    address: Address = None,
) -> None:
    """Train a GPT-J on the number or letter task, watching its heads. Safe to interrupt and to resume."""
    from .training import trainer

    if seeds is not None or engine != "here" or address is not None:
        if seeds is not None and seed:
            raise ValueError("give --seed or --seeds, not both")
        numbers = [seed] if seeds is None else _whole_numbers("--seeds", seeds)
        for number in numbers:
            _checked_seed(number)
        folders = {n: (out or Path("out")) / f"{task}-{n}" for n in numbers}
        if seeds is None and out is not None:
            folders = {seed: out}
        recipes = {folder: trainer.recipe(task, preset, n, change or []) for n, folder in folders.items()}
        _train_seeds(recipes, resume, snapshots, engine, address)
        return
    recipe = trainer.recipe(task, preset, seed, change or [])
    folder = out or Path("out") / f"{task}-{seed}"
    try:
        with _training_bar(recipe.steps) as show:
            results = trainer.train(recipe, folder, resume, snapshots, show)
    except KeyboardInterrupt:
        typer.echo(f"ropescope: interrupted; add --resume to the same command to go on in {folder}", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"{folder}: test accuracy {results['test_accuracy']}")


def _train_seeds(recipes: dict[Path, Any], resume: bool, snapshots: bool, engine: str, address: str | None) -> None:
    from .training.seeds import train_seeds

    where = _engine(engine, address)
    steps = next(iter(recipes.values())).steps
    try:
        with _training_bar(steps) if engine == "here" else nullcontext() as show:
            ended = train_seeds(recipes, resume, snapshots, where, show)
            for folder, results in ended if show else _progress(ended, len(recipes), "runs"):
                typer.echo(f"{folder}: test accuracy {results['test_accuracy']}")
    except KeyboardInterrupt:
        typer.echo("ropescope: interrupted; add --resume to the same command to go on", err=True)
        raise typer.Exit(130) from None


def _engine(name: str, address: str | None) -> Any:
    from .runs import Engine

    return Engine(name, address, lambda _: typer.echo("a worker was lost: what it did is begun again", err=True))


@app.command(epilog="Example:  ropescope evaluate number")
def evaluate(
    task: Annotated[str, typer.Argument(help="number or letter, at the size of preset paper.")],
    model: Model = None,
    out: Annotated[Path, typer.Option(help="Folder for summary.json.")] = Path("out/evaluate"),
    seed: RunSeed = None,
) -> None:
    """Accuracy per hop count on the 45,600 test sequences, recomputed from a model's weights."""
    from . import runs
    from .models.bundled import model_of
    from .tasks import split
    from .training import trainer

    recipe = trainer.recipe(task)
    network, source = model_of(task, recipe.make_task().vocab_size, model)
    seed = _run_seed(seed, task, model)
    folder = _folder(out)
    test = split(recipe.make_task(), recipe.samples, seed)["test"]
    accuracy = {f"{hops}-hop": float(value) for hops, value in enumerate(trainer.evaluate(network, test), start=1)}
    config = {"task": task, "model": source.name, "weights": runs.sha256(source / "model.safetensors"), "seed": seed}
    runs.write_summary(folder, "evaluate", config, {"sequences": len(test), "accuracy": accuracy})
    typer.echo(f"{len(test):,} test sequences: " + ", ".join(f"{name} {value:.4f}" for name, value in accuracy.items()))


def _heads_said(result: dict[str, Any], numbers: list[int]) -> str:
    """Heads of a training run by name; of many, how many."""
    from .experiments.dynamics import heads_of

    names = [heads_of(result)[n] for n in numbers]
    return " ".join(names) if 0 < len(names) <= 16 else str(len(names) or "none")


@app.command(
    epilog="Example:  ropescope dynamics out/number-0 out/letter-0 --out out/dynamics\n\n"
    "Example:  ropescope dynamics my-training --count 8    (a folder of checkpoint-500, checkpoint-1000, ...)\n\n"
    "Example:  ropescope dynamics EleutherAI/pythia-70m --revisions step0,step512,step143000"
)
def dynamics(
    sources: Annotated[
        list[str],
        typer.Argument(help="Run folders of training or watching, finished or not; folders of checkpoints; or a hub id."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for figures and summary.json.")] = Path("out/dynamics"),
    layers: Annotated[
        str | None, typer.Option(help="Layers to show under the accuracy, as in 0,1,5.  [default: those that tell most]")
    ] = None,
    revisions: Annotated[str | None, typer.Option(help="Of a hub id, with commas between them; each names its step.")] = None,
    prompts: Annotated[
        str, typer.Option(help="Checkpoints are tried on: binding, number, letter, a text file, or token ids in a JSON file.")
    ] = "binding",
    count: Annotated[int, typer.Option(help="How many prompts; a file has as many as it has.")] = 8,
    pairs: Annotated[int, typer.Option(help="Sentences of a binding prompt.")] = 12,
    chat: Annotated[bool | None, typer.Option(help="Use the chat template.", show_default="if there is one")] = None,
    tau: Annotated[float, typer.Option(help="Temperature of the weighting of swaps.")] = 1e-4,
    seed: Seed = 0,
    engine: EngineName = "here",
    address: Address = None,
) -> None:
    """When heads became pure and hop counts were learned, with the curves.

    Of a folder of checkpoints that transformers kept, each is opened, scored and let go; only scores are kept, in OUT/NAME.
    Give the same command again to go on after an interruption, or when there are more checkpoints.
    """
    from . import runs
    from .experiments import dynamics as experiment
    from .report import dynamics as figures

    asked = {"prompts": prompts, "count": count, "pairs": pairs, "chat": chat, "tau": tau, "seed": seed}
    wanted = revisions.split(",") if revisions else []
    where = _engine(engine, address)
    folders = [_history(source, wanted, asked, out, where) for source in sources]
    trajectories = [runs.read_trajectory(folder) for folder in folders]
    if len({run.name for run in trajectories}) < len(trajectories):
        raise ValueError("two of the folders have the same name: rename one, as figures are named after them")
    chosen = None if layers is None else _whole_numbers("--layers", layers)
    folder = _folder(out)
    results = {run.name: experiment.dynamics(run) for run in trajectories}
    files = [name for run in trajectories for name in figures.write_figures(run, results[run.name], folder, chosen)]
    hashes = {run.name: runs.sha256(path / "history.safetensors") for run, path in zip(trajectories, folders, strict=True)}
    runs.write_summary(folder, "dynamics", {"runs": hashes}, results, files)
    _table(
        ["run", "learned at (per hop)", "best accuracy at", "pure positional", "pure symbolic", "purity ~ accuracy"],
        [
            [
                name,
                ", ".join("-" if step is None else str(step) for step in result["learned_at"]),
                "-" if (best := result["best_accuracy"]) is None else f"{result['step_of_best_accuracy']} ({best:.3f})",
                *(_heads_said(result, result["purity"]["0.1"][f"final_{kind}"]) for kind in ("positional", "symbolic")),
                "-" if (go := result["purity_and_accuracy"]) is None else f"rho {go['spearman']:.2f}, p {go['p_value']:.0e}",
            ]
            for name, result in results.items()
        ],
    )
    said = [
        [name, claim["claim"], claim["paper"], claim["ours"], "holds" if claim["holds"] else "differs"]
        for name, result in results.items()
        for claim in result["claims"]
    ]
    if said:
        _table(["run", "paper B says", "its value", "ours", "so it"], said)
    _look_at(folder, files)


def _history(source: str, revisions: list[str], asked: dict[str, Any], out: Path, engine: Any) -> Path:
    """The folder with a training's history: as it is given, or made of the checkpoints in it."""
    if not revisions and (Path(source) / "history.safetensors").exists():
        return Path(source)
    from .experiments import sweep as experiment
    from .models.checkpoints import find_checkpoints

    checkpoints = find_checkpoints(source, revisions)
    folder = out / Path(source).resolve().name
    work = experiment.sweep(source, revisions, experiment.Asked(**asked), folder, engine)
    measured = list(_progress(work, len(checkpoints), Path(source).name))
    for same in experiment.same_weights({one.checkpoint.name: one.weights for one in measured}):
        typer.echo(f"{', '.join(same)} hold the same weights")
    return folder


def _task_names(task: str, model: Path | None) -> list[str]:
    if task == "all" and model is not None:
        raise ValueError("--model needs the task it was trained on: say which, number or letter")
    from .tasks import task_names

    return list(task_names()) if task == "all" else [task]


def _run_seed(seed: int | None, task: str, model: Path | None) -> int:
    """Seed of the run whose test sequences to use: the one given, or that of the bundled model, or 0."""
    from .models.bundled import bundled_seed

    return seed if seed is not None else bundled_seed(task) if model is None else 0


def _model_name(folder: Path | None) -> str:
    """What to call a model: by its run, as the model of a run folder is always in "model"."""
    if folder is None:
        return "bundled model"
    path = folder.resolve()
    return f"model {path.parent.name if path.name == 'model' else path.name}"


@app.command(epilog="Example:  ropescope llm --model openai/gpt-5.4 --samples 20 --out out/gpt-5.4 --yes")
def llm(
    model: Annotated[str, typer.Option(help="PROVIDER/NAME as in Inspect AI, or local/ and a hub id, folder or GGUF file.")],
    base_url: Annotated[str | None, typer.Option(help="Another server that speaks the provider's language.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder.  [default: out/llm-NAME]")] = None,
    tasks: Annotated[str, typer.Option(help="number, letter, or both.")] = "number,letter",
    lengths: Annotated[str, typer.Option(help="Sizes of the target window.")] = "12,16,24,32,48,64,80,100,150,200,300",
    runs: Annotated[int, typer.Option(help="Runs; the number of a run is its seed.")] = 5,
    samples: Annotated[int, typer.Option(help="Questions per task, length and run.")] = 20,
    hops: Annotated[int, typer.Option(help="Hops from the last token to the answer.")] = 1,
    max_tokens: Annotated[int, typer.Option(help="Longest answer.")] = 8,
    yes: Annotated[bool, typer.Option("--yes", help="Send what was reckoned. Without it nothing is sent to a server.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Measure a model that fails the screening all the same.")] = False,
    price_in: Annotated[float | None, typer.Option(help="Price of a million tokens in, for the estimate.")] = None,
    price_out: Annotated[float | None, typer.Option(help="Price of a million tokens out.")] = None,
    concurrency: Annotated[int, typer.Option(help="Requests under way at any time.")] = 8,
    retries: Annotated[int, typer.Option(help="How often a request is sent again, after growing pauses.")] = 6,
    timeout: Annotated[int, typer.Option(help="Seconds after which a request is sent again.")] = 60,
    reasoning: Annotated[
        str | None, typer.Option(help="Effort of models that reason: none turns it off where it can be.  [default: not sent]")
    ] = None,
    profile: Annotated[Path | None, typer.Option(help="Run folder of ropescope profile of the same model.")] = None,
    beside: Annotated[
        list[Path] | None, typer.Option(help="Run folder of ropescope llm of another model, with its profile; repeat it.")
    ] = None,
    seed: Annotated[int, typer.Option(callback=_checked_seed, help="Number of the first run.")] = 1,
) -> None:
    """Accuracy of a chat model on the number and letter tasks over length, beside paper B's. Run it again to go on.

    Keys are read from the environment (OPENAI_API_KEY, ANTHROPIC_API_KEY, ...) and never kept.
    """
    import signal

    from . import runs as folders
    from .experiments import llm as experiment
    from .report import llm as figures

    grid = tuple(_whole_numbers("--lengths", lengths))
    settings = experiment.Settings(tuple(tasks.split(",")), grid, runs, samples, hops, max_tokens, seed)
    experiment.check_prices(price_in, price_out)
    if beside and profile is None:
        raise ValueError("--beside compares models by their heads, too: give this one's --profile")
    chat, about = _who_answers(model, base_url, concurrency, retries, timeout, reasoning)
    heads = None if profile is None else experiment.profile_beside(profile, about.get("weights"))
    others = [experiment.run_beside(path) for path in beside or []]
    name = about["source"]
    folder = out or Path("out") / f"llm-{name.replace('/', '-')}"
    with suppress(ValueError):  # in the main thread: only for this one asyncio waits for answers under way
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with experiment.Journal(folder, experiment.shared_config(about, settings)) as journal:
        parts, too_long = experiment.plan(settings, chat)
        asked = [question for part in parts for question in part]
        left = journal.missing(asked)
        typer.echo(experiment.estimate_said(len(asked), left, max_tokens, price_in, price_out), err=True)
        if left and not yes and not model.startswith("local/"):
            typer.echo("nothing was sent: add --yes to go on", err=True)
            return
        for part in parts:
            missing = len(journal.missing(part))
            for _ in _progress(experiment.ask(chat, journal, part, max_tokens), missing, "answers"):
                pass
            result = experiment.screening(settings, journal.answers)
            if not (anyway or result is None or result["passed"]):
                break
        results = experiment.results(settings, journal.answers, too_long)
        results |= {"profile": heads} if heads else {}
        if others:
            results["beside"] = [experiment.brief(name, results), *others]
        files = figures.write_figures(results, name, figures.said(asdict(settings)), folder)
        config = {"model": about, **asdict(settings), "profile": None if profile is None else profile.name}
        folders.write_summary(folder, "llm", config, results, ["config.json", "answers.jsonl", *files])
    _llm_report(results, name)
    _look_at(folder, files)
    if not (anyway or results["screening"] is None or results["screening"]["passed"]):
        typer.echo(
            "ropescope: the model fails the screening, so the rest was not asked: add --anyway to ask it all the same", err=True
        )
        raise typer.Exit(1)


def _who_answers(
    model: str, base_url: str | None, concurrency: int, retries: int, timeout: int, reasoning: str | None
) -> tuple[Any, dict[str, Any]]:
    """Somebody to ask, and what identifies them."""
    provider, _, name = model.partition("/")
    if not name:
        raise ValueError(f"--model must be PROVIDER/NAME, as in openai/gpt-5.4 or local/weights/smollm2-135m, not {model!r}")
    if provider == "local":
        from .models.chat import LocalChat
        from .models.load import load_model

        if base_url is not None:
            raise ValueError("--base-url is for servers: a local model has none")
        loaded = load_model(name)
        local = LocalChat(loaded)
        return local, loaded.about | {"chat": local.template}
    from .models.remote import RemoteChat, shown_url

    remote = RemoteChat(model, base_url, concurrency, retries, timeout, reasoning)
    where = {} if base_url is None else {"base_url": shown_url(base_url)}
    return remote, {"source": model, **where, "reasoning": reasoning}


def _llm_report(results: dict[str, Any], name: str) -> None:
    from .experiments.llm import PAPER, PAPER_LENGTHS

    accuracy = results["accuracy"]

    def ours(cell: dict[str, Any] | None) -> str:
        if cell is None:
            return "-"
        return f"{cell['mean']:.2f}" if cell["std"] is None else f"{cell['mean']:.2f} ± {cell['std']:.2f}"

    def theirs(tasks: dict[str, tuple[float, ...]], n: int) -> str:
        at = PAPER_LENGTHS.index(n) if n in PAPER_LENGTHS else None
        return "-" if at is None else f"{tasks['number'][at]:.2f} / {tasks['letter'][at]:.2f}"

    measured = sorted({int(n) for cells in accuracy.values() for n in cells})
    _table(
        ["target window", *(f"{name}, {task}" for task in accuracy), *(f"{paper}, number / letter" for paper in PAPER)],
        [
            [str(n), *(ours(cells.get(str(n))) for cells in accuracy.values()), *(theirs(tasks, n) for tasks in PAPER.values())]
            for n in measured
        ],
    )
    screened = results["screening"]
    if screened is not None:
        typer.echo(
            f"screening: {screened['task']} at {screened['length']}: {screened['accuracy']:.2f} right (at least "
            f"{screened['least_accuracy']:.2f}), {screened['single']:.2f} single tokens (at least "
            f"{screened['least_single']:.2f}): "
            f"{'passed' if screened['passed'] else 'failed'}"
        )
    for task, left_out in results["too_long"].items():
        typer.echo(f"{task}: windows of {', '.join(map(str, left_out))} do not fit into the model's context and were left out")
    used = results["usage"]
    if used["reasoning"]:
        typer.echo(f"the model reasoned ({used['reasoning']:,} tokens), which paper B turned off: try --reasoning none")
    lines = [
        [c["claim"], c["paper"], c["ours"] or "-", "-" if c["holds"] is None else "holds" if c["holds"] else "differs"]
        for c in results["claims"]
    ]
    _table(["paper B says of its models", "theirs", "ours", "so it"], lines)


def _look_at(folder: Path, files: list[str]) -> None:
    typer.echo("\n".join(f"look at {folder / name}" for name in files if name.endswith(".html")))


def _whole_numbers(option: str, text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} must be whole numbers with commas between them, not {text!r}") from None


@contextmanager
def _training_bar(steps: int) -> Iterator[Callable[[int, float, dict[str, Any] | None], None]]:
    """A bar with loss, accuracy and remaining time on a terminal; nothing in a pipe."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    terminal = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=terminal, disable=not terminal.is_terminal)
    line = bar.add_task("training", total=steps)
    accuracy = ""

    def show(step: int, loss: float, row: dict[str, Any] | None) -> None:
        nonlocal accuracy
        if row is not None:
            accuracy = " ".join(f"{value:.2f}" for value in row["accuracy"])
        bar.update(line, completed=step, description=f"loss {loss:.3f}  accuracy per hop {accuracy}")

    with bar:
        yield show


def _progress(items: Iterable[T], total: int, what: str) -> Iterable[T]:
    """A progress bar with remaining time on a terminal, nothing in a pipe."""
    from rich.console import Console
    from rich.progress import track

    terminal = Console(stderr=True)
    return track(items, what, total=total, console=terminal, transient=True, disable=not terminal.is_terminal)


def _table(columns: list[str], lines: list[list[str]]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(*columns, box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for line in lines:
        table.add_row(*line)
    _print(table)


def _print(table: Any) -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = 140
    console.print(table)
