"""One script from ES modules."""

import re
import shutil
import subprocess

import pytest

from ropescope.html import ASSETS
from ropescope.html.modules import joined


def folder(tmp_path, **modules):
    for name, code in modules.items():
        (tmp_path / f"{name}.js").write_text(code)
    return tmp_path


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_modules_run_once_each_in_the_order_of_their_imports(tmp_path):
    made = folder(
        tmp_path,
        main='import { twice } from "./twice.js";\nimport {\n  log,\n  Log,\n} from "./log.js";\n'
        "log(`main ${twice(4)} ${Log.many}`);\n",
        twice='import { log } from "./log.js";\nconst hidden = 2;\nexport const twice = (x) => hidden * x;\nlog("twice");\n',
        log="const hidden = console;\nexport function log(text) {\n  hidden.log(text);\n}\n"
        'export class Log {\n  static many = 1;\n}\nexport async function later() {}\nlog("log");\n',
        unused='throw new Error("not imported");\n',
    )
    done = subprocess.run(["node", "-"], input=joined(made), capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["log", "twice", "main 8 1", ""]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ('import { nothing } from "./one.js";', "main.js imports nothing, which one.js does not export"),
        ('import { main } from "./main.js";\nexport const main = 1;', "in a circle: main.js -> main.js"),
        ('import { back } from "./circle.js";\nexport const forth = 1;', "in a circle: main.js -> circle.js -> main.js"),
        ('import * as one from "./one.js";', "cannot be joined: import . as one"),
        ('import { one } from "elsewhere";', "cannot be joined: import { one } from .elsewhere"),
        ('import "./one.js";', "cannot be joined: import ./one.js"),
        ("export default 1;", "cannot be joined: export default 1"),
        ("const x = 1;\nexport { x };", "cannot be joined: export { x }"),
        ("export let x = 1;", "cannot be joined: export let x"),
        ('const x = "</SCRIPT>";', "main.js contains </SCRIPT, which cannot stand in a script element"),
        ('const x = "<!--";', "main.js contains <!--"),
    ],
)
def test_what_cannot_be_joined_is_refused(tmp_path, code, said):
    made = folder(tmp_path, main=code + "\n", one="export const one = 1;\n", circle='import { forth } from "./main.js";\n')
    with pytest.raises(ValueError, match=said.replace("import ./one", 'import "./one').replace("*", "[*]")):
        joined(made)


@pytest.mark.parametrize(("name", "entries"), [("page", ["main.js", "chart.js", "inframe.js"]), ("playground", ["main.js"])])
def test_every_module_of_the_page_is_used(name, entries):
    scripts = [joined(ASSETS / name, entry) for entry in entries]
    used = {found for script in scripts for found in re.findall(r'^modules\["(.*?)"\] =', script, re.MULTILINE)}
    assert sorted(used) == sorted(path.name for path in (ASSETS / name).glob("*.js"))
