"""What tests of pages in a browser share."""

from pathlib import Path

from browser import until

RESULTS = Path(__file__).parents[1] / "results"
PROFILE, TRAINING = "profile-smollm2-135m", "number-0"
WIDER = "document.documentElement.scrollWidth > innerWidth"

# Marks of a chart as they are drawn, once it has come to rest: their kind, their data, where they are, and their stroke.
MARKS = """async (id) => {
  const found = [], { view } = document.getElementById(id);
  await view.runAsync();
  const visit = (item) => {
    if (item.items) item.items.forEach(visit);
    else if (item.datum && !item.datum.mark) found.push([item.mark.marktype, item.datum, item.x, item.y, item.stroke]);
  };
  visit(view.scenegraph().root);
  return JSON.parse(JSON.stringify(found.filter(([kind]) => kind !== "group")));
}"""

# Where in the window the mark of a head is.
PLACE = """([id, name]) => {
  const figure = document.getElementById(id), svg = figure.querySelector("svg");
  svg.scrollIntoView({ block: "center", behavior: "instant" });
  let at = null;
  const visit = (item, x, y) => {
    if (item.items && !["symbol", "rect"].includes(item.marktype)) {
      const [dx, dy] = item.marktype ? [0, 0] : [item.x ?? 0, item.y ?? 0];
      item.items.forEach((one) => visit(one, x + dx, y + dy));
    } else if (item.items) {
      const one = item.items.find((one) => one.datum?.name === name);
      if (one) at ??= [x + one.x + (one.width ?? 0) / 2, y + one.y + (one.height ?? 0) / 2];
    }
  };
  visit(figure.view.scenegraph().root, 0, 0);
  const box = svg.getBoundingClientRect(), origin = figure.view.origin();
  const scale = box.width / svg.viewBox.baseVal.width;
  return [box.left + (origin[0] + at[0]) * scale, box.top + (origin[1] + at[1]) * scale];
}"""

# Every chart that is on the page has taken in what was chosen, and the page was painted after it.
REST = """async () => {
  for (const figure of document.querySelectorAll("figure")) await figure.view?.runAsync();
  for (let n = 0; n < 2; n++) await new Promise((done) => requestAnimationFrame(done));
}"""


def draw_all(page):
    """Scroll through the page until every chart is drawn."""
    page.evaluate("for (const part of document.querySelectorAll('details:has(.run), .run > .fold')) part.open = true")
    page.evaluate("Promise.all([...document.querySelectorAll('.playground')].map((one) => one.play()))")
    for figure in page.locator("figure[data-chart]").all():
        figure.evaluate("part => part.scrollIntoView({ behavior: 'instant' })")
        figure.locator(".plot.drawn:not(.stale) svg").wait_for()
    page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")


def shows_head(page, run, name):
    """Wait until the chart of one head shows this one."""
    until(page, f"document.getElementById('{run}-head').view.signal('picked') === '{name}'")
    page.evaluate(REST)


def pick(page, run, layer, head):
    page.select_option(f"#{run}--layer", str(layer))
    page.select_option(f"#{run}--head", str(head))
    shows_head(page, run, f"L{layer} H{head}")


def steady_place(page, figure, name):
    """Where the mark of a head is once charts have redrawn themselves and nothing moves any more."""
    seen = [None]
    while len(seen) < 2 or seen[-1] != seen[-2]:
        assert len(seen) < 100, "the page never comes to rest"
        page.evaluate(REST)
        seen.append(page.evaluate(PLACE, [figure, name]))
    return seen[-1]
