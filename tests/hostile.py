"""Run folders full of hostile text, shown in Chromium: nothing of it may run.

    python -m tests.hostile --pages 1000 --out out/hostile

Fields are found by walking through files and not from a list: every string, the keys of every dictionary, names of arrays, and
text in datasets, of one recorded run of every type. A batch of fields that were not tried yet is filled with hostile text,
beside all fields that pages have shown before. A folder that is refused must be refused in one sentence; its batch is then
halved until single fields remain. The same is done if a page lacks figures, as if the type of the run is changed: such a field
is filled alone, so that it does not hide others. Once every field is tried, text is drawn anew for all that can be shown.
Every second page is opened without its policy, so that escaping has to hold alone. An interrupted session can be resumed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from profiles import geometry_rows, make_profile, path_rows, trace_rows, write_profile  # noqa: E402

from ropescope import runs  # noqa: E402
from ropescope.api import open_run  # noqa: E402
from ropescope.charts import chart_page  # noqa: E402
from ropescope.report.page import write_page  # noqa: E402

RESULTS = HERE.parent / "results"
BATCH = 32
"""Fields that are first tried together."""
TEXTS = (
    '"><img src=x onerror=hit()>',
    "'><svg onload=hit()>",
    "</script><script>hit()</script>",
    "<!--<script>hit()</script>",
    "</style><script>hit()</script>",
    "</template><script>hit()</script>",
    "</title></textarea></noscript><script>hit()</script>",
    "<iframe srcdoc='<script>parent.hit()</script>'></iframe>",
    "javascript:hit()",
    "data:text/html,<script>parent.hit()</script>",
    "'-hit()-'",
    '"-hit()-"',
    '"+hit()+"',
    "`${hit()}`",
    "${hit()}",
    "{{hit()}}",
    "{% print(hit()) %}",
    "'] || hit() || ['",
    "datum.x), hit(), (1",
    "\\'-hit()//",
    "\\u003cimg src=x onerror=hit()\\u003e",
    "&lt;img src=x onerror=hit()&gt;",
    '" autofocus onfocus=hit() x="',
    "' onmouseover='hit()' x='",
    "__proto__",
    "constructor",
    "engine",
    "scoreboard",
    "\u202e\u2066<b onclick=hit()>\u2069",
    "\u2028hit()\u2029",
    "\x1b]0;hit\x07\x1b[2J",
    "[/b][link=javascript:hit()]",
    "L0 H0",
    "\N{GRINNING FACE}" * 40,
    "",
)
FOUND = (
    "[onerror], [onload], [onclick], [onfocus], [onmouseover], [href^='javascript' i], [src^='javascript' i], iframe, object"
)
"""Elements that none of our pages has."""


# Fields


def fields_of(content: Any, path: str = "") -> Iterator[str]:
    """Every string and the keys of every dictionary in JSON, as paths without the numbers of items."""
    if isinstance(content, str):
        yield path
    elif isinstance(content, list):
        for each in content:
            yield from fields_of(each, f"{path}[]")
    elif isinstance(content, dict) and content:
        yield f"{path}{{}}"
        for key, value in content.items():
            yield from fields_of(value, f"{path}.{key}")


def filled(content: Any, chosen: dict[str, Text], path: str = "") -> Any:
    """JSON with the chosen fields filled with hostile text."""
    if isinstance(content, str):
        return chosen[path].of(content) if path in chosen else content
    if isinstance(content, list):
        return [filled(each, chosen, f"{path}[]") for each in content]
    if not isinstance(content, dict):
        return content
    own = {key: filled(value, chosen, f"{path}.{key}") for key, value in content.items()}
    keys = chosen.get(f"{path}{{}}")
    return {keys.of(key) + str(n): value for n, (key, value) in enumerate(own.items())} if keys else own


@dataclass
class Text:
    """Draws hostile text; `extends` keeps what was there in front of it."""

    draw: random.Random
    extends: bool

    def of(self, old: str) -> str:
        """Some hostile text."""
        return (old if self.extends else "") + self.draw.choice(TEXTS)


@dataclass
class Kind:
    """A type of run: a folder of it, and its fields, by file."""

    name: str
    folder: Path
    fields: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Find the fields of all files."""
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                file = str(path.relative_to(self.folder))
                ours = {"{}", ".text{}"} if path.suffix == ".nc" else set()  # keys that are not in the file
                self.fields += dict.fromkeys(f"{file}:{found}" for found in fields_of(_content(path)) if found not in ours)

    def hostile(self, chosen: dict[str, Text], to: Path) -> None:
        """Write a copy of the folder with the chosen fields filled, and hashes that fit."""
        to.mkdir(parents=True)
        names = [path for path in sorted(self.folder.rglob("*")) if path.is_file()]
        for path in sorted(names, key=lambda path: path.name == "summary.json"):
            file = str(path.relative_to(self.folder))
            mine = {key.removeprefix(f"{file}:"): text for key, text in chosen.items() if key.startswith(f"{file}:")}
            (to / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to / file)
            if mine or path.name == "summary.json":
                _write(to / file, filled(_content(path), mine), to)


