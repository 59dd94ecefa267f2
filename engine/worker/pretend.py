"""Devices that llama.cpp can plan for but not compute on, so that its dry run works for GPUs this computer lacks.

Each is a ggml backend whose functions are these Python ones. What decides memory follows the backend that is stood
in for: alignment, row padding, pinned host memory, which operations it takes over from the host, scratch of flash
attention, and whether several devices work in turn. Nothing is ever allocated on one. Rules restated from ggml (MIT;
ggml-backend-impl.h, ggml-cuda, ggml-rpc), revision 0c1e570; `check` refuses a library whose records look different.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any

from engine.worker.devices import symbol
from engine.worker.pretend_records import (
    ADDRESS,
    ALLOC,
    CLEAR,
    COMPUTE,
    DO,
    DO_2,
    FIND,
    GET,
    INIT,
    KIND,
    MEMORY,
    MEMSET,
    MOVE,
    NAME,
    PROPERTIES,
    SIZE,
    TENSOR_SIZE,
    YES_2,
    Backend,
    Buffer,
    BufferFunctions,
    BufferType,
    DeviceRecord,
    Event,
    Registry,
    Tensor,
)

_API_VERSION = 2  # ggml-backend-impl.h, GGML_BACKEND_API_VERSION
_OBJECT_BYTES = 32  # ggml.h, GGML_OBJECT_SIZE
_GPU = 1  # ggml-backend.h, GGML_BACKEND_DEVICE_TYPE_GPU
_FAILED = -1  # ggml.h, GGML_STATUS_FAILED
_MIN_BATCH = 32
_F32, _F16, _IQ4_NL, _BF16, _MXFP4 = 0, 1, 20, 30, 39
_FLASH_KV = frozenset((_F32, _F16, _BF16, 2, 3, 6, 7, 8))
_UNQUANTIZED = frozenset((_F32, _F16, 24, 25, 26, 27, 28, _BF16))
_OPERATIONS = (
    "FLASH_ATTN_EXT",
    "GET_ROWS",
    "MUL_MAT",
    "MUL_MAT_ID",
    "SSM_SCAN",
    "SSM_CONV",
    "NORM",
    "RMS_NORM",
    "L2_NORM",
    "SUM_ROWS",
    "MEAN",
    "UNARY",
    "GLU",
    "SCALE",
    "ROPE",
    "ROPE_BACK",
)


class NotPossible(Exception):
    """This library is not the one that the records here were written for."""


def _function(name: str, result: Any, *arguments: Any) -> Any:
    function = symbol(name)
    function.restype, function.argtypes = result, list(arguments)
    return function


_texts: dict[str, Any] = {}


def _text(text: str) -> int:
    """Address of a C string that is never freed."""
    if text not in _texts:
        _texts[text] = ctypes.create_string_buffer(text.encode())
    return ctypes.addressof(_texts[text])


def check() -> None:
    """Raises NotPossible unless ggml's records are laid out as they are here."""
    try:
        overhead = _function("ggml_tensor_overhead", c_size_t)()
        get = _function("ggml_backend_dev_get", c_void_p, c_size_t)
        name = _function("ggml_backend_dev_name", c_char_p, c_void_p)
        buffer_type = _function("ggml_backend_dev_buffer_type", c_void_p, c_void_p)
        _function("ggml_backend_buffer_init", c_void_p, c_void_p, BufferFunctions, c_void_p, c_size_t)
    except (AttributeError, OSError) as error:
        raise NotPossible(f"this llama.cpp lacks a function: {error}") from error
    if overhead != _OBJECT_BYTES + ctypes.sizeof(Tensor):
        raise NotPossible("tensors of this llama.cpp have another form")
    device = get(0)
    record = DeviceRecord.from_address(device)
    if ctypes.string_at(record.get_name(device)) != name(device) or record.get_buffer_type(device) != buffer_type(
        device
    ):
        raise NotPossible("devices of this llama.cpp have another form")


