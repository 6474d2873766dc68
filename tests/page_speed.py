"""How fast the page of all recorded runs opens, with both cores of the machine busy, and whether it complains.

    python -m tests.page_speed --loads 20 --out results/page

Every load is a new context of the browser, from a file and without network. First paint is what the browser reports; usable
means that the live picture can be moved and that the first chart is drawn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from ropescope import runs  # noqa: E402
from ropescope.report.page import write_page  # noqa: E402

LIVE = "Boolean(document.querySelector('.duet')?.duet)"
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
CHART = "performance.getEntriesByName('ropescope:first-chart')[0]?.startTime ?? null"
READY = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
BUSY = "while True: pass"


def load(path: Path) -> dict[str, Any]:
    """Milliseconds of one load, and what the page complained about."""
    from browser import opened, until  # noqa: PLC0415

    with opened(path, viewport={"width": 1280, "height": 800}) as (page, complaints):
        until(page, LIVE)
        until(page, f"({PAINT}) !== null")
        page.locator(".finding").nth(1).scroll_into_view_if_needed()
        until(page, f"({CHART}) !== null")
        page.wait_for_timeout(300)
        found = {"first_paint": page.evaluate(PAINT), "live": page.evaluate(READY), "first_chart": page.evaluate(CHART)}
        return found | {"complaints": list(complaints)}


def measured(path: Path, loads: int, busy: int) -> dict[str, Any]:
    """Medians and largest of several loads, while as many processes as `busy` do nothing but compute."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    try:
        found = [load(path) for _ in range(loads)]
    finally:
        for other in others:
            other.kill()
    times = {name: [round(one[name]) for one in found] for name in ("first_paint", "live", "first_chart")}
    complaints = [text for one in found for text in one["complaints"]]
    summary = {name: {"median": median(each), "most": max(each)} for name, each in times.items()}
    return {"loads": loads, "busy": busy, "complaints": len(complaints), "texts": complaints[:5], "milliseconds": summary}


def main() -> None:
    """Parse, run, show."""
    from browser import running  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=int, default=20)
    parser.add_argument("--runs", type=Path, default=HERE.parent / "results")
    parser.add_argument("--out", type=Path, default=Path("out/page"))
    asked = parser.parse_args()
    with runs.locked(asked.out), tempfile.TemporaryDirectory() as place, running():
        began = time.perf_counter()
        page = write_page([asked.runs], Path(place) / "page.html")
        results = {"bytes": page.stat().st_size, "seconds_to_write": round(time.perf_counter() - began, 1)}
        results |= {"runs": len(runs.find_runs([asked.runs]))}
        results |= {"as it is": measured(page, 5, 0), "both cores busy": measured(page, asked.loads, 2)}
        runs.write_summary(asked.out, "page", {"loads": asked.loads, "window": [1280, 800]}, results, [])
    print(json.dumps(results, indent=1))
    sys.exit(1 if results["both cores busy"]["complaints"] else 0)


if __name__ == "__main__":
    main()