def _content(path: Path) -> Any:
    """What a file holds, as JSON; nothing for files without text."""
    if path.suffix == ".json":
        found = json.loads(path.read_text(encoding="utf-8"))
        return {key: value for key, value in found.items() if key != runs.SEAL} if isinstance(found, dict) else found
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if path.suffix == ".safetensors":
        return {name: [] for name in runs.read_arrays(path)}
    if path.suffix == ".nc":
        found = runs.read_profile(path)
        text = {str(name): values.values.tolist() for name, values in found.variables.items() if values.dtype.kind in "SUO"}
        about = {str(name): dict(values.attrs) for name, values in found.variables.items()}
        return {"attrs": dict(found.attrs), "text": text, "about": about}
    return None


def _write(path: Path, content: Any, folder: Path) -> None:
    if path.name == "summary.json" and isinstance(content, dict) and isinstance(content.get("sha256"), dict):
        there = {name: runs.sha256(folder / name) for name in content["sha256"] if _inside(folder, name)}
        content = {**content, "sha256": content["sha256"] | there}
    if path.suffix == ".json":
        text = runs.sealed(content) if isinstance(content, dict) else json.dumps(content)
        path.write_text(text, encoding="utf-8")
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(line) + "\n" for line in content), encoding="utf-8")
    elif path.suffix == ".safetensors":
        arrays = runs.read_arrays(path)
        path.write_bytes(runs.packed_arrays(dict(zip(content, arrays.values(), strict=True))))
    else:
        found = runs.read_profile(path)
        found.attrs = content["attrs"]
        for name, about in zip(found.variables, content["about"].values(), strict=True):
            found[name].attrs = about
        for name, text in content["text"].items():
            found = found.assign_coords({name: (found[name].dims, text)})
        names = zip(found.variables, content["about"], strict=True)
        found.rename({old: new for old, new in names if old != new}).to_netcdf(path, engine="scipy")


def _inside(folder: Path, name: str) -> bool:
    try:
        return (folder / name).is_file()
    except (OSError, ValueError):
        return False


def kinds(at: Path) -> list[Kind]:
    """The smallest recorded run of every command, and a profile with all its files."""
    found: dict[str, tuple[int, Path]] = {}
    for path in sorted(RESULTS.glob("*/summary.json")):
        size = sum(file.stat().st_size for file in path.parent.rglob("*") if file.is_file())
        command = json.loads(path.read_text(encoding="utf-8"))["command"]
        if command in ("hostile", "page"):  # the records of sessions
            continue
        found[command] = min(found.get(command, (size, path.parent)), (size, path.parent))
    details = {"traces": trace_rows(), "path": path_rows(), "geometry": geometry_rows()}
    shutil.rmtree(at / "made", ignore_errors=True)
    config = {"model": {"source": "made", "weights": {"model.safetensors": "0"}}, "prompts": "made", "seed": 0}
    write_profile(
        at / "made", make_profile(inputs=4, layers=4, heads=2, planes=8), details, config=config, results={"model": "made"}
    )
    return [*(Kind(command, folder) for command, (_, folder) in found.items()), Kind("profile with its scores", at / "made")]


# Pages


@dataclass
class Shown:
    """One attempt to show a hostile folder."""

    kind: str
    fields: int
    refused: str = ""
    parts: int = 0
    """figures, films, choices of heads and playgrounds on the page"""
    opened: int = 0
    undrawn: int = 0
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)
    """of the page's own scripts, on data that they cannot show"""
    ran: list[str] = field(default_factory=list)


def attempt(kind: Kind, chosen: dict[str, Text], draw: random.Random, number: int, browser: Any) -> Shown:
    """Write pages, a chart and a notebook's output of a hostile folder, open them, and tell what ran."""
    shown = Shown(kind.name, len(chosen))
    with tempfile.TemporaryDirectory() as place:
        name = re.sub(r"[/\x00]", "", draw.choice(TEXTS))[:60] or "run"
        folder, page = Path(place) / "runs" / name, Path(place) / "page.html"
        try:
            kind.hostile(chosen, folder)  # netCDF cannot hold every name
            write_page([folder], page, title=draw.choice(TEXTS))
        except ValueError as refused:
            shown.refused = str(refused)
            shown.ran += ["refused in several lines"] if "\n" in str(refused) else []
            return shown
        shown.parts = len(re.findall(r'<figure class=|class="(?:film|picker|playground)"', page.read_text(encoding="utf-8")))
        files = [page]
        if number % 8 == 0:
            try:
                files += _others(folder, Path(place))
            except (LookupError, TypeError, ValueError, AttributeError) as error:  # as Python tells its own users
                shown.errors.append(f"notebook: {error!r}")
        for n, path in enumerate(files):
            text = path.read_text(encoding="utf-8")
            assert n == 2 or "Content-Security-Policy" in text, "a page without a policy"
            if number % 2:
                path.write_text(text.replace("Content-Security-Policy", "No-Policy", 1), encoding="utf-8")
            visit(path, browser, shown)
    return shown


