"""Whatever a candidate's process answers is judged, and nothing of it raises in the judge."""

import json
import socket
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelevolve.evaluation import conduct, rules
from kernelevolve.evaluation.compare import examine
from kernelevolve.evaluation.link import Link, LinkError, RunnerError
from kernelevolve.evaluation.trials import Factory
from kernelevolve.evaluation.verdict import of_error, of_exit
from kernelevolve.platforms.device import ALIGN, Host
from kernelevolve.records import LeafError, Status
from kernelevolve.workers.channel import Channel
from tests.evaluation.problems import ADD, HEAD

TWO = ADD.replace("return x + y", "return {'sum': x + y, 'more': [x > y, (3, None)]}")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from([10**30, -1, 1e308, float("inf"), float("nan"), "\ud800", "tensor", 2**63]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["tensor", "tuple", "list", "dict", "dtype", "shape", "start", "x"]), inner, max_size=4),
    max_leaves=12)


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    path = tmp_path_factory.mktemp("problem") / "problem.py"
    path.write_text(HEAD + TWO)
    factory = Factory(path, None)
    return factory.trial(factory.weights(1, loaded=False), 2)


def honest(trial):
    """The answer that a good candidate's process gives, and the memory with its output."""
    memory = Host().lend(2048)
    described, place = [], 0
    for leaf in trial.reference:
        size = leaf.numel() * leaf.element_size()
        memory.bytes[place : place + size].copy_(leaf.contiguous().view(-1).view(torch.uint8))
        described.append({"type": "Tensor", "device": "cpu", "dtype": str(leaf.dtype)[6:], "shape": list(leaf.shape),
                          "start": place, "overlaps": False, "kept": False})
        place += -(-size // ALIGN) * ALIGN
    return {"tree": trial.tree, "leaves": described, "ns": 5, "guards": "", "state": {}}, memory


def places(value, path=()):
    """Every place in an answer."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(answer, path, value):
    if not path:
        return value
    copy = json.loads(json.dumps(answer))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copy


def judge(answer, memory, trial):
    verdict, errors = examine(answer, memory, trial, rules.get("strict"), 1.0)
    assert all(isinstance(e, LeafError) for e in errors)
    admitted = conduct.conduct(answer, "here")
    for one in (verdict, admitted):
        if one is not None:
            assert isinstance(one.status, Status)
            assert len(one.detail.encode("utf-8")) < 40_000
    return verdict


def test_the_honest_answer_has_no_verdict(trial):
    answer, memory = honest(trial)
    assert judge(answer, memory, trial) is None


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_to_an_answer_gives_a_verdict_or_none_and_never_an_exception(trial, data):
    answer, memory = honest(trial)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(places(answer))))
        answer = changed(answer, path, data.draw(JSON))
    judge(answer, memory, trial)


@pytest.mark.parametrize(("path", "value", "status"), [
    (("leaves", 0, "start"), -64, Status.DISHONEST),
    (("leaves", 0, "start"), 10**30, Status.DISHONEST),
    (("leaves", 0, "start"), float("inf"), Status.DISHONEST),
    (("leaves", 0, "start"), float("nan"), Status.DISHONEST),
    (("leaves", 0, "start"), 3, Status.DISHONEST),
    (("leaves", 0, "start"), 2047, Status.DISHONEST),
    (("leaves", 0, "start"), None, Status.DISHONEST),
    (("leaves",), [], Status.DISHONEST),
    (("leaves",), [{}] * 200_000, Status.DISHONEST),
    (("leaves",), "tensors", Status.DISHONEST),
    (("leaves", 0, "shape"), [10**9] * 1000, Status.WRONG_SHAPE),
    (("leaves", 0, "dtype"), "\ud800" * 100_000, Status.WRONG_DTYPE),
    (("leaves", 0, "type"), {"a": []}, Status.DISHONEST),
    (("tree",), {"tuple": [{"tuple": []}] * 100_000}, Status.WRONG_STRUCTURE),
    (("tree",), {"tensor": 0, "list": 1}, Status.DISHONEST),
    ((), [], Status.DISHONEST),
    ((), None, Status.DISHONEST),
])
def test_malformed_answers_have_the_status_that_they_deserve(trial, path, value, status):
    answer, memory = honest(trial)
    verdict = judge(changed(answer, path, value), memory, trial)
    assert verdict is not None
    assert verdict.status is status


def test_a_nest_deeper_than_the_stack_is_malformed(trial):
    answer, memory = honest(trial)
    tree = None
    for _ in range(100_000):
        tree = {"list": [tree]}
    answer["tree"] = tree
    assert judge(answer, memory, trial).status is Status.DISHONEST
    while isinstance(tree, dict):  # by hand, since freeing it recurses too
        tree = tree.pop("list")[0]


def ask(data, timeout_s=5.0, fds=()):
    """What a link says when a runner answers these bytes."""
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    link = Link("candidate", a.detach(), Host())

    def answer():
        try:
            Channel(b).recv()
            if fds:
                socket.send_fds(b, [data[:1]], list(fds))
                b.sendall(data[1:])
            else:
                b.sendall(data)
        except OSError:
            pass
        finally:
            b.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        return link.ask("call", {}, timeout_s=timeout_s)
    finally:
        link.close()
        thread.join()
        b.close()


def framed(body):
    return len(body).to_bytes(8, "little") + body


@settings(max_examples=150, deadline=None)
@given(value=JSON)
def test_any_json_is_an_answer_an_error_or_a_lost_runner(value):
    body = framed(json.dumps(value).encode())
    if isinstance(value, dict) and "error" not in value:
        assert isinstance(ask(body), dict)
    else:
        with pytest.raises((LinkError, RunnerError), match="candidate"):
            ask(body)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=64))
def test_any_bytes_are_a_lost_runner(data):
    with pytest.raises((LinkError, RunnerError)):
        ask(framed(b"\xff\xfe" + data))
    with pytest.raises((LinkError, RunnerError)):
        ask(data[:6])


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"a":' * 100_000, b"\xff\xff", b'{"a": NaN', b"9" * 10_000, b"{}x"])
def test_nonsense_is_a_lost_runner(body):
    with pytest.raises(LinkError):
        ask(framed(body))


def test_a_long_answer_is_refused_before_it_is_read():
    with pytest.raises(LinkError, match="5242880 bytes announced; the limit is 4194304"):
        ask((5 * 2**20).to_bytes(8, "little"))


def test_descriptors_are_not_accepted():
    with Path("/dev/null").open() as null, pytest.raises(LinkError, match="file descriptors"):
        ask(framed(b"{}"), fds=[null.fileno()])


@pytest.mark.parametrize("error", [None, 3, [], "x", {}, {"kind": 3, "message": [], "errno": []},
                                   {"errno": {"a": 1}}, {"message": "\ud800" * 10**6, "traceback": None}])
def test_any_description_of_an_error_gives_a_verdict(error):
    for building in (False, True):
        found = of_error(error, building=building)
        assert len(found.detail.encode()) < 70_000
        assert found.status in (Status.DISHONEST, Status.RUNTIME_ERROR, Status.COMPILE_ERROR)


MESSAGES = [
    ("AcceleratorError", "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be "
     "asynchronously reported at some other API call", Status.DEVICE_FAULT),
    ("RuntimeError", "CUDA error: misaligned address", Status.DEVICE_FAULT),
    ("RuntimeError", "CUDA error: device-side assert triggered", Status.DEVICE_FAULT),
    ("RuntimeError", "CUDA error: the launch timed out and was terminated", Status.DEVICE_FAULT),
    ("RuntimeError", "CUDA error: unspecified launch failure", Status.DEVICE_FAULT),
    ("RuntimeError", "CUDA error: an illegal instruction was encountered", Status.DEVICE_FAULT),
    ("RuntimeError", "HIP error: hipErrorIllegalAddress", Status.DEVICE_FAULT),
    ("RuntimeError", "Triton Error [CUDA]: an illegal memory access was encountered", Status.DEVICE_FAULT),
    ("OutOfResources", "out of resource: shared memory, Required: 294912, Hardware limit: 232448. Reducing block sizes "
     "or `num_stages` may help.", Status.LAUNCH_ERROR),
    ("RuntimeError", "CUDA error: too many resources requested for launch", Status.LAUNCH_ERROR),
    ("RuntimeError", "CUDA error: invalid configuration argument", Status.LAUNCH_ERROR),
    ("RuntimeError", "CUDA error: invalid argument", Status.LAUNCH_ERROR),
    ("RuntimeError", "Triton Error [CUDA]: invalid argument", Status.LAUNCH_ERROR),
    ("RuntimeError", "CUDA error: no kernel image is available for execution on the device", Status.LAUNCH_ERROR),
    ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 GiB",
     Status.OUT_OF_MEMORY),
    ("RuntimeError", "CUDA error: out of memory", Status.OUT_OF_MEMORY),
    ("RuntimeError", "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you "
     "tried to allocate 1099511627776 bytes. Error code 12 (Cannot allocate memory)", Status.OUT_OF_MEMORY),
    ("MemoryError", "", Status.OUT_OF_MEMORY),
    ("RuntimeError", "can't start new thread", Status.RESOURCE_LIMIT),
    ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)", Status.RUNTIME_ERROR),
    ("ValueError", "invalid argument", Status.RUNTIME_ERROR),
    ("IndexError", "index 3 is out of bounds for dimension 0 with size 3", Status.RUNTIME_ERROR),
]


@pytest.mark.parametrize(("kind", "message", "status"), MESSAGES)
def test_messages_of_drivers_and_allocators_have_their_status(kind, message, status):
    error = {"kind": kind, "message": message, "errno": None, "traceback": ""}
    assert of_error(error, building=False).status is status


def test_what_a_compiler_says_at_import_is_a_compile_error_all_the_same():
    error = {"kind": "RuntimeError", "message": "ptxas error: too much shared data; kernel: invalid configuration",
             "errno": None, "traceback": ""}
    assert of_error(error, building=True).status is Status.COMPILE_ERROR
    assert of_error({**error, "errno": 28}, building=True).status is Status.DISK_LIMIT


@pytest.mark.parametrize(("code", "words"), [(-9, "SIGKILL"), (-40, "signal 40"), (3, "code 3"), (None, "channel")])
def test_every_exit_has_words(code, words):
    assert words in of_exit(code, stage="check").detail


@pytest.mark.parametrize(("answer", "status", "words"), [
    ({"guards": "byte 3 behind output 0"}, Status.WRONG_VALUE, "byte 3"),
    ({"state": {"changes": ["default dtype was a, is b"]}}, Status.DISHONEST, "default dtype"),
    ({"state": {"left": ["a thread"]}}, Status.DISHONEST, "nothing left running"),
    ({"state": {"many": ["4000 threads"], "left": ["x"]}}, Status.RESOURCE_LIMIT, "4000"),
    ({"late": "output 0 went on"}, Status.DISHONEST, "went on"),
    ({"state": {"changes": []}, "guards": "", "late": ""}, None, ""),
    ({"state": 3, "guards": None}, None, ""),
])
def test_what_a_process_admits_counts(answer, status, words):
    found = conduct.conduct(answer, "trial 0")
    assert (found and found.status) is status
    assert not found or words in found.detail
