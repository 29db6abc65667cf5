"""Run scoring on simulated CUDA devices, and count where the CPU would wait for them.

    python -m tests.judges.fake_cuda

FakeTensorMode runs the code paths of `cuda:N` on a build of torch without CUDA: devices, dtypes and shapes
are real, numbers are not there. It needs a device guard for CUDA, which is compiled here. Prints one JSON
object: for every case an error, or the numbers of passes, of collected results and of waits.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from rmcalib.judges import _scoring as scoring
from rmcalib.judges._sharing import how_to_share
from tests.judges.families import family_model, family_texts

GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
using namespace c10;
struct Guard final : impl::DeviceGuardImplInterface {
  DeviceType type() const override { return kCUDA; }
  Device exchangeDevice(Device) const override { return Device(kCUDA, -1); }
  Device getDevice() const override { return Device(kCUDA, -1); }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, Device(kCUDA, -1)); }
  Stream exchangeStream(Stream stream) const noexcept override { return stream; }
  DeviceIndex deviceCount() const noexcept override { return 4; }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard);
"""
FAMILIES = ("llama", "qwen2", "qwen3", "gemma", "gemma2", "mistral", "olmo2", "phi3")
WAITS = ("aten._local_scalar_dense", "aten.nonzero", "aten.masked_select", "aten.equal", "aten.is_nonzero")


class CountWaits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations that wait for a device: blocking copies, and sizes that depend on values."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func.overloadpacket)
        out = func(*args, **kwargs)
        if name in WAITS:
            self.waits.append(name)
        elif name in ("aten._to_copy", "aten.copy_"):
            source = args[0] if name == "aten._to_copy" else args[1]
            target = out if name == "aten._to_copy" else args[0]
            blocking = not kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
            if {source.device.type, target.device.type} == {"cpu", "cuda"} and source.ndim and blocking:
                self.waits.append(f"copy {source.device} to {target.device}")
        elif name == "aten.index" and any(i is not None and i.dtype == torch.bool for i in args[1]):
            self.waits.append("index by booleans")
        return out


def put(module: torch.nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Replace the tensors of a module by simulated ones on a device."""
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                empty = torch.empty(parameter.shape, dtype=dtype, device=device)
                part._parameters[name] = torch.nn.Parameter(empty, requires_grad=False)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device=device)


def run(family: str, n_devices: int, way: Any, dtype: torch.dtype) -> dict[str, Any]:
    """Score one chunk of prompts on `n_devices` devices; `way` is `mask` or `plain`."""
    n_layers = max(2, n_devices)
    changes: dict[str, Any] = {"num_hidden_layers": n_layers, "head_dim": 16, "sliding_window": None}
    if family in ("gemma2", "mistral"):
        changes["sliding_window"] = 16
    real = family_model(family, **changes)
    how: Any = how_to_share(real)
    sharing = replace(how, branches=False) if way != "plain" else None
    devices = [torch.device("cuda", index) for index in range(n_devices)]
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = replace(real, device=devices[0], dtype=dtype)
        backbone: Any = model.backbone
        names = [name for name, _ in backbone.named_children() if name != "layers"]
        places = {name: devices[-1] if "norm" in name else devices[0] for name in names}
        places |= {f"layers.{i}": devices[i * n_devices // n_layers] for i in range(n_layers)}
        for name, device in places.items():
            put(backbone.get_submodule(name), device, dtype)
        put(model.head, devices[-1], torch.float32)
        model.backbone = accelerate.dispatch_model(backbone, places, force_hooks=True)
        scorer = scoring.ItemScorer(model, 256, share=False)
        scorer.sharing, scorer._checked = sharing, 10**6
        collected: list[list[torch.Tensor]] = []

        def collect(parts: Any) -> Any:
            collected.append(list(parts))
            return np.zeros(sum(len(part) for part in parts))

        scoring._collected = collect
        with CountWaits() as counted:
            scorer.rewards(family_texts(6))
    rewards = [part for parts in collected for part in parts]
    assert {part.device for part in rewards} == {devices[-1]}
    assert {part.dtype for part in rewards} == {torch.float32}
    used = {parameter.device for parameter in model.backbone.parameters()}
    assert used == set(devices), used
    return {"passes": len(rewards), "collected": len(collected), "waits": counted.waits}


def main() -> None:
    """Run all cases."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "guard.cpp"), Path(folder, "guard.so")
        source.write_text(GUARD)
        own = Path(torch.__file__).parent
        abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
        command = ["c++", "-std=c++20", "-O0", "-shared", "-fPIC", abi, f"-I{own / 'include'}", str(source)]
        subprocess.run([*command, f"-L{own / 'lib'}", "-lc10", "-o", str(library)], check=True)
        torch.ops.load_library(library)  # type: ignore[no-untyped-call]
    if not hasattr(transformers.utils.import_utils, "is_fake_tensor"):  # 4.57
        # Newer versions see that a pretended mask has no values, and do not ask whether it hides anything.
        transformers.masking_utils._ignore_causal_mask_sdpa = lambda *_, **__: False
    results = {}
    cases = [(1, torch.bfloat16), (2, torch.float32), (4, torch.bfloat16)]
    for number, family in enumerate(FAMILIES):
        # Both ways on one number of devices, which differs from family to family
        for way in ("mask", "plain"):
            for n_devices, dtype in cases if number == 0 else [cases[number % 3]]:
                key = f"{family} {way} {n_devices} {dtype}"
                try:
                    results[key] = run(family, n_devices, way, dtype)
                except Exception as error:
                    results[key] = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