def _others(folder: Path, place: Path) -> list[Path]:
    """The first chart of a run as a file, and the run in a notebook."""
    result, written = open_run(folder), []
    for name, figure in list(result.figures().items())[:1]:
        written.append(place / "chart.html")
        written[-1].write_text(chart_page(figure.chart, name), encoding="utf-8")
        notebook = result._repr_html_() + figure.chart._repr_mimebundle_()["text/html"]
        written.append(place / "notebook.html")
        written[-1].write_text(f"<!doctype html><meta charset=utf-8><body>{notebook}", encoding="utf-8")
    return written


WATCH = """
window.hits = [];
window.hit = () => hits.push("hit");
for (const name of ["alert", "confirm", "prompt", "open"]) window[name] = () => hits.push(name);
document.addEventListener("securitypolicyviolation", (event) => hits.push(`policy: ${event.violatedDirective}`));
"""
# Open, point at, focus and press what there is; a chart counts as undrawn if there is none after a while.
TOUR = """async () => {
  const rest = (time) => new Promise((done) => setTimeout(done, time));
  for (const part of document.querySelectorAll("details")) part.open = true;
  const figures = [...document.querySelectorAll("figure[data-chart]")];
  for (const figure of figures) {
    figure.scrollIntoView({ behavior: "instant" });
    for (let n = 0; n < 400 && !figure.querySelector(".plot.drawn svg, .plot p"); n++) await rest(25);
  }
  for (const mark of [...document.querySelectorAll("svg path, svg text")].filter((_, n) => n % 41 === 0).slice(0, 60))
    for (const kind of ["pointerover", "pointermove", "mousemove", "mouseover"])
      mark.dispatchEvent(new MouseEvent(kind, { bubbles: true, clientX: 5, clientY: 5 }));
  for (const part of [...document.querySelectorAll("a, button, select, input, [tabindex]")].slice(0, 80)) {
    part.focus({ preventScroll: true });
    if (part.matches("a[href^='#']")) part.click();
  }
  await rest(20);
  return figures.filter((figure) => !figure.querySelector(".plot.drawn svg")).length;
}"""


