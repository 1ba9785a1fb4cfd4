"""What a user meets when a problem file cannot be used: one kind of mistake per test."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest

import kernelevolve.problems as problems
from kernelevolve import errors, records

HEAD = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def write(folder: Path, source: str, name: str = "problem.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(source))
    return path


def write_forward(folder: Path, body: str, inputs: str = "torch.randn(4, 6)", extra: str = "") -> Path:
    body = "\n        ".join(textwrap.dedent(body).strip().splitlines())
    source = HEAD.format(body=body, inputs=inputs)
    return write(folder, source + textwrap.dedent(extra))


def refusal(path: Path, **kwargs: float) -> str:
    with pytest.raises(errors.ProblemError) as caught:
        problems.load(path, **kwargs)
    text = str(caught.value)
    assert text.startswith(str(path)), "the message begins with the file"
    assert re.match(r":\d+: ", text.removeprefix(str(path))), "and the line"
    return text.removeprefix(str(path))


def test_a_sound_file_becomes_a_problem(tmp_path: Path) -> None:
    path = write(tmp_path, """
        import torch

        rows = 8
        TOLERANCE = 2
        BACKWARD = True
        CASES = {"tuned": {"rows": 8}, "more": {"rows": 100}}

        class Model(torch.nn.Module):
            def __init__(self, width):
                super().__init__()
                self.linear = torch.nn.Linear(width, 3)

            def forward(self, x):
                return self.linear(x)

        class Product(Model):
            def forward(self, x):
                return x @ self.linear.weight.T + self.linear.bias

        REFERENCES = {"product": Product}

        def get_inputs():
            return [torch.randn(rows, 5)]

        def get_init_inputs():
            return [5]
    """)
    problem = problems.load(path)
    assert problem.id == "file/problem"
    assert problem.source == path.read_text()
    assert problem.inputs == (records.TensorSpec((8, 5), "float32", "input0"),)
    assert problem.outputs == (records.TensorSpec((8, 3), "float32", "output"),)
    assert [p.shape for p in problem.parameters] == [(3, 5), (3,)]
    assert (problem.cases, problem.references) == (("tuned", "more"), ("product",))
    assert (problem.tolerance, problem.backward, problem.weak) == (2.0, True, "")
    assert problem.flops == 2 * 8 * 5 * 3
    assert problem.bytes_min == 4 * (8 * 5 + 3 * 5 + 3 + 8 * 3)
    assert re.fullmatch("[0-9a-f]{32}", problem.code_hash)


def test_the_file_does_not_run_in_the_callers_process(tmp_path: Path) -> None:
    path = write_forward(tmp_path, "return x * 2", extra="import sys\nsys.kernelevolve_was_here = True\n")
    problems.load(path)
    assert not hasattr(sys, "kernelevolve_was_here")


def test_a_syntax_error_is_named_with_its_line(tmp_path: Path) -> None:
    text = refusal(write(tmp_path, "import torch\n\ndef get_inputs(:\n    return []\n"))
    assert text.startswith(":3: syntax error")
    assert "def get_inputs(:" in text


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    text = refusal(write(tmp_path, "import torch\nimport no_such_package_xyz\n"))
    assert text.startswith(":2: import raised ModuleNotFoundError")
    assert "no_such_package_xyz" in text
    assert "install" in text


def test_an_exception_at_import_is_named_with_its_line(tmp_path: Path) -> None:
    text = refusal(write(tmp_path, "import torch\nsize = 4\nratio = size / 0\n"))
    assert text.startswith(":3: import raised ZeroDivisionError")


def test_an_exit_at_import_is_no_success(tmp_path: Path) -> None:
    assert "SystemExit" in refusal(write(tmp_path, "import sys\nsys.exit(0)\n"))


@pytest.mark.parametrize("name", ["Model", "get_inputs", "get_init_inputs"])
def test_a_missing_name_is_named(tmp_path: Path, name: str) -> None:
    source = HEAD.format(body="return x * 2", inputs="torch.randn(4)").replace(name, name + "_")
    text = refusal(write(tmp_path, source))
    assert f"no {name} in this file; expected" in text
    assert f"did you mean {name}_?" in text


def test_a_model_that_is_no_module_is_refused(tmp_path: Path) -> None:
    source = HEAD.format(body="return x * 2", inputs="torch.randn(4)").replace("(torch.nn.Module)", "")
    assert "expected a torch.nn.Module class" in refusal(write(tmp_path, source))


def test_a_forward_with_another_number_of_arguments_is_refused_at_its_line(tmp_path: Path) -> None:
    text = refusal(write_forward(tmp_path, "return x * 2", inputs="torch.randn(4), torch.randn(4)"))
    assert text.startswith(":4: Model.forward(x) cannot take the 2 values of get_inputs")


def test_a_constructor_with_another_number_of_arguments_is_refused(tmp_path: Path) -> None:
    source = HEAD.format(body="return x * 2", inputs="torch.randn(4)").replace("return []", "return [3]")
    assert refusal(write(tmp_path, source)).startswith(":3: Model(*get_init_inputs()) raised TypeError")
    constructor = "    def __init__(self, a, b):\n        super().__init__()\n\n"
    source = source.replace("    def forward", constructor + "    def forward")
    text = refusal(write(tmp_path, source))
    assert text.startswith(":3: Model(a, b) cannot take the 1 values of get_init_inputs")


def test_get_inputs_that_needs_an_argument_is_refused(tmp_path: Path) -> None:
    source = HEAD.format(body="return x * 2", inputs="torch.randn(4)").replace("get_inputs()", "get_inputs(n)")
    assert "expected no required arguments" in refusal(write(tmp_path, source))


def test_an_import_that_never_ends_is_stopped_and_its_line_named(tmp_path: Path) -> None:
    path = write(tmp_path, """\
        import time
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                continue
    """)
    text = refusal(path, timeout_s=1.5)
    assert re.match(r":[2-6]: import did not end within 1.5 s", text)


def test_a_file_that_kills_its_process_is_reported(tmp_path: Path) -> None:
    with pytest.raises(errors.ProblemError, match="died"):
        problems.load(write(tmp_path, "import os\nos.kill(os.getpid(), 11)\n"))


def test_the_next_file_loads_after_a_crash(tmp_path: Path) -> None:
    with pytest.raises(errors.ProblemError):
        problems.load(write(tmp_path, "import os\nos._exit(3)\n"))
    assert problems.load(write_forward(tmp_path, "return x * 2")).weak == ""


def test_get_inputs_that_raises_is_named_with_its_line(tmp_path: Path) -> None:
    text = refusal(write_forward(tmp_path, "return x * 2", inputs="torch.randn(4) @ torch.randn(5)"))
    assert text.startswith(":8: get_inputs() raised RuntimeError")


def test_a_reference_that_raises_is_named_with_its_line(tmp_path: Path) -> None:
    text = refusal(write_forward(tmp_path, "return x @ x"))
    assert text.startswith(":5: Model.forward raised RuntimeError")


@pytest.mark.parametrize("body", ["return torch.log(x - 10)", "return x / torch.zeros(())"])
def test_a_reference_that_is_not_finite_is_refused(tmp_path: Path, body: str) -> None:
    text = refusal(write_forward(tmp_path, body))
    assert "output has 24 NaN or infinite values of 24" in text


@pytest.mark.parametrize("body", [
    "return x + torch.randn(())",
    "return torch.nn.functional.dropout(x, 0.5)",
    "import time; return x + time.time_ns() % 1000003",
])
def test_a_reference_that_draws_or_looks_at_the_clock_is_refused(tmp_path: Path, body: str) -> None:
    assert "not deterministic: a second call" in refusal(write_forward(tmp_path, body))


def test_a_reference_that_counts_its_calls_is_refused(tmp_path: Path) -> None:
    body = "self.calls = getattr(self, 'calls', 0) + 1\nreturn x * self.calls"
    assert "not deterministic: a second call" in refusal(write_forward(tmp_path, body))


def test_a_reference_that_depends_on_global_state_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD.format(body="return x * self.factor", inputs="torch.randn(4)").replace(
        "    def forward", "    built = 0\n    def __init__(self):\n        super().__init__()\n"
        "        Model.built += 1\n        self.factor = Model.built\n\n    def forward"))
    assert "a second Model built under the same seed" in refusal(path)


def test_batch_statistics_that_only_fill_buffers_are_allowed(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD.format(body="return self.norm(x)", inputs="torch.randn(16, 3)").replace(
        "    def forward", "    def __init__(self):\n        super().__init__()\n"
        "        self.norm = torch.nn.BatchNorm1d(3)\n\n    def forward"))
    assert problems.load(path).outputs[0].shape == (16, 3)


def test_a_reference_that_changes_its_input_is_refused(tmp_path: Path) -> None:
    text = refusal(write_forward(tmp_path, "x.mul_(2)\nreturn x + 1"))
    assert "changed its input 0 in place" in text
    assert "return the new value" in text


def test_a_reference_that_changes_its_weights_is_refused(tmp_path: Path) -> None:
    source = HEAD.format(body="self.w.mul_(1.5)\n        return x * self.w", inputs="torch.randn(4)")
    path = write(tmp_path, source.replace(
        "    def forward", "    def __init__(self):\n        super().__init__()\n"
        "        self.w = torch.nn.Parameter(torch.ones(4))\n\n    def forward"))
    assert "changed its parameter w" in refusal(path)


@pytest.mark.parametrize("body", [
    "return 3", "return x, None", "return {'a': [x + 1, 'text']}", "return x.sum().item()",
])
def test_an_output_that_is_no_tensor_is_refused(tmp_path: Path, body: str) -> None:
    assert "expected a tensor, or tuples, lists and dicts of tensors" in refusal(write_forward(tmp_path, body))


def test_no_output_at_all_is_refused(tmp_path: Path) -> None:
    assert "no tensor at all" in refusal(write_forward(tmp_path, "return []"))


def test_inputs_that_share_memory_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, """\
        import torch

        class Model(torch.nn.Module):
            def forward(self, x, y):
                return x.sum() + y

        def get_inputs():
            x = torch.randn(4, 6)
            return [x, x.view(24)]

        def get_init_inputs():
            return []
    """)
    text = refusal(path)
    assert text.startswith(":7: get_inputs(): inputs 0 and 1 share memory")
    assert ".clone()" in text


@pytest.mark.parametrize("body", ["return x.t()", "return x * 2, x[0]"])
def test_an_output_that_is_a_view_of_an_input_is_refused(tmp_path: Path, body: str) -> None:
    assert "shares memory with input 0" in refusal(write_forward(tmp_path, body))


def test_input_shapes_that_change_with_the_seed_are_refused(tmp_path: Path) -> None:
    text = refusal(write_forward(tmp_path, "return x * 2", inputs="torch.randn(torch.randint(1, 10**6, ()).item())"))
    assert "expected the same shapes for every seed" in text


def test_integer_bool_several_and_nested_outputs_are_fine(tmp_path: Path) -> None:
    body = "return (x > 0, [x.argsort(-1), {'sum': x.sum(), 'small': x.to(torch.int8)}], x.to(torch.complex64))"
    problem = problems.load(write_forward(tmp_path, body))
    assert [(o.name, o.dtype) for o in problem.outputs] == [
        ("output[0]", "bool"), ("output[1][0]", "int64"), ("output[1][1]['sum']", "float32"),
        ("output[1][1]['small']", "int8"), ("output[2]", "complex64"),
    ]


def test_integer_and_bool_inputs_are_fine(tmp_path: Path) -> None:
    path = write_forward(tmp_path, "return x + 1", inputs="torch.randint(0, 9, (5,), dtype=torch.int32)")
    assert problems.load(path).inputs[0].dtype == "int32"
    path = write_forward(tmp_path, "return ~x", inputs="torch.rand(64) < 0.5")
    assert problems.load(path).inputs[0].dtype == "bool"


def test_an_output_shape_may_depend_on_the_data(tmp_path: Path) -> None:
    problem = problems.load(write_forward(tmp_path, "return x[x > 0]", inputs="torch.randn(200)"))
    assert problem.weak == ""


def test_a_case_that_sets_an_unknown_global_is_refused(tmp_path: Path) -> None:
    path = write_forward(tmp_path, "return x * 2", extra="CASES = {'tuned': {'batch': 3}}\n")
    assert "sets 'batch', which is no module global" in refusal(path)


def test_the_first_case_must_equal_the_defaults(tmp_path: Path) -> None:
    path = write_forward(tmp_path, "return x * 2", extra="n = 4\nCASES = {'tuned': {'n': 3}}\n")
    assert "expected the default n = 4, found 3" in refusal(path)


def test_a_held_out_case_that_fails_is_named(tmp_path: Path) -> None:
    path = write_forward(tmp_path, "return x.view(2, -1)[0] + 1", inputs="torch.randn(n)",
                         extra="n = 4\nCASES = {'tuned': {'n': 4}, 'odd': {'n': 5}}\n")
    text = refusal(path)
    assert text.startswith(":5: Model.forward raised RuntimeError")
    assert "CASES['odd']" in text


def test_a_reference_form_that_disagrees_is_refused(tmp_path: Path) -> None:
    extra = """
        class Close(torch.nn.Module):
            def forward(self, x):
                return x * 2.001

        REFERENCES = {"close": Close}
    """
    text = refusal(write_forward(tmp_path, "return x * 2", extra=extra))
    assert "REFERENCES['close'] disagrees with Model" in text
    assert "error 5.00e-04 (limit 1.0e-05)" in text


def test_a_reference_form_that_is_more_accurate_than_model_is_accepted(tmp_path: Path) -> None:
    extra = """
        class Exact(torch.nn.Module):
            def forward(self, x):
                return x.double().sum(-1).float()

        REFERENCES = {"exact": Exact}
    """
    body = "s = torch.zeros(x.shape[0])\nfor i in range(x.shape[1]):\n    s = s + x[:, i]\nreturn s"
    path = write_forward(tmp_path, body, inputs="torch.rand(2, 3000)", extra=extra)
    assert problems.load(path).references == ("exact",)


@pytest.mark.parametrize("value", ["0", "-1", "'wide'", "float('inf')"])
def test_a_senseless_tolerance_is_refused(tmp_path: Path, value: str) -> None:
    path = write_forward(tmp_path, "return x * 2", extra=f"TOLERANCE = {value}\n")
    assert "expected a positive number" in refusal(path)


def test_a_reference_too_slow_to_check_is_refused_with_numbers(tmp_path: Path) -> None:
    path = write_forward(tmp_path, "import time; time.sleep(1); return x * 2")
    assert "one call of the reference took 1.0 s" in refusal(path, timeout_s=4)


def test_a_reference_too_large_for_memory_is_refused(tmp_path: Path) -> None:
    text = refusal(write_forward(tmp_path, "return x * 2", inputs="torch.zeros(2 ** 44)"))
    assert re.search(r"get_inputs\(\) \(with [\d.]+ GiB, four fifths of what was free\) raised RuntimeError", text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.ProblemError, match="no such file"):
        problems.load(tmp_path / "absent.py")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(errors.ProblemError, match="cannot be read"):
        problems.load(tmp_path / "bytes.py")
    (tmp_path / "nul.py").write_bytes(b"import torch\x00")
    with pytest.raises(errors.ProblemError, match=r"nul\.py:1: "):
        problems.load(tmp_path / "nul.py")
