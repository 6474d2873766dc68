"""Run folders full of hostile text, shown in Chromium: nothing of it may run.

    python -m tests.hostile --pages 1000 --out out/hostile

The runs have every field of every run type (hostile_fields.py). A batch of fields that were not tried yet is filled with
hostile text, beside all fields that pages have shown before. A folder that is refused must be refused in one sentence; its
batch is then halved until single fields remain. The same is done if a page lacks figures, as if the type of the run is changed:
such a field is filled alone, so that it does not hide others. Once every field is tried, text is drawn anew for all that can be
shown. Every second page is opened without its policy, so that escaping has to hold alone. A session can be resumed; it then
tries fields that are new, too.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from hostile_fields import TEXTS, Kind, Text, kinds, ways  # noqa: E402

from ropescope import runs  # noqa: E402
from ropescope.api import open_run  # noqa: E402
from ropescope.charts import chart_page  # noqa: E402
from ropescope.report.page import write_page  # noqa: E402

BATCH = 64
"""Fields that are first tried together."""
FOUND = (
    "[onerror], [onload], [onclick], [onfocus], [onmouseover], [href^='javascript' i], [src^='javascript' i], iframe, object"
)
"""Elements that none of our pages has."""


# Pages


@dataclass
class Shown:
    """One attempt to show a hostile folder."""

    command: str
    run: str
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
    shown = Shown(kind.command, kind.name, len(chosen))
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
    fields = {f"hit {text.number}": f"hit {name}" for name, text in chosen.items()}
    shown.ran = [fields.get(what, what) for what in shown.ran]
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
window.hit = (number) => hits.push(`hit ${number}`);
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

TOGETHER = ("replaced", "extended", "added")
"""How fields are filled that do not hide others."""


@dataclass
class Session:
    """What was tried so far."""

    tried: dict[str, dict[str, str]] = field(default_factory=dict)
    """by type and field, how a page has shown it: replaced, extended, added, alone, or refused"""
    shown: list[Shown] = field(default_factory=list)
    queues: dict[str, list[list[list[str]]]] = field(default_factory=dict)
    """by run, batches of fields with how they are filled"""
    parts: dict[str, int] = field(default_factory=dict)
    """by run, parts of its page as it is recorded"""

    def meet(self, kind: Kind) -> None:
        """Queue those fields of a run that were never tried, after a page of the run as it is."""
        tried, queue = self.tried.setdefault(kind.command, {}), self.queues.setdefault(kind.name, [])
        known = {*tried, *(name for batch in queue for name, _ in batch)}
        waiting = [[name, ways(name)[0]] for name in kind.fields if name not in known]
        if waiting:
            self.parts.pop(kind.name, None)
            queue.insert(0, [])
        queue += [waiting[n : n + BATCH] for n in range(0, len(waiting), BATCH)]

    def chosen(self, kind: Kind, draw: random.Random) -> tuple[dict[str, Text], list[list[str]]]:
        """The fields of the next page, and those of them that were not tried before."""
        queue = self.queues[kind.name]
        as_it_is = queue[:1] == [[]]
        batch = queue.pop(0) if queue else []
        known = [(name, how) for name, how in self.tried[kind.command].items() if how in TOGETHER and not as_it_is]
        filled = [*known, *batch]
        return {name: Text(draw, how, number) for number, (name, how) in enumerate(filled)}, batch

    def learn(self, kind: Kind, batch: list[list[str]], shown: Shown) -> None:
        """Halve a batch that was refused; a single field is then filled in the next way, and then given up."""
        tried, queue = self.tried[kind.command], self.queues[kind.name]
        whole = shown.parts >= self.parts.setdefault(kind.name, shown.parts)
        if not shown.refused and whole:
            tried.update(dict(batch))
        elif len(batch) > 1:
            queue[:0] = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
        elif batch:
            (name, how), all_ways = batch[0], ways(batch[0][0])
            if shown.refused and how != all_ways[-1]:
                queue.insert(0, [[name, all_ways[all_ways.index(how) + 1]]])
            else:
                tried[name] = "refused" if shown.refused else "alone"

    def seconds(self, kind: Kind) -> float:
        """Seconds that pages of a run have taken."""
        return sum(one.seconds for one in self.shown if one.run == kind.name)

    def counted(self, command: str, fields: int) -> dict[str, int]:
        """Counts for one type of run."""
        mine, how = [one for one in self.shown if one.command == command], list(self.tried.get(command, {}).values())
        return {
            "fields": fields,
            "shown": sum(each != "refused" for each in how),
            "refused": how.count("refused"),
            "pages": sum(not one.refused for one in mine),
            "opened": sum(one.opened for one in mine),
            "refusals": sum(bool(one.refused) for one in mine),
            "undrawn": sum(one.undrawn for one in mine),
            "errors": sum(len(one.errors) for one in mine),
            "ran": sum(len(one.ran) for one in mine),
        }


def play(
    pages: int, at: Path, seed: int, browser: Any, all_kinds: list[Kind], tried: dict[str, dict[str, str]] | None = None
) -> Iterator[Session]:
    """The session as it is found and after every attempt, until every field is tried and as many pages are opened as wanted.

    tried  fields that an earlier session has tried, by type
    """
    kept, session = at / "pages.json", Session(tried or {})
    if kept.exists():
        found = runs.read_sealed(kept)
        session = Session(found["tried"], [Shown(**one) for one in found["shown"]])
    for kind in all_kinds:
        session.meet(kind)
    yield session
    while sum(one.opened for one in session.shown) < pages or any(session.queues.values()):
        number = len(session.shown)
        draw = random.Random(f"{seed} {number}")
        untried = [kind for kind in all_kinds if session.queues[kind.name]]
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
    parser.add_argument("--after", type=Path, help="folder of an earlier session: only fields that it did not try are new")
    asked = parser.parse_args()
    with runs.locked(asked.out), running() as browser:
        at = asked.out.resolve()
        types = [kind for kind in kinds(at) if asked.only in kind.command]
        tried = json.loads((asked.after / "fields.json").read_text(encoding="utf-8")) if asked.after else None
        for session in play(asked.pages, at, asked.seed, browser, types, tried):
            if session.shown:
                print(_line(session, asked.pages), flush=True)
        fields = Counter({kind.command: 0 for kind in types})
        for kind in types:
            fields[kind.command] += len(kind.fields)
        rows = {command: session.counted(command, count) for command, count in fields.items()}
        results = rows | {"all": {key: sum(row[key] for row in rows.values()) for key in next(iter(rows.values()))}}
        runs.write_whole(at / "fields.json", json.dumps(session.tried, indent=1) + "\n")
        config = {"pages": asked.pages, "seed": asked.seed, "runs": [kind.name for kind in types]}
        runs.write_summary(at, "hostile", config, results, ["fields.json"])
    print(json.dumps(results["all"]))
    sys.exit(1 if results["all"]["ran"] else 0)


def _line(session: Session, pages: int) -> str:
    """What the last attempt came to, in one line."""
    one, done = session.shown[-1], sum(each.opened for each in session.shown)
    said = f"refused: {one.refused[-100:]}" if one.refused else f"{one.opened} opened"
    return f"{done} of {pages}: {one.run}, {one.fields} fields: {said} {'; '.join(one.ran + one.errors)}"[:300]


if __name__ == "__main__":
    main()