def visit(path: Path, browser: Any, shown: Shown) -> None:
    """Open a page, touch what is on it, and note whatever ran."""
    place = browser.new_context(offline=True)
    try:
        page = place.new_page()
        page.set_default_timeout(120_000)
        page.add_init_script(WATCH)
        page.on("dialog", lambda dialog: (shown.ran.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("pageerror", lambda error: shown.errors.append(str(error)))
        outside = ("http:", "https:", "ws:", "ftp:")
        page.on("request", lambda request: shown.ran.append(request.url) if request.url.startswith(outside) else None)
        page.goto(path.resolve().as_uri())
        if path.name == "notebook.html":  # Altair loads Vega from the network: what counts is that nothing else is done
            page.wait_for_timeout(50)
            shown.ran[:] = [what for what in shown.ran if "cdn.jsdelivr.net" not in what]
        else:
            shown.undrawn += page.evaluate(TOUR)
        shown.ran += page.evaluate("window.hits")
        shown.ran += [f"element {found}" for found in page.evaluate(f"[...document.querySelectorAll(`{FOUND}`)].map(String)")]
        shown.opened += 1
    finally:
        place.close()


# A session


@dataclass
class Session:
    """What was tried so far: whether a field was shown in place of the old text, after it, alone, or refused."""

    tried: dict[str, dict[str, str]] = field(default_factory=dict)
    shown: list[Shown] = field(default_factory=list)
    queues: dict[str, list[list[list[str]]]] = field(default_factory=dict)
    """by type, batches of fields with how they are filled"""
    parts: dict[str, int] = field(default_factory=dict)
    """by type, parts of the page of the run as it is recorded"""

    def chosen(self, kind: Kind, draw: random.Random) -> tuple[dict[str, Text], list[list[str]]]:
        """The fields of the next page, and those of them that were not tried before."""
        if kind.name not in self.queues:
            waiting = [[each, "replaced"] for each in kind.fields]
            self.queues[kind.name] = [[], *(waiting[n : n + BATCH] for n in range(0, len(waiting), BATCH))]
        known = {key: how for key, how in self.tried.setdefault(kind.name, {}).items() if how in ("replaced", "extended")}
        queue = self.queues[kind.name]
        batch = queue.pop(0) if queue else []
        return {key: Text(draw, how == "extended") for key, how in [*known.items(), *batch]}, batch

    def learn(self, kind: Kind, batch: list[list[str]], shown: Shown) -> None:
        """Halve a batch that was refused; a single field is then tried after the old text, and then given up."""
        tried, queue = self.tried[kind.name], self.queues[kind.name]
        whole = shown.parts >= self.parts.setdefault(kind.name, shown.parts)
        if not shown.refused and whole:
            tried.update(dict(batch))
        elif len(batch) > 1:
            queue[:0] = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
        elif batch and not shown.refused:
            tried[batch[0][0]] = "alone"
        elif batch and batch[0][1] == "replaced":
            queue.insert(0, [[batch[0][0], "extended"]])
        elif batch:
            tried[batch[0][0]] = "refused"

    def seconds(self, kind: Kind) -> float:
        """Seconds that pages of a type have taken."""
        return sum(one.seconds for one in self.shown if one.kind == kind.name)

    def counted(self, kind: Kind) -> dict[str, int]:
        """Counts for one type of run."""
        mine, how = [one for one in self.shown if one.kind == kind.name], list(self.tried.get(kind.name, {}).values())
        return {
            "fields": len(kind.fields),
            "shown": sum(each != "refused" for each in how),
            "refused": how.count("refused"),
            "pages": sum(not one.refused for one in mine),
            "opened": sum(one.opened for one in mine),
            "refusals": sum(bool(one.refused) for one in mine),
            "undrawn": sum(one.undrawn for one in mine),
            "errors": sum(len(one.errors) for one in mine),
            "ran": sum(len(one.ran) for one in mine),
        }


def play(pages: int, at: Path, seed: int, browser: Any, all_kinds: list[Kind]) -> Iterator[Session]:
    """The session as it is found and after every attempt, until as many pages are opened as wanted."""
    kept, session = at / "pages.json", Session()
    if kept.exists():
        found = runs.read_sealed(kept)
        session = Session(found["tried"], [Shown(**one) for one in found["shown"]], found["queues"], found["parts"])
    yield session
    while sum(one.opened for one in session.shown) < pages:
        number = len(session.shown)
        draw = random.Random(f"{seed} {number}")
        untried = [kind for kind in all_kinds if session.queues.get(kind.name, [[]])]
        # Types take turns while there are fields to try; later each gets the same time, so that small ones have more pages.
        kind = untried[number % len(untried)] if untried else min(all_kinds, key=session.seconds)
        chosen, batch = session.chosen(kind, draw)
        began = time.monotonic()
        shown = attempt(kind, chosen, draw, number, browser)
        shown.seconds = round(time.monotonic() - began, 3)
        session.learn(kind, batch, shown)
        session.shown.append(shown)
        if number % 10 == 9:
            runs.write_whole(kept, runs.sealed(asdict(session), indent=1))
        yield session
    runs.write_whole(kept, runs.sealed(asdict(session), indent=1))


def main() -> None:
    """Parse, run, show."""
    from browser import running  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("out/hostile"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a type of run")
    asked = parser.parse_args()
    with runs.locked(asked.out), running() as browser:
        at = asked.out.resolve()
        types = [kind for kind in kinds(at) if asked.only in kind.name]
        for session in play(asked.pages, at, asked.seed, browser, types):
            if session.shown:
                print(_line(session, asked.pages), flush=True)
        rows = {kind.name: session.counted(kind) for kind in types}
        results = rows | {"all": {key: sum(row[key] for row in rows.values()) for key in next(iter(rows.values()))}}
        runs.write_whole(at / "fields.json", json.dumps(session.tried, indent=1) + "\n")
        runs.write_summary(at, "hostile", {"pages": asked.pages, "seed": asked.seed}, results, ["fields.json"])
    print(json.dumps(results["all"]))
    sys.exit(1 if results["all"]["ran"] else 0)


def _line(session: Session, pages: int) -> str:
    """What the last attempt came to, in one line."""
    one, done = session.shown[-1], sum(each.opened for each in session.shown)
    said = f"refused: {one.refused[-100:]}" if one.refused else f"{one.opened} opened"
    return f"{done} of {pages}: {one.kind}, {one.fields} fields: {said} {'; '.join(one.ran + one.errors)}"[:300]


if __name__ == "__main__":
    main()
