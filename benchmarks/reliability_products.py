"""What leaves this package and must be clean: a planted key in any product, active markup in a report."""

from __future__ import annotations

import base64
import dataclasses
import html.parser
import importlib.util
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelevolve.testing import villains

VARIABLES = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_OWN_TOKEN")

NOSY = '''
import os

def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        return str(error)

def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])

found = [dict(os.environ), read("/proc/self/environ")]
pid = os.getpid()
for _ in range(3):  # the process server, the user's own process, and what started that
    try:
        pid = parent(pid)
        found.append(read(f"/proc/{pid}/environ"))
    except OSError as error:
        found.append(str(error))
print(found)
with open("found.txt", "w") as file:
    file.write(repr(found))
'''
"""Prints and keeps every environment that it can reach."""

DRIVER = '''
import logging, sys
from pathlib import Path
logging.basicConfig(level="DEBUG", filename=sys.argv[2] + "/driver.log")
from kernelevolve import Settings, Study, errors
place, level, platform, nosy, copy = sys.argv[1], sys.argv[3], sys.argv[4], sys.argv[5], sys.argv[6]
settings = Settings(isolation=level, baselines=("eager",), keep=True, time_s=0.1, read_source=False)
with Study(place + "/problem.py", name="planted", workspace=place + "/workspace", platform=platform,
           settings=settings) as study:
    for source in (nosy, copy):
        node = study.submit(Path(source))
        print(node.status.value, node.result.detail)
    print(study)
    try:
        raise errors.SettingError(f"the settings are {settings}")
    except errors.SettingError:
        logging.exception("an error on purpose")
try:
    from kernelevolve.report import report
    report("planted", place + "/workspace", place + "/report.html")
except ImportError as error:
    print("no report:", error)
'''


def planted_key(platform: str, level: str) -> list[dict[str, Any]]:
    """Plant a random key in the environment of a whole study, then look for it in every byte that was produced."""
    missing = [name for name in ("duckdb",) if importlib.util.find_spec(name) is None]
    row: dict[str, Any] = {"figure": "Planted key found in any product", "lane": platform, "isolation": level,
                           "target": "0"}
    if missing:
        return [{**row, "value": "not run", "note": f"a study needs {missing[0]}, which is not installed here"}]
    key = "sk-planted-" + secrets.token_hex(24)
    with tempfile.TemporaryDirectory(prefix="kernelevolve-planted-") as name:
        place, logs = Path(name), Path(name) / "logs"
        (place / "scratch").mkdir()
        logs.mkdir()
        source = villains.problem_source()
        copy = source.replace("class Model(", "class ModelNew(")
        for file, text in (("problem.py", source), ("nosy.py", NOSY + copy), ("copy.py", copy)):
            (place / file).write_text(text, encoding="utf-8")
        environment = {**os.environ, **dict.fromkeys(VARIABLES, key), "TMPDIR": str(place / "scratch"),
                       "KERNELEVOLVE_LOG": "DEBUG"}
        commands = {
            "study": [sys.executable, "-c", DRIVER, name, str(logs), level, platform, str(place / "nosy.py"),
                      str(place / "copy.py")],
            "doctor": [sys.executable, "-m", "kernelevolve", "doctor", "--json"],
            "show": [sys.executable, "-m", "kernelevolve", "show", "planted", "1", "--json", "-w",
                     str(place / "workspace")],
        }
        codes = {}
        for what, command in commands.items():
            done = subprocess.run(command, env=environment, capture_output=True, timeout=300)
            (logs / f"{what}.out").write_bytes(done.stdout)
            (logs / f"{what}.err").write_bytes(done.stderr)
            codes[what] = done.returncode
        products = sorted(path for path in place.rglob("*") if path.is_file())
        kept = sum(path.name == "found.txt" for path in products)
        hits = [str(path.relative_to(place)) for path in products if holds(path.read_bytes(), key)]
        told = (logs / "study.out").read_text(errors="replace").split("\n", 1)[0]
    broken = [what for what, code in codes.items() if code]
    note = f"{len(products)} files and outputs searched; a candidate that prints every environment it reaches: {told}"
    if broken or not kept:
        note = f"not a fair trial: {', '.join(broken) or 'the candidate kept nothing'}; {note}"
    if hits:
        note = f"in {', '.join(hits[:6])}; {note}"
    return [{**row, "value": str(len(hits)), "n": len(products), "ok": "no" if hits or broken or not kept else "yes",
             "note": note}]


def holds(data: bytes, key: str) -> bool:
    """Whether the key is in there: as it is, or as hex, base64 (at any offset), or wide characters."""
    plain = key.encode()
    middles = [base64.b64encode(b"x" * shift + plain)[4:-4] for shift in range(3)]
    return any(needle in data for needle in (plain, plain.hex().encode(), key.encode("utf-16-le"), *middles))


