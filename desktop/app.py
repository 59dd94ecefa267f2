"""The application: one per profile. Starts the engine behind the first paint and ends it before the window."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from PySide6.QtCore import QMessageLogContext, QObject, Qt, QTimer, QtMsgType, Signal, qInstallMessageHandler
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QApplication

import resources
from desktop import errors, fonts, openings, signals, theme
from desktop.bridge import EngineBridge
from desktop.file_open import FileOpens
from desktop.garbage import GarbageCollector
from desktop.main_window import MainWindow
from desktop.single_instance import SingleInstance
from desktop.tasks import Tasks
from desktop.theme import Theme, ThemeWatcher
from desktop.watchdog import Heartbeat, Watchdog
from engine import log
from engine.errors import EngineError
from engine.paths import Paths, resolve
from engine.service import Engine

if TYPE_CHECKING:
    from collections.abc import Sequence

CLOSE_TIMEOUT_S = 3.0
#: how long a second start waits for a first one that is closing or busy with its own start
SECOND_START_S = 10.0
_EFFECTS = (Qt.UIEffect.UI_AnimateMenu, Qt.UIEffect.UI_AnimateCombo, Qt.UIEffect.UI_AnimateTooltip)
_log = logging.getLogger("inglenook.desktop")
_qt_log = logging.getLogger("inglenook.qt")


@dataclass(frozen=True)
class Options:
    """How the window starts.

    Attributes:
        home: folder of the profile; None: the user's own.
        model: path or name of the model to load; empty: the last one, or the starter.
        theme: "system", "light", "dark"; empty: as in the settings.
        load_model: load a model at the start; else wait until the user chooses one.
        self_test: open the window, show every page, end; the exit code says whether all of it worked.
        files: GGUF files to load and links to show.
    """

    home: Path | None = None
    model: str = ""
    theme: str = ""
    debug: bool = False
    load_model: bool = True
    self_test: bool = False
    files: tuple[str, ...] = ()
    started_s: float = 0.0


class Application(QObject):
    """Holds everything that lives as long as the program.

    Signals:
        closing: `close` was called. finished: the engine has ended after it; the event loop may end.
    """

    closing = Signal()
    finished = Signal()

    def __init__(
        self, qt_app: QApplication, paths: Paths, options: Options, *, worker_command: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        self.qt_app = qt_app
        self.options = options
        self.engine = Engine(paths, worker_command=worker_command)
        self.bridge = EngineBridge(self.engine, self)
        self.tasks = Tasks(self.bridge)
        setting = options.theme or self.engine.settings.theme
        self.theme_watcher = ThemeWatcher(setting, self)
        self._scale = self.engine.settings.text_scale
        self._flash_time_ms = qt_app.cursorFlashTime()
        qt_app.setFont(fonts.ui_font(self._scale))
        qt_app.setPalette(theme.palette(self.theme_watcher.theme))
        self._apply_motion()
        self.window = MainWindow(self.engine, self.bridge, self.tasks, self.theme_watcher.theme)
        self._on_theme(self.theme_watcher.theme)
        self.theme_watcher.changed.connect(self._on_theme)
        self.window.close_wanted.connect(self.close)
        self.garbage = GarbageCollector(lambda: bool(self.engine.chats.generating()), self)
        self.window.painted.connect(self._on_painted)
        self._unsubscribe = self.engine.settings.subscribe(self._on_setting)
        self._closing = False
        self._dialog: errors.ErrorDialog | None = None
        self._end: threading.Thread | None = None
        self.usable_after_s: float | None = None
        self.failed = False

    # ---- look

    def _apply_style(self, new_theme: Theme) -> None:
        self.qt_app.setFont(fonts.ui_font(self._scale))
        self.qt_app.setPalette(theme.palette(new_theme))
        # On the window, not on the application: that polishes each widget once, this once for each of its ancestors
        # (measured with 324 widgets: 50 ms against 200 ms). Dialogs, menus and tips have the window as parent.
        self.window.setStyleSheet(theme.stylesheet(new_theme, self._scale, fonts.base_px()))

    def _apply_motion(self) -> None:
        """With reduced motion the text cursor does not blink, and nothing of Qt's own slides or fades."""
        calm = self.engine.settings.reduced_motion
        self.qt_app.setCursorFlashTime(0 if calm else self._flash_time_ms)
        for effect in _EFFECTS:
            self.qt_app.setEffectEnabled(effect, not calm)

    def _on_theme(self, new_theme: Theme) -> None:
        self._apply_style(new_theme)
        self.window.apply_theme(new_theme)

    def _on_setting(self, name: str) -> None:
        """Runs in whatever thread changed it."""
        self.bridge.post(lambda: self._take_setting(name))

    def _take_setting(self, name: str) -> None:
        settings = self.engine.settings
        if name == "theme":
            self.theme_watcher.set_setting(settings.theme)
        elif name == "reduced_motion":
            self._apply_motion()
        elif name == "text_scale":
            self._scale = settings.text_scale
            self._on_theme(self.theme_watcher.theme)
        self.window.on_setting_changed(name)

    # ---- life

    def start(self) -> None:
        """Show the window; the engine starts when it has been painted."""
        self.window.show()

    def _on_painted(self) -> None:
        if self._closing:
            return
        if self.options.started_s:
            self.usable_after_s = time.time() - self.options.started_s
            _log.info("window usable after %.2f s (%.2f s of CPU)", self.usable_after_s, time.process_time())
        self.bridge.run(self.engine.start(), None, self._on_start_failed, owner=self)
        model = self.options.model or openings.file_of(self.options.files)
        self.window.start(model, load_model=self.options.load_model and not self.options.self_test)
        openings.show_link(self.window, self.options.files)
        self.qt_app.setWindowIcon(QIcon(str(resources.path("icons/inglenook.svg"))))  # drawing it takes 10 ms
        self.garbage.start()
        if self.options.self_test:
            from desktop.self_test import PageWalk

            PageWalk(self.window, self.tasks, self.close).start()

    def _on_start_failed(self, error: BaseException) -> None:
        _log.error("the profile cannot be opened: %s", error)
        self.window.chat_view.show_error(error)

    def close(self) -> None:
        """Stop writing, keep everything, end the worker, then the program. The event loop goes on meanwhile."""
        if self._closing:
            return
        self._closing = True
        self.garbage.stop()
        self.closing.emit()
        self.window.save_state()
        self.window.hide()
        self.window.stop()
        self._unsubscribe()
        self.theme_watcher.changed.disconnect(self._on_theme)
        self.bridge.close()  # nothing that is shown can change any more, and nothing may ask the engine for more
        self._end = threading.Thread(target=self._end_engine, name="inglenook-end")
        self._end.start()
        self._poll = QTimer(self)
        self._poll.setInterval(20)
        self._poll.timeout.connect(self._check_end)
        self._poll.start()

    def _end_engine(self) -> None:
        try:
            self.window.drafts.save()
        except EngineError as error:
            _log.error("drafts cannot be saved: %s", error)
        self.engine.stop(CLOSE_TIMEOUT_S)
        self.window.bench.desk.wait_for_end(CLOSE_TIMEOUT_S)

    def _check_end(self) -> None:
        if self._end is None or not self._end.is_alive():
            self._poll.stop()
            self.tasks.close(wait=False)
            self.finished.emit()

    # ---- what goes wrong

    def excepthook(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """A bug becomes a dialog with a report, never a silent end. One dialog at a time; the rest is logged."""
        if issubclass(kind, KeyboardInterrupt):
            self.close()
            return
        _log.error("unexpected error", exc_info=(kind, error, trace))
        self.failed = True
        if self.options.self_test:  # nobody is there to read a dialog
            traceback.print_exception(kind, error, trace)
            self.bridge.post(self.close)
            return
        if threading.current_thread() is not threading.main_thread():
            self.bridge.post(lambda: self._show_bug(error))
        else:
            self._show_bug(error)

    def _show_bug(self, error: BaseException) -> None:
        if self._dialog is not None or self._closing:
            return
        dialog = errors.show_dialog(error, self.window)
        dialog.destroyed.connect(self._forget_dialog)
        self._dialog = dialog

    def _forget_dialog(self) -> None:
        self._dialog = None

    @property
    def ended(self) -> bool:
        """`close` was called and the engine has ended."""
        return self._end is not None and not self._end.is_alive()

    def wait_for_end(self, timeout_s: float) -> bool:
        """Wait for the engine's end after `close`; True if it has ended."""
        if self._end is not None:
            self._end.join(timeout_s)
        return self._end is None or self.ended

    def on_second_start(self, files: list[str]) -> None:
        if not self._closing:
            self.window.open_files(files)


_QT_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


def qt_message(kind: QtMsgType, context: QMessageLogContext, message: str) -> None:
    """Qt's messages go to the log."""
    _qt_log.log(_QT_LEVELS.get(kind, logging.WARNING), "%s", message)


def make_qt_app(argv: Sequence[str]) -> QApplication:
    """The QApplication with the style that the stylesheet is made for.

    Python's threads take turns every half millisecond from now on. A thread that computes otherwise keeps the GUI
    thread waiting for 5 ms, and that after every call into Qt which lets others run: ten calls are 50 ms.
    """
    sys.setswitchinterval(0.0005)
    qt_app = QApplication([*argv[:1]])
    qt_app.setApplicationName("inglenook")
    qt_app.setApplicationDisplayName("Inglenook")
    # the name of the menu entry, by which a dock finds the window's icon; Flatpak names the entry after the application
    qt_app.setDesktopFileName(os.environ.get("FLATPAK_ID") or "inglenook")
    qt_app.setStyle("Fusion")
    qt_app.setQuitOnLastWindowClosed(False)
    return qt_app


def _end_on_signals(application: Application) -> QTimer:
    signals.on_end(lambda: QTimer.singleShot(0, application.close))
    wake = QTimer(application)  # Python runs signal handlers only when its code runs
    wake.setInterval(250)
    wake.timeout.connect(lambda: None)
    wake.start()
    return wake


def _become_first(instance: SingleInstance, options: Options) -> int | None:
    """None if this process holds the profile now, else its exit code: the first was told, or does not answer.

    A first that is closing or just starting is not reached for a moment; then its end, or its answer, is waited for.
    """
    end = time.monotonic() + SECOND_START_S
    files = options.files or ((options.model,) if options.model else ())
    while not instance.acquire():
        if instance.notify_first(files, max(1.0, end - time.monotonic())):
            return 0
        if time.monotonic() > end:
            sys.stderr.write(
                f"inglenook: this profile is open in another process ({instance.owner_pid or 'unknown'}) that does not "
                "answer. End it, or use another profile with --home.\n"
            )
            return 1
        time.sleep(0.1)
    return None


def run(options: Options, argv: Sequence[str], *, worker_command: Sequence[str] | None = None) -> int:
    """Open the window and run until it is closed. Gives the exit code."""
    signals.catch()
    qInstallMessageHandler(qt_message)
    qt_app = make_qt_app(argv)
    try:
        paths = resolve(options.home).ensure()
        instance = SingleInstance(paths.lock_file)
        told = _become_first(instance, options)
    except EngineError as error:
        sys.stderr.write(f"inglenook: {error.message} {error.hint}\n")
        return 1
    if told is not None:
        return told
    log.setup(paths.logs, "DEBUG" if options.debug else "INFO")
    application = Application(qt_app, paths, options, worker_command=worker_command)
    sys.excepthook = application.excepthook
    threading.excepthook = lambda args: application.excepthook(
        args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback
    )
    instance.second_start.connect(application.on_second_start)
    handed = FileOpens(qt_app)
    handed.opened.connect(application.on_second_start)
    application.window.painted.connect(handed.release)
    application.finished.connect(lambda: qt_app.exit(0))
    application.closing.connect(instance.stop_listening)
    _end_on_signals(application)
    heartbeat = Heartbeat(application) if options.debug else None
    watchdog = Watchdog(heartbeat) if heartbeat is not None else None
    application.start()
    code = qt_app.exec()
    if watchdog is not None:
        watchdog.stop()
    if not application.wait_for_end(CLOSE_TIMEOUT_S + 5):
        _log.error("the engine does not end; leaving without it")
        instance.release()
        logging.shutdown()
        os._exit(0)
    instance.release()
    qInstallMessageHandler(None)
    return 1 if options.self_test and application.failed else code
