"""Tiny problem files and candidates that several tests use."""

from kernelevolve.records import Problem, Proposal
from kernelevolve.settings import Settings

QUICK = Settings(baselines=("eager",), time_s=0.1, baseline_time_s=0.2, rounds=6, call_timeout_s=2.0,
                 build_timeout_s=10.0, output_bytes=8 * 2**20)

HEAD = "import torch\nfrom torch import nn\n"


def problem(source: str, **facts) -> Problem:
    return Problem(id="test/problem", source=HEAD + source, code_hash="0", **facts)


def proposal(source: str, language: str = "") -> Proposal:
    return Proposal(source=HEAD + source, language=language, operator="hand")


ADD = """
class Model(nn.Module):
    def forward(self, x, y):
        return x + y

def get_inputs():
    return [torch.randn(8, 16), torch.randn(8, 16)]

def get_init_inputs():
    return []
"""
ADD_NEW = """
class ModelNew(nn.Module):
    def forward(self, x, y):
        return y + x
"""