PAYLOADS = (
    "<script>alert(1)</script>", "<ScRiPt>alert(1)</sCrIpT>", "</script><script>alert(1)</script>",
    "</title><script>alert(1)</script>", "</style><script>alert(1)</script>", "</textarea><script>alert(1)</script>",
    "--><script>alert(1)</script>", "]]><script>alert(1)</script>", "'\"><script>alert(1)</script>",
    "<script src=//evil.example/x.js></script>", "<script type=module>import '//evil.example/x.js'</script>",
    "<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)//", "<IMG SRC=javascript:alert(1)>",
    "<svg onload=alert(1)>", "<svg><script>alert(1)</script></svg>", "<svg><a href='javascript:alert(1)'>x</a></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>", "<math><mtext></mtext><script>alert(1)</script></math>",
    "<iframe src='http://evil.example/'></iframe>", "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<object data='http://evil.example/'></object>", "<embed src='http://evil.example/'>",
    "<link rel=stylesheet href='http://evil.example/x.css'>", "<style>@import url(http://evil.example/x.css)</style>",
    "<base href='http://evil.example/'>", "<meta http-equiv='refresh' content='0;url=http://evil.example'>",
    "<form action='http://evil.example'><input name=x></form>", "<button formaction=javascript:alert(1)>x</button>",
    "<a href='javascript:alert(1)'>x</a>", "<a href='java&#x09;script:alert(1)'>x</a>",
    "<a href='data:text/html,<script>alert(1)</script>'>x</a>", "[x](javascript:alert(1))",
    "![x](http://evil.example/x.png)", "<details open ontoggle=alert(1)>", "<video><source onerror=alert(1)></video>",
    "<input autofocus onfocus=alert(1)>", "<body onload=alert(1)>", "<template><script>alert(1)</script></template>",
    "<div style='background:url(http://evil.example/x.png)'>x</div>",
)
"""Forty ways to make a page run or fetch something."""

ACTIVE_TAGS = {"iframe", "object", "embed", "form", "input", "button", "base", "link", "svg", "math", "template",
               "video", "audio", "source", "body ", "animate"}


class Audit(html.parser.HTMLParser):
    """What in a page could run or fetch."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.scripts = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.scripts += tag == "script" and values.get("type") != "application/json"
        if tag in ACTIVE_TAGS or (tag == "meta" and values.get("http-equiv", "").lower() == "refresh"):
            self.found.append(f"<{tag}>")
        for name, value in values.items():
            address = "".join(value.split()).lower()
            if name.startswith("on") or address.startswith(("javascript:", "vbscript:", "data:text")):
                self.found.append(f"<{tag} {name}>")
            if name in ("src", "srcset", "href", "data", "poster") and "evil.example" in address:
                self.found.append(f"<{tag} {name}={value}>")
            if name == "style" and "evil.example" in address:
                self.found.append(f"<{tag} style>")


def active_markup() -> list[dict[str, Any]]:
    """Put every payload into every text that a problem, a candidate or a model chooses, and read the report."""
    row: dict[str, Any] = {"figure": "Active markup in a report from 40 payloads", "lane": "any", "isolation": "any",
                           "target": "0", "n": len(PAYLOADS)}
    missing = [n for n in ("duckdb", "plotly", "nbconvert") if importlib.util.find_spec(n) is None]
    if missing:
        return [{**row, "value": "not run", "n": 0, "note": f"a report needs {', '.join(missing)}: not installed here"}]
    from kernelevolve.report import report
    from kernelevolve.store import Workspace
    from kernelevolve.testing import synthetic

    with tempfile.TemporaryDirectory() as name:
        evil = "\n".join(PAYLOADS)
        problem = dataclasses.replace(synthetic.problem(), id=evil, suite_version=evil, weak=evil, path=evil)
        space = Workspace(Path(name) / "workspace")
        synthetic.write(space, "plain", synthetic.nodes(6, failing=0.4))
        synthetic.write(space, PAYLOADS[0], list(hostile(evil)), problem_=problem)
        pages = [report(study, space, Path(name) / f"{i}.html").read_text("utf-8")
                 for i, study in enumerate(space.studies())]
    usual, audit = sorted((Audit(page) for page in pages), key=lambda a: (a.scripts, len(a.found)))
    found = [*audit.found, *["<script>"] * (audit.scripts - usual.scripts)]
    told = sum(page.count("evil.example") for page in pages)
    return [{**row, "value": str(len(found)), "ok": "no" if found or not told else "yes",
             "note": ", ".join(found[:6]) or f"all of them readable as text ({told} mentions of evil.example)"}]


def hostile(evil: str) -> Iterator[Any]:
    """A study's nodes with `evil` in every text."""
    from kernelevolve.testing import synthetic

    for node in synthetic.nodes(6, failing=0.4):
        selection = dataclasses.replace(node.proposal.selection, reason=evil, policy=evil)
        proposal = dataclasses.replace(node.proposal, source=f"{node.source}\n# {evil}", rationale=evil, move=evil,
                                       language=evil, operator=evil, selection=selection)
        diagnosis = node.result.diagnosis and dataclasses.replace(node.result.diagnosis, summary=evil, causes=(evil,))
        wrong = tuple(dataclasses.replace(e, trial=evil) for e in node.result.errors)
        result = dataclasses.replace(node.result, proposal=proposal, detail=evil, log=evil, diagnosis=diagnosis,
                                     errors=wrong, profile={"note": evil, evil: 1})
        yield dataclasses.replace(node, result=result)
