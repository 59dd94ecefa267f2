"""A Windows Job Object that ends a child process when this process ends, however it ends.

Source: learn.microsoft.com, "Job Objects" and `JOBOBJECT_EXTENDED_LIMIT_INFORMATION` (winnt.h).
"""

from __future__ import annotations

import ctypes
import sys

_EXTENDED_LIMIT_INFORMATION = 9  # JOBOBJECTINFOCLASS
_KILL_ON_JOB_CLOSE = 0x2000  # JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE


class BasicLimits(ctypes.Structure):
    _fields_ = (
        ("per_process_user_time_limit", ctypes.c_int64),
        ("per_job_user_time_limit", ctypes.c_int64),
        ("limit_flags", ctypes.c_uint32),
        ("minimum_working_set_size", ctypes.c_size_t),
        ("maximum_working_set_size", ctypes.c_size_t),
        ("active_process_limit", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("priority_class", ctypes.c_uint32),
        ("scheduling_class", ctypes.c_uint32),
    )


class ExtendedLimits(ctypes.Structure):
    _fields_ = (
        ("basic", BasicLimits),
        ("io_counters", ctypes.c_uint64 * 6),
        ("process_memory_limit", ctypes.c_size_t),
        ("job_memory_limit", ctypes.c_size_t),
        ("peak_process_memory_used", ctypes.c_size_t),
        ("peak_job_memory_used", ctypes.c_size_t),
    )


if sys.platform == "win32":

    def tie(process_handle: int) -> int | None:
        """Put a process into a new job; returns the job's handle, which must stay open, or None if it failed."""
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateJobObjectW.restype = ctypes.c_void_p
        kernel.CreateJobObjectW.argtypes = (ctypes.c_void_p, ctypes.c_wchar_p)
        kernel.SetInformationJobObject.argtypes = (
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_uint32,
        )
        kernel.AssignProcessToJobObject.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        job: int | None = kernel.CreateJobObjectW(None, None)
        if not job:
            return None
        limits = ExtendedLimits()
        limits.basic.limit_flags = _KILL_ON_JOB_CLOSE
        set_limits = kernel.SetInformationJobObject(
            job, _EXTENDED_LIMIT_INFORMATION, ctypes.byref(limits), ctypes.sizeof(limits)
        )
        if not set_limits or not kernel.AssignProcessToJobObject(job, process_handle):
            close(job)
            return None
        return job

    def close(job: int) -> None:
        """Close a job's handle; a process still in it ends."""
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CloseHandle.argtypes = (ctypes.c_void_p,)
        kernel.CloseHandle(job)

else:

    def tie(process_handle: int) -> int | None:
        return None

    def close(job: int) -> None:
        return None
