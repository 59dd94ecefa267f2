"""Records and function types of ggml's backend interface, as ctypes has them.

Restated from ggml (MIT; ggml.h, ggml-backend.h, ggml-backend-impl.h), revision 0c1e570. Only what `pretend` fills in or
reads has a type of its own; the rest are plain pointers that keep the others in their place.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_void_p


class Tensor(Structure):
    _fields_ = [
        ("type", c_int),
        ("buffer", c_void_p),
        ("ne", c_int64 * 4),
        ("nb", c_size_t * 4),
        ("op", c_int),
        ("op_params", c_int32 * 16),
        ("flags", c_int32),
        ("src", c_void_p * 10),
        ("view_src", c_void_p),
        ("view_offs", c_size_t),
        ("data", c_void_p),
        ("name", ctypes.c_char * 64),
        ("extra", c_void_p),
        ("padding", ctypes.c_char * 8),
    ]


NAME = CFUNCTYPE(c_void_p, c_void_p)  # a text that lives on: see `_text`
ADDRESS = CFUNCTYPE(c_void_p, c_void_p)
ALLOC = CFUNCTYPE(c_void_p, c_void_p, c_size_t)
SIZE = CFUNCTYPE(c_size_t, c_void_p)
TENSOR_SIZE = CFUNCTYPE(c_size_t, c_void_p, c_void_p)
YES = CFUNCTYPE(c_bool, c_void_p)
YES_2 = CFUNCTYPE(c_bool, c_void_p, c_void_p)
DO = CFUNCTYPE(None, c_void_p)
DO_2 = CFUNCTYPE(None, c_void_p, c_void_p)
MEMORY = CFUNCTYPE(None, c_void_p, POINTER(c_size_t), POINTER(c_size_t))
KIND = CFUNCTYPE(c_int, c_void_p)
INIT = CFUNCTYPE(c_void_p, c_void_p, c_char_p)
MEMSET = CFUNCTYPE(None, c_void_p, c_void_p, c_uint8, c_size_t, c_size_t)
MOVE = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_size_t, c_size_t)
CLEAR = CFUNCTYPE(None, c_void_p, c_uint8)
COMPUTE = CFUNCTYPE(c_int, c_void_p, c_void_p)
GET = CFUNCTYPE(c_void_p, c_void_p, c_size_t)
FIND = CFUNCTYPE(c_void_p, c_void_p, c_char_p)


class BufferType(Structure):
    _fields_ = [
        ("get_name", NAME),
        ("alloc_buffer", ALLOC),
        ("get_alignment", SIZE),
        ("get_max_size", SIZE),
        ("get_alloc_size", TENSOR_SIZE),
        ("is_host", YES),
        ("device", c_void_p),
        ("context", c_void_p),
    ]


class BufferFunctions(Structure):
    _fields_ = [
        ("free_buffer", DO),
        ("get_base", ADDRESS),
        ("init_tensor", c_void_p),
        ("memset_tensor", MEMSET),
        ("set_tensor", MOVE),
        ("get_tensor", MOVE),
        ("set_tensor_2d", c_void_p),
        ("get_tensor_2d", c_void_p),
        ("cpy_tensor", c_void_p),
        ("clear", CLEAR),
        ("reset", c_void_p),
    ]


class Buffer(Structure):
    _fields_ = [("iface", BufferFunctions), ("buft", c_void_p), ("context", c_void_p), ("size", c_size_t)]


class Backend(Structure):
    _fields_ = [
        ("guid", c_void_p),
        ("get_name", NAME),
        ("free", DO),
        *((f"copy_{i}", c_void_p) for i in range(5)),
        ("synchronize", DO),
        *((f"plan_{i}", c_void_p) for i in range(4)),
        ("graph_compute", COMPUTE),
        ("event_record", DO_2),
        ("event_wait", DO_2),
        ("graph_optimize", c_void_p),
        ("device", c_void_p),
        ("context", c_void_p),
    ]


class Event(Structure):
    _fields_ = [("device", c_void_p), ("context", c_void_p)]


class Properties(Structure):
    _fields_ = [
        ("name", c_void_p),
        ("description", c_void_p),
        ("memory_free", c_size_t),
        ("memory_total", c_size_t),
        ("type", c_int),
        ("device_id", c_void_p),
        ("asynchronous", c_bool),
        ("host_buffer", c_bool),
        ("buffer_from_host_ptr", c_bool),
        ("events", c_bool),
        ("mmap_support", c_bool),
    ]


PROPERTIES = CFUNCTYPE(None, c_void_p, POINTER(Properties))


class DeviceRecord(Structure):
    _fields_ = [
        ("get_name", NAME),
        ("get_description", NAME),
        ("get_memory", MEMORY),
        ("get_type", KIND),
        ("get_props", PROPERTIES),
        ("init_backend", INIT),
        ("get_buffer_type", ADDRESS),
        ("get_host_buffer_type", ADDRESS),
        ("buffer_from_host_ptr", c_void_p),
        ("supports_op", YES_2),
        ("supports_buft", YES_2),
        ("offload_op", YES_2),
        ("event_new", ADDRESS),
        ("event_free", DO_2),
        ("event_synchronize", DO_2),
        ("reg", c_void_p),
        ("context", c_void_p),
    ]


class Registry(Structure):
    _fields_ = [
        ("api_version", c_int),
        ("get_name", NAME),
        ("get_device_count", SIZE),
        ("get_device", GET),
        ("get_proc_address", FIND),
        ("context", c_void_p),
    ]
