"""The window: PySide6 Widgets over `engine.service.Engine`."""

from desktop import refcounts as _refcounts

_refcounts.protect()
