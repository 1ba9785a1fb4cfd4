"""What the README promises is run, not read."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.slow
def test_the_ten_lines_of_the_readme_run_as_they_stand(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert "study.run(steps=11)" in code
    script = tmp_path / "example.py"
    # Fewer steps, or the test would take minutes; nothing else is changed.
    script.write_text(code.replace("study.run(steps=11)", "study.run(steps=1)"))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert "class ModelNew" in done.stdout


def test_every_make_command_that_the_readme_names_exists():
    makefile = (README.parent / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README.read_text(), re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target
