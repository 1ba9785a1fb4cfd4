"""CUDA without a device: the driver's calls against a stand-in library with the same functions, tickets, parsing."""

import ctypes
import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelevolve import errors, platforms
from kernelevolve.evaluation.baseline import physical_bound_ms
from kernelevolve.evaluation.inside.tensors import layout
from kernelevolve.platforms import cuda, cuda_facts, cuda_peaks
from kernelevolve.platforms.cuda_device import PAGE_BYTES, CudaDevice
from kernelevolve.platforms.cuda_driver import LibCuda
from kernelevolve.platforms.cuda_library import load_library
from kernelevolve.records import Problem, TensorSpec


class StandIn(LibCuda):
    """The real calls on a stand-in library; its memory is the host's."""

    def __init__(self, library):
        self._connect(library, 0)

    def tensor(self, address, size, owner):
        array = (ctypes.c_ubyte * size).from_address(address)
        array.owner = owner  # a tensor keeps the object that its bytes came from, as the real one keeps its span
        return torch.frombuffer(array, dtype=torch.uint8)

    def synchronize(self):
        pass


@pytest.fixture(scope="module")
def library_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stand-in")
    source = Path(__file__).parent / "stand_in_cuda.cpp"
    command = ["g++", "-O1", "-shared", "-fPIC", str(source), "-o", "libcuda.so"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return str(folder / "libcuda.so")


@pytest.fixture
def library(library_path):
    found = ctypes.CDLL(library_path)
    yield found
    gc.collect()
    assert found.stand_in(2) == 0, "a context was left on the thread"
    assert found.stand_in(3) == 0, "memory was left allocated or open"


@pytest.fixture
def device(library):
    return CudaDevice(lambda: StandIn(library))


def leaves():
    return [torch.arange(1000.0), torch.rand(33, 65).T, torch.tensor([True, False])]


def test_lent_memory_is_whole_zeroed_pages(device):
    memory = device.lend(5)
    assert memory.size == PAGE_BYTES
    assert not memory.bytes.any()
    assert device.lend(PAGE_BYTES + 1).size == 2 * PAGE_BYTES
    assert device.lend(0).size == PAGE_BYTES


def test_storages_come_back_as_they_were_and_guards_cover_the_rest_of_the_pages(device):
    specs, size = layout(leaves())
    memory = device.lend(size)
    memory.guard(specs)
    given = leaves()
    memory.write(given, specs)
    for got, own in zip(memory.tensors(specs), given, strict=True):
        assert torch.equal(got, own)
        assert got.stride() == own.stride()
        assert got.untyped_storage().nbytes() == own.untyped_storage().nbytes()
    assert memory.breached(specs) is None
    memory.bytes[PAGE_BYTES - 1] = 0
    assert memory.breached(specs) == PAGE_BYTES - 1


CHILD = """
import ctypes, json, sys
sys.path.insert(0, sys.argv[3])
from tests.platforms.test_cuda import StandIn
from kernelevolve.platforms.cuda_device import CudaDevice
library = ctypes.CDLL(sys.argv[1])
ticket, specs = json.loads(sys.argv[2])
memory = CudaDevice(lambda: StandIn(library)).open(ticket, [])
first, *rest = memory.tensors(specs)
print(json.dumps([float(t.double().sum()) for t in (first, *rest)]))
first.add_(1)
memory.bytes[0] = 7
"""


def test_a_ticket_is_json_and_opens_the_same_bytes_in_another_process(device, library_path, pytestconfig):
    specs, size = layout(leaves())
    memory = device.lend(size)
    memory.guard(specs)
    given = leaves()
    memory.write(given, specs)
    ticket, fds = memory.ticket()
    assert fds == []
    said = json.dumps([ticket, specs])
    done = subprocess.run([sys.executable, "-c", CHILD, library_path, said, str(pytestconfig.rootpath)],
                          capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == [float(t.double().sum()) for t in given]
    assert torch.equal(memory.tensors(specs)[0], given[0] + 1)
    assert memory.breached(specs) == 0


def test_bytes_live_as_long_as_a_tensor_over_them(device, library):
    freed = library.stand_in(0)
    memory = device.lend(100)
    part = memory.part(64, 8)
    view = part.fill_(3)[2:].view(torch.int16)
    memory.close()
    del memory, part
    gc.collect()
    assert library.stand_in(0) == freed
    assert view.tolist() == [0x0303] * 3
    del view
    gc.collect()
    assert library.stand_in(0) == freed + 1


def test_borrowed_memory_is_closed_and_never_freed(device, library):
    memory = device.lend(100)
    counts = library.stand_in(0), library.stand_in(1)
    borrowed = device.open(memory.ticket()[0], [])
    assert borrowed.size == memory.size
    with pytest.raises(errors.WorkerError, match="lent on"):
        borrowed.ticket()
    part = borrowed.part(0, 1)
    del borrowed
    gc.collect()
    assert library.stand_in(1) == counts[1]
    del part
    gc.collect()
    assert (library.stand_in(0), library.stand_in(1)) == (counts[0], counts[1] + 1)


@pytest.mark.parametrize("ticket", [
    {}, {"size": 5}, {"size": "many", "handle": "00" * 64}, {"size": 5, "handle": "zz"}, {"size": 5, "handle": "00"},
    {"size": 0, "handle": "00" * 64}, {"size": 5, "handle": 7},
])
def test_a_malformed_ticket_is_refused_with_words(device, ticket):
    with pytest.raises(errors.WorkerError, match="ticket"):
        device.open(ticket, [])


def test_errors_carry_cudas_own_name(device):
    with pytest.raises(errors.WorkerError, match=r"cuMemAlloc_v2 failed: CUDA_ERROR_OUT_OF_MEMORY \(out of memory\)"):
        device.lend(2**41)
    with pytest.raises(errors.WorkerError, match="CUDA_ERROR_INVALID_HANDLE"):
        device.open({"size": 4096, "handle": "00" * 64}, [])


def test_descriptors_beside_a_ticket_are_closed(device):
    r, w = os.pipe()
    with pytest.raises(errors.WorkerError):
        device.open({}, [r, w])
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(r)


def test_the_driver_is_made_once_per_process_and_again_after_a_fork(library):
    made = []
    device = CudaDevice(lambda: made.append(os.getpid()) or StandIn(library))
    assert not made, "nothing may touch the device before it is used"
    assert device.driver is device.driver
    assert made == [os.getpid()]
    device._driver = (1, device.driver)  # as a forked child finds it
    assert device.driver
    assert made == [os.getpid()] * 2


def test_a_machine_without_a_device_says_why_and_auto_takes_the_processor(monkeypatch):
    monkeypatch.setattr(cuda_facts, "unavailable", lambda: "no NVIDIA device (expected /dev/nvidia0)")
    with pytest.raises(errors.SettingError, match="'cuda' is not available here: no NVIDIA device"):
        platforms.resolve("cuda")
    assert platforms.resolve("auto").name == "cpu"


def test_hidden_devices_are_not_available(monkeypatch):
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert "CUDA_VISIBLE_DEVICES" in cuda_facts.unavailable()


def test_asking_for_the_platform_initialises_nothing():
    code = ("from kernelevolve import platforms\nplatforms.resolve('auto')\nplatforms.PLATFORMS['cuda'].available()\n"
            "import torch\nassert not torch.cuda.is_initialized()\n"
            "maps = open('/proc/self/maps').read()\nassert '/dev/nvidia' not in maps\n")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_facts_are_plain_json_from_the_drivers_attributes(library, monkeypatch):
    monkeypatch.setattr(cuda_facts, "load_library", lambda: library)
    monkeypatch.setattr(cuda_facts, "driver_version", lambda: "580.1")
    found = cuda_facts.describe()
    assert json.loads(json.dumps(found)) == found
    assert found["model"] == "A device"
    assert found["uuid"] == "GPU-00102030-4050-6070-8090-a0b0c0d0e0f0"
    assert (found["compute_capability"], found["cuda_driver_api"], found["clock_mhz"]) == ("9.0", "13.0", 1980.0)
    assert found["l3_bytes"] == found["l2_bytes"] == 60 * 2**20
    assert found["multiprocessors"] == 132
    assert found["shared_bytes_per_block"] == 97


def test_a_library_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr("kernelevolve.platforms.cuda_library.LIBRARY", "libcuda-of-nobody.so.1")
    load_library.cache_clear()
    with pytest.raises(errors.WorkerError, match=r"libcuda-of-nobody\.so\.1 from the driver's own package"):
        load_library()


PEAKS = {"copy_gb_s": 4300.0, "read_gb_s": 4400.0, "device_cache_gb_s": 5500.0, "fma_gflops": 52e3,
         "tf32_gflops": 413e3, "bf16_gflops": 768e3, "fp16_gflops": 770e3, "fp64_gflops": 60e3}
STATIC = {"model": "A device", "uuid": "GPU-1", "driver": "580", "torch": "2.11", "l2_bytes": 60 * 2**20,
          "l3_bytes": 60 * 2**20, "device_memory_bytes": 2**37, "multiprocessors": 132, "clock_mhz": 1980.0}


@pytest.fixture
def facts(monkeypatch, tmp_path):
    """Facts of a platform whose workers answer at once; counts what was asked."""
    asked = []

    def call(target, payload, **_):
        asked.append(target)
        return dict(STATIC) if target.endswith(":describe") else dict(PEAKS)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("kernelevolve.workers.call", call)
    cuda._static_facts.cache_clear()
    yield lambda **k: (cuda.Cuda().facts(**k), asked)
    cuda._static_facts.cache_clear()


def test_peaks_are_measured_once_under_the_devices_own_lock(facts, tmp_path):
    found, asked = facts()
    assert [a.rpartition(":")[2] for a in asked] == ["describe", "measure"]
    facts()
    assert len(asked) == 2
    facts(again=True)
    assert len(asked) == 3
    assert cuda.Cuda().lock_name == "cuda-GPU-1"
    assert cuda.Cuda().flush_bytes == 120 * 2**20
    assert list((tmp_path / "kernelevolve").glob("timing-cuda-GPU-1.lock"))
    assert json.loads(json.dumps(found)) == found


def test_a_bound_grants_what_an_honest_kernel_may_use(facts):
    found, _ = facts()

    def bound(dtype, flops=0, bytes_min=0, working=2**40):
        spec = TensorSpec(dtype=dtype, shape=(1,))
        problem = Problem(id="p", source="", code_hash="", inputs=(spec,), outputs=(spec,), flops=flops,
                          bytes_min=bytes_min)
        return physical_bound_ms(problem, found, threads=8, working_set_bytes=working)

    assert bound("float32", flops=413 * 10**9) == pytest.approx(1.0)
    assert bound("float16", flops=770 * 10**9) == pytest.approx(1.0)
    assert bound("float32", bytes_min=44 * 10**8) == pytest.approx(1.0)
    ports = 64 * 132 * 1.98e9
    assert bound("float32", bytes_min=10**7, working=10**7) == pytest.approx(1e7 / ports * 1e3)
    assert cuda_peaks.legitimate({}, STATIC) == {}


SMI = "1410, 2619, 1980, 40, 120.5, 700.00, 10, 1234, 0x0000000000000044\n"


def test_conditions_name_their_units_and_what_slows_the_device(monkeypatch):
    monkeypatch.setattr(cuda_facts, "query", lambda fields, uuid="": cuda_facts.parse(SMI, fields))
    found = cuda_facts.conditions()
    assert found["clock_mhz"] == 1410
    assert found["power_w"] == 120.5
    assert found["throttled"] == ["power cap", "hardware thermal slowdown"]
    assert json.loads(json.dumps(found)) == found


def test_a_reason_at_full_clocks_slows_nobody(monkeypatch):
    line = SMI.replace("1410", "1965")
    monkeypatch.setattr(cuda_facts, "query", lambda fields, uuid="": cuda_facts.parse(line, fields))
    found = cuda_facts.conditions()
    assert found["clock_reasons"] == ["power cap", "hardware thermal slowdown"]
    assert found["throttled"] == []


def test_what_a_device_does_not_tell_is_left_out(monkeypatch):
    line = "[N/A], 2619, 1980, 40, [Not Supported], 700.00, 10, 1234, 0x0000000000000001\n"
    monkeypatch.setattr(cuda_facts, "query", lambda fields, uuid="": cuda_facts.parse(line, fields))
    found = cuda_facts.conditions()
    assert "clock_mhz" not in found
    assert "power_w" not in found
    assert (found["clock_reasons"], found["throttled"]) == (["idle"], [])


NVML = r"""
#include <cstring>
extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
    *device = (void*)1;
    return std::strcmp(uuid, "GPU-1") ? 6 : 0;
}
int nvmlDeviceGetClockInfo(void*, int which, unsigned* mhz) { *mhz = which == 1 ? 1410 : 2619; return 0; }
int nvmlDeviceGetMaxClockInfo(void*, int, unsigned* mhz) { *mhz = 1980; return 0; }
int nvmlDeviceGetTemperature(void*, int, unsigned*) { return 3; }  // not supported
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatt) { *milliwatt = 208500; return 0; }
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* bytes) { bytes[2] = 3ull << 30; return 0; }
int nvmlDeviceGetUtilizationRates(void*, unsigned* percent) { percent[0] = 7; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* mask) { *mask = 4; return 0; }
}
"""


def test_nvml_answers_first_and_what_it_lacks_is_left_out(tmp_path, monkeypatch):
    (tmp_path / "nvml.cpp").write_text(NVML)
    subprocess.run(["g++", "-shared", "-fPIC", "nvml.cpp", "-o", "nvml.so"], cwd=tmp_path, check=True, timeout=60)
    library = ctypes.CDLL(str(tmp_path / "nvml.so"))
    monkeypatch.setattr("kernelevolve.platforms.cuda_nvml._library", lambda: library)
    assert cuda_facts.conditions("GPU-1") == {
        "clock_mhz": 1410.0, "memory_clock_mhz": 2619.0, "clock_max_mhz": 1980.0, "power_w": 208.5,
        "memory_used_mib": 3072.0, "utilization_percent": 7.0, "clock_reasons": ["power cap"],
        "throttled": ["power cap"]}
    assert cuda_facts.memory_used_mib("GPU-1") == 3072.0
    monkeypatch.setenv("PATH", "/nonexistent")
    assert cuda_facts.conditions("GPU-2") == {}


def test_without_nvidia_smi_there_are_no_conditions(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert cuda_facts.conditions() == {}
    assert cuda_facts.memory_used_mib() is None


def test_a_slow_nvidia_smi_is_not_waited_for(monkeypatch, tmp_path):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 30\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert cuda_facts.query(["memory.used"], timeout_s=0.2) == []


def test_unknown_throttle_bits_are_shown_as_they_are():
    assert cuda_facts.throttle_reasons(0x1004) == ["power cap", "unknown 0x1000"]
