"""Records of the planner: what is asked, what there is, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from engine.fit.needs import DeviceNeed, LoadOptions, Needs
from engine.fit.placement import DeviceSpec

MIB = 1024 * 1024
Verdict = Literal["gpu", "split", "cpu", "too_large", "unknown"]


@dataclass(frozen=True)
class Measured:
    """What a calibration found out about this computer.

    Attributes:
        bandwidths: bytes a second that memory is read with, by device name and "Host".
        rates: bytes a second that the processor multiplies with weights, by tensor type.
        layer_s: seconds of a layer and token on the processor beside reading its weights; 0: not measured.
    """

    bandwidths: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    layer_s: float = 0.0


@dataclass(frozen=True)
class Machine:
    """What a model can be put on, as it is now.

    Attributes:
        devices: in llama.cpp's order, without the CPU.
        cores: that computing may use.
        bandwidths: bytes a second that memory is read with, by device name and "Host", where known.
        notes: what the user should know about it ("the driver does not answer"), in words.
        listed: False: llama.cpp could not be asked, so that no device is known, whatever there is.
        lock_bytes: how much main memory this user may lock; None: no limit, or not known.
        rates, layer_s: of the processor, as in `Measured`; empty and 0 before a calibration.
    """

    devices: tuple[DeviceSpec, ...]
    ram_available_bytes: int
    ram_total_bytes: int
    cores: int = 0
    bandwidths: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    listed: bool = True
    lock_bytes: int | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    layer_s: float = 0.0


@dataclass(frozen=True)
class Wishes:
    """What the user has chosen; None or empty: the planner decides.

    Attributes:
        n_gpu_layers: below 0: all.
        n_slots: sequences at once; they share the context.
        devices: names of the devices to use; empty: the planner chooses.
        excluded: names of devices that must not be used.
        spread: use every device that there is, unlike ones too (they were named by the user).
        n_outputs: tokens of a batch whose logits are set aside; None: one per slot and the guessed ones; 0: all.
        use_mlock: the weights may not leave main memory.
    """

    n_ctx: int | None = None
    n_gpu_layers: int | None = None
    kv_type_k: str | None = None
    kv_type_v: str | None = None
    flash_attention: Literal["auto", "on", "off"] | None = None
    n_ubatch: int | None = None
    n_batch: int = 2048
    n_slots: int = 1
    kv_unified: bool = True
    swa_full: bool | None = None
    n_cpu_moe: int | None = None
    tensor_split: tuple[float, ...] = ()
    offload_kqv: bool = True
    op_offload: bool = True
    devices: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    spread: bool = False
    n_outputs: int | None = None
    use_mlock: bool = False


@dataclass(frozen=True)
class Step:
    """One thing the planner did to make room, or gets for nothing.

    Attributes:
        what: short, for instance "KV cache in q8_0".
        why: the reason, a sentence.
        saves_bytes: on the devices, or on the host where there is no device; never negative.
    """

    what: str
    why: str
    saves_bytes: int


@dataclass(frozen=True)
class DeviceFit:
    """One device, or the host: what is needed and what is there.

    Attributes:
        headroom_bytes: kept free on purpose.
        shared: its memory is the host's.
        description: what people call the device; empty where nobody said.
    """

    name: str
    need: DeviceNeed
    free_bytes: int
    total_bytes: int
    headroom_bytes: int
    shared: bool = False
    description: str = ""

    @property
    def label(self) -> str:
        """Its name for people."""
        return self.description or self.name

    @property
    def short_bytes(self) -> int:
        """What is missing if the headroom is to stay free; 0: it fits."""
        if not self.need.total_bytes:
            return 0
        return max(0, self.need.total_bytes + self.headroom_bytes - self.free_bytes)

    @property
    def over_bytes(self) -> int:
        """What is missing even without headroom."""
        return max(0, self.need.total_bytes - self.free_bytes)


@dataclass(frozen=True)
class SpeedRange:
    """Tokens a second while an answer is written, as a range; (0, 0): not known.

    Attributes:
        basis: "calibrated" where real answers on this machine stand behind it.
    """

    decode_tps_low: float = 0.0
    decode_tps_high: float = 0.0
    basis: Literal["estimate", "calibrated"] = "estimate"


@dataclass(frozen=True)
class Sibling:
    """Another quantization of the same model."""

    quantization: str
    size_bytes: int


@dataclass(frozen=True)
class FitPlan:
    """How to load a model on this machine, and what that takes.

    Attributes:
        verdict: "gpu" all on devices, "split" partly, "cpu" nothing, "too_large" does not fit (`missing_bytes`),
            "unknown" the rules do not know this kind of model: the figures are a guess.
        n_layers: layers of the model with the output layer, as `options.n_gpu_layers` counts.
        use_devices: names of the devices to load on.
        reasons: sentences that explain the verdict; warnings: what the user should know before loading.
        better: the largest other quantization that would fit better, if one is known.
    """

    verdict: Verdict
    options: LoadOptions
    needs: Needs
    devices: tuple[DeviceFit, ...]
    host: DeviceFit
    n_layers: int
    use_devices: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    missing_bytes: int = 0
    speed: SpeedRange = SpeedRange()
    source: Literal["formula", "probe"] = "formula"
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    better: Sibling | None = None
