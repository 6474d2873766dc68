"""The command line: parse, call, show. Heavy parts are imported by the command that needs them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, suppress
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

_held = ExitStack()
"""Folders that the command at work holds."""


def _folder(out: Path) -> Path:
    """The folder for results, made if need be, and held against other writers until the command ends."""
    from . import runs

    _held.close()  # a command holds one folder: what is still held is that of an earlier one of this process
    _held.enter_context(runs.locked(out))
    return out


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