def _operations() -> dict[str, int]:
    op_name = _function("ggml_op_name", c_char_p, c_int)
    found: dict[str, int] = {}
    number = 0
    while len(found) < len(_OPERATIONS):
        name = op_name(number).decode()
        if name in _OPERATIONS:
            found[name] = number
        if number > 200:
            raise NotPossible("this llama.cpp lacks an operation")
        number += 1
    return found


class PretendDevice:
    """One such device, registered with ggml for as long as the process lives. `handle` is ggml's pointer to it.

    Attributes:
        name, free_bytes, total_bytes: may be changed between probes.
    """

    def __init__(self, name: str, backend: str) -> None:
        self.name, self.backend = name, backend
        self.free_bytes = self.total_bytes = 80 << 30
        self._remote = backend.upper() == "RPC"
        self._ops = _operations()
        self._row_size = _function("ggml_row_size", c_size_t, c_int, c_int64)
        self._bytes = _function("ggml_nbytes", c_size_t, c_void_p)
        self._buffer_init = _function(
            "ggml_backend_buffer_init", c_void_p, c_void_p, BufferFunctions, c_void_p, c_size_t
        )
        self._cpu_type = _function("ggml_backend_cpu_buffer_type", c_void_p)()
        self._buffer_alloc = _function("ggml_backend_buft_alloc_buffer", c_void_p, c_void_p, c_size_t)
        self._kept: list[Any] = []  # records that ggml holds a pointer to
        self._next_address = 1 << 44  # of buffers; never followed
        self._buffer_functions = BufferFunctions(
            free_buffer=DO(lambda _: None),
            get_base=ADDRESS(lambda buffer: Buffer.from_address(buffer).context),
            memset_tensor=MEMSET(lambda *_: None),
            set_tensor=MOVE(lambda *_: None),
            get_tensor=MOVE(lambda *_: None),
            clear=CLEAR(lambda *_: None),
        )
        self._record = self._device_record()
        self.handle = ctypes.addressof(self._record)
        self._buffer_type = self._own_buffers()
        self._host_type = self._pinned_buffers()
        _own_types.add(ctypes.addressof(self._buffer_type))
        self._register()

    # ------------------------------------------------------------------ records

    def _device_record(self) -> DeviceRecord:
        return DeviceRecord(
            get_name=NAME(lambda _: _text(self.name)),
            get_description=NAME(lambda _: _text("not a real device")),
            get_memory=MEMORY(self._memory),
            get_type=KIND(lambda _: _GPU),
            get_props=PROPERTIES(self._properties),
            init_backend=INIT(self._backend_init),
            get_buffer_type=ADDRESS(lambda _: ctypes.addressof(self._buffer_type)),
            get_host_buffer_type=ADDRESS(lambda _: None if self._remote else ctypes.addressof(self._host_type)),
            supports_op=YES_2(self._supports),
            supports_buft=YES_2(lambda _, buft: buft == ctypes.addressof(self._buffer_type)),
            offload_op=YES_2(self._takes_over),
            event_new=ADDRESS(self._event_new),
            event_free=DO_2(lambda *_: None),
            event_synchronize=DO_2(lambda *_: None),
        )

    def _own_buffers(self) -> BufferType:
        return BufferType(
            get_name=NAME(lambda _: _text(self.name)),
            alloc_buffer=ALLOC(self._alloc),
            get_alignment=SIZE(lambda _: 32 if self._remote else 128),
            get_alloc_size=TENSOR_SIZE(self._alloc_size),
            device=self.handle,
        )

    def _pinned_buffers(self) -> BufferType:
        cpu = BufferType.from_address(self._cpu_type)
        return BufferType(
            get_name=NAME(lambda _: _text("pinned")),
            alloc_buffer=ALLOC(self._alloc_pinned),
            get_alignment=cpu.get_alignment,
            get_alloc_size=cpu.get_alloc_size,
            is_host=cpu.is_host,
            device=self.handle,
        )

    def _register(self) -> None:
        registry = Registry(
            api_version=_API_VERSION,
            get_name=NAME(lambda _: _text(self.backend)),
            get_device_count=SIZE(lambda _: 1),
            get_device=GET(lambda *_: self.handle),
            get_proc_address=FIND(lambda *_: None),
        )
        self._record.reg = ctypes.addressof(registry)
        self._kept.append(registry)
        _function("ggml_backend_register", None, c_void_p)(ctypes.addressof(registry))

    def _memory(self, _device: int, free: Any, total: Any) -> None:
        free[0], total[0] = self.free_bytes, self.total_bytes

    def _properties(self, _device: int, properties: Any) -> None:
        record = properties[0]
        record.name, record.description = _text(self.name), _text("not a real device")
        record.memory_free, record.memory_total = self.free_bytes, self.total_bytes
        record.type, record.device_id = _GPU, None
        record.asynchronous = record.events = record.mmap_support = True
        record.host_buffer, record.buffer_from_host_ptr = not self._remote, False

    def _backend_init(self, device: int, _parameters: bytes | None) -> int:
        guid = ctypes.create_string_buffer(bytes([0x1E, *range(1, 16)]), 16)
        backend = Backend(
            guid=ctypes.addressof(guid),
            get_name=NAME(lambda _: _text(self.name)),
            free=DO(lambda _: None),
            synchronize=DO(lambda _: None),
            graph_compute=COMPUTE(lambda *_: _FAILED),
            event_record=DO_2(lambda *_: None),
            event_wait=DO_2(lambda *_: None),
            device=device,
        )
        self._kept += [guid, backend]
        return ctypes.addressof(backend)

    def _event_new(self, device: int) -> int:
        event = Event(device=device)
        self._kept.append(event)
        return ctypes.addressof(event)

    # ------------------------------------------------------------------ buffers

    def _alloc(self, buffer_type: int, size: int) -> int | None:
        base = self._next_address
        self._next_address += (size + 4095) & ~4095
        made: int | None = self._buffer_init(buffer_type, self._buffer_functions, base, size)
        return made

    def _alloc_pinned(self, buffer_type: int, size: int) -> int | None:
        made: int | None = self._buffer_alloc(self._cpu_type, size)
        if made:
            Buffer.from_address(made).buft = buffer_type
        return made

    def _alloc_size(self, _buffer_type: int, address: int) -> int:
        size: int = self._bytes(address)
        if self._remote:
            return size
        tensor = Tensor.from_address(address)
        if tensor.op == self._ops["FLASH_ATTN_EXT"] and self._flash(tensor) == "matrix":
            size = self._with_flash_scratch(size, tensor)
        if tensor.type not in _UNQUANTIZED and tensor.ne[0] % 512:
            size += self._row_size(tensor.type, 512 - tensor.ne[0] % 512)
        return size

    @staticmethod
    def _with_flash_scratch(size: int, tensor: Tensor) -> int:
        """The matrix cores want K and V in 16 bits; copies of them come behind the result."""
        k, v = (Tensor.from_address(tensor.src[i]) for i in (1, 2))
        same = v.view_src and (v.view_src == tensor.src[1] or (v.view_src == k.view_src and v.view_offs == k.view_offs))
        for part in (k, v):
            if part.type != _F16 and not (part is v and same):
                size = -(-size // 128) * 128 + 2 * part.ne[0] * part.ne[1] * part.ne[2] * part.ne[3]
        return size

    # ------------------------------------------------------------------ operations

    def _flash(self, tensor: Tensor) -> str:
        """How NVIDIA's backend (Turing and newer) computes this attention: "matrix", "vector" or "" for not at all."""
        q, k, v = (Tensor.from_address(tensor.src[i]) for i in range(3))
        mask = Tensor.from_address(tensor.src[3]) if tensor.src[3] else None
        share = q.ne[2] // max(1, k.ne[2])
        max_bias = ctypes.c_float.from_buffer_copy(tensor.op_params, 4).value
        grouped = share >= 2 and mask is not None and max_bias == 0 and k.ne[1] % 256 == 0
        for part in (q, k, v, mask):
            if part is not None and part.type in _UNQUANTIZED and any(part.nb[i] % 16 for i in (1, 2, 3)):
                grouped = False
        if not _flash_shape(k.ne[0], v.ne[0], share, grouped):
            return ""
        if k.type not in _FLASH_KV or v.type not in _FLASH_KV or (mask is not None and mask.ne[2] != 1):
            return ""
        vector = q.ne[0] <= 256 and q.ne[0] % 64 == 0 and q.ne[0] != 192 and k.ne[1] % 256 == 0
        quantized = k.type not in _UNQUANTIZED or v.type not in _UNQUANTIZED
        if vector and ((q.ne[1] <= 2 and quantized) or (q.ne[1] == 1 and not grouped)):
            return "vector"
        return "matrix"

    def _supports(self, _device: int, address: int) -> bool:
        tensor = Tensor.from_address(address)
        own = ctypes.addressof(self._buffer_type)
        for source in tensor.src:
            if source:
                buffer = Tensor.from_address(source).buffer
                if buffer:
                    kind = Buffer.from_address(buffer).buft
                    if kind != own and kind in _own_types:
                        return False
        if self._remote:
            return True
        ops, op = self._ops, tensor.op
        first = Tensor.from_address(tensor.src[0]) if tensor.src[0] else None
        if first is None:
            return True
        if op == ops["FLASH_ATTN_EXT"]:
            return bool(self._flash(tensor))
        if op == ops["GET_ROWS"]:
            if first.type in (_IQ4_NL, _MXFP4):
                return bool(first.ne[0] % 256 == 0)
            return first.type not in (34, 35, 40)
        if op in (ops["MUL_MAT"], ops["MUL_MAT_ID"]):
            second = Tensor.from_address(tensor.src[1])
            return not (second.type == _F16 and first.type != _F16) and first.type not in (34, 35)
        if op == ops["SSM_SCAN"]:
            return _scan_supported(tensor, first)
        if op == ops["SSM_CONV"]:
            return bool(first.ne[1] % 128 == 0)
        if op == ops["SCALE"]:
            return first.type in (_F32, _BF16) and tensor.type == first.type
        return True

    def _takes_over(self, _device: int, address: int) -> bool:
        """Whether it computes an operation although the weights of it lie on the host."""
        if self._remote:
            return False
        tensor, ops = Tensor.from_address(address), self._ops
        if tensor.op == ops["GET_ROWS"]:
            return False
        if tensor.op == ops["MUL_MAT"]:
            return bool(tensor.ne[1] >= _MIN_BATCH)
        if tensor.op in (ops["MUL_MAT_ID"], ops["ROPE"], ops["ROPE_BACK"]):
            return bool(tensor.ne[2] >= _MIN_BATCH)
        return bool(tensor.ne[1] * tensor.ne[2] * tensor.ne[3] >= _MIN_BATCH)


_own_types: set[int] = set()


def _flash_shape(k: int, v: int, share: int, grouped: bool) -> bool:
    if k in (40, 64, 72, 80, 96, 112, 128, 256):
        return v == k
    if k == 192:
        return v == 128 and grouped and share % 8 == 0
    if k == 320:
        return v == 256 and grouped and share % 32 == 0
    return k in (512, 576) and v == 512 and grouped


def _scan_supported(tensor: Tensor, state: Tensor) -> bool:
    decay, group = Tensor.from_address(tensor.src[3]), Tensor.from_address(tensor.src[4])
    if decay.ne[0] == 1:
        return state.ne[0] in (96, 128, 256) and bool(state.ne[1] % 16 == 0)
    one_head = state.ne[0] == 16 and state.ne[1] == 1 and group.ne[1] == 1
    return bool(tensor.op_params[0] <= 1 and one_head and state.ne[2] % 128 == 0)


_pool: list[PretendDevice] = []


def devices(wanted: list[tuple[str, str, int, int]]) -> list[PretendDevice]:
    """Devices for (name, backend, free bytes, total bytes) each. They are registered once and used again.

    Raises:
        NotPossible: not with this library.
    """
    check()
    left, found = list(_pool), []
    for name, backend, free_bytes, total_bytes in wanted:
        device = next((d for d in left if d.backend == backend), None)
        if device is None:
            device = PretendDevice(name, backend)
            _pool.append(device)
        else:
            left.remove(device)
        device.name, device.free_bytes, device.total_bytes = name, free_bytes, total_bytes
        found.append(device)
    return found
