"""The window: rail, chat list, views. Composition only; what a command does stands in its view."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QByteArray, QSettings, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QAction,
    QCloseEvent,
    QDragEnterEvent,
    QDropEvent,
    QPaintEvent,
)
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QHBoxLayout,
    QMainWindow,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from desktop import focus_order, icons, openings, theme
from desktop.actions import Actions
from desktop.bench_corner import BenchCorner
from desktop.bridge import EngineBridge
from desktop.commands import Commands
from desktop.drafts import Drafts
from desktop.inside_corner import InsideCorner
from desktop.memory_watch import MemoryWatch
from desktop.model_control import ModelControl
from desktop.models_corner import ModelsCorner
from desktop.open_chat import OpenChat
from desktop.tasks import Tasks
from desktop.theme import Theme
from desktop.update_desk import UpdateDesk
from desktop.views.chat import markdown
from desktop.views.chat.chat_list import ChatListPanel
from desktop.views.chat.chat_view import ChatView
from desktop.views.settings.settings_view import SettingsView
from desktop.widgets.toast import Toast

if TYPE_CHECKING:
    from desktop.views.hub.models_view import ModelsView
    from engine.service import Engine


class MainWindow(QMainWindow):
    """Signals:
    painted: the first paint is done. close_wanted: the user wants to end the program.
    """

    painted = Signal()
    close_wanted = Signal()

    def __init__(
        self,
        engine: Engine,
        bridge: EngineBridge,
        tasks: Tasks,
        first_theme: Theme,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self._bridge = bridge
        self._tasks = tasks
        self.theme = first_theme
        self._painted = False
        self.setObjectName("main_window")
        self.setWindowTitle("Inglenook")
        self.setAcceptDrops(True)
        self.setAnimated(False)  # Qt starts an animation of the whole window for every new layout otherwise
        self.actions_ = Actions(self)
        self.addActions([a for a in self.actions_ if a is not self.actions_["delete_chat"]])
        self.state_file = QSettings(str(engine.paths.config / "window.ini"), QSettings.Format.IniFormat, self)
        self.control = ModelControl(engine, bridge, tasks, self)
        self.open_chat = OpenChat(self.state_file, tasks, self)
        self.drafts = Drafts(engine.paths.data / "drafts.json", tasks, self)
        self._memory = MemoryWatch(engine, tasks, self)
        self.chat_list = ChatListPanel(engine, bridge, self.actions_)
        self.chat_view = ChatView(engine, bridge, self.control, self.actions_, self.drafts)
        self.commands = Commands(engine, bridge, tasks, self)
        self.models = ModelsCorner(self, engine, bridge, tasks, self.control)
        self.inside = InsideCorner(self, engine, bridge, tasks, self.control)
        self.bench = BenchCorner(self, engine, bridge, tasks, self.control)
        self.settings_view: SettingsView | None = None  # made when it is first shown
        self._build()
        self._wire()
        self._restore_geometry()

    # ---- making

    def _build(self) -> None:
        self.rail = QWidget()
        self.rail.setObjectName("rail")
        self.rail.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.rail.setFixedWidth(theme.RAIL_WIDTH)
        box = QVBoxLayout(self.rail)
        box.setContentsMargins(8, 12, 7, 12)
        box.setSpacing(8)
        self.rail_chat = self._rail_button("rail_chat", "view_chat")
        self.rail_models = self._rail_button("rail_models", "view_models")
        self.rail_inside = self._rail_button("rail_inside", "view_inside")
        self.rail_bench = self._rail_button("rail_bench", "view_bench")
        self.rail_settings = self._rail_button("settings", "view_settings")
        for button in (self.rail_chat, self.rail_models, self.rail_inside, self.rail_bench):
            box.addWidget(button)
        box.addStretch(1)
        box.addWidget(self.rail_settings)
        self.views = QStackedWidget()
        chat_page = QWidget()
        row = QHBoxLayout(chat_page)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(self.chat_list)
        row.addWidget(self.chat_view, 1)
        self.chat_page = chat_page
        self.views.addWidget(chat_page)
        central = QWidget()
        central.setObjectName("central")
        layout = QHBoxLayout(central)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.rail)
        layout.addWidget(self.views, 1)
        self.setCentralWidget(central)
        self.toast = Toast(self.chat_view.stack, then=self.chat_view.composer.edit)
        self.updates = UpdateDesk(self._engine, self._bridge, self.toast, self)
        self.rail_chat.setChecked(True)
        self.setMinimumSize(720, 480)

    def _rail_button(self, name: str, action_id: str) -> QToolButton:
        button = QToolButton()
        button.setObjectName(name)
        button.setCheckable(True)
        button.setAccessibleName(self.actions_[action_id].text())
        button.setToolTip(self.actions_.tooltip(action_id))
        button.clicked.connect(self.actions_[action_id].trigger)
        return button

    def _wire(self) -> None:
        view, chats, commands = self.chat_view, self.chat_list, self.commands
        handlers = {
            "new_chat": self._new_chat,
            "search": self._focus_search,
            "rename_chat": chats.rename_current,
            "delete_chat": chats.delete_current,
            "undo": self.toast.undo,
            "open_model": lambda: self.control.open_dialog(self),
            "pick_model": self._pick_model,
            "unload_model": self.control.unload,
            "stop": view.presenter.stop,
            "focus_composer": self.show_chat,
            "copy_answer": view.copy_last_answer,
            "edit_last": view.edit_last,
            "regenerate": view.regenerate_last,
            "chat_settings": commands.open_chat_settings,
            "next_chat": lambda: chats.step(1),
            "previous_chat": lambda: chats.step(-1),
            "view_chat": self.show_chat,
            "view_models": self.show_models,
            "view_inside": self.inside.show,
            "toggle_monitor": self.inside.monitor.toggle,
            "view_bench": self.bench.show,
            "view_settings": self.show_settings,
            "explain": self.inside.help.open_at_hand,
            "larger_text": commands.larger_text,
            "smaller_text": commands.smaller_text,
            "quit": self.close,
        }
        for action_id, handler in handlers.items():
            action: QAction = self.actions_[action_id]
            action.triggered.connect(lambda _=False, handler=handler: handler())
        chats.chat_chosen.connect(view.open_chat)
        chats.message_chosen.connect(view.open_chat)
        chats.delete_requested.connect(commands.delete_chat)
        for signal in (view.presenter.chat_switched, view.presenter.chat_stored):
            signal.connect(lambda chat_id: chats.set_current(chat_id))
            signal.connect(self.open_chat.put)
            signal.connect(lambda chat_id: self._engine.chats.look_at(chat_id))
        chats.view.selectionModel().currentChanged.connect(lambda *_: commands.update_actions())
        view.message_deleted.connect(commands.offer_message_back)
        view.state_changed.connect(commands.update_actions)
        view.crash.saved.connect(lambda file: self.toast.show_message(f"The report is saved as {Path(file).name}."))
        view.transcript.link_activated.connect(commands.open_link)
        view.popup.options_requested.connect(lambda path: self.show_models().show_load(path))
        self.toast.undos.changed.connect(lambda _: commands.update_actions())
        self._memory.measured.connect(view.strip.set_memory)
        self._apply_settings()

    # ---- look

    def apply_theme(self, new_theme: Theme) -> None:
        """Give every part its colours and sizes."""
        self.theme = new_theme
        scale = self._engine.settings.text_scale
        icons.set_icon(self.rail_chat, "chat", new_theme, "ink2", active="accent")
        icons.set_icon(self.rail_models, "model", new_theme, "ink2", active="accent")
        icons.set_icon(self.rail_inside, "inside", new_theme, "ink2", active="accent")
        icons.set_icon(self.rail_bench, "bench", new_theme, "ink2", active="accent")
        icons.set_icon(self.rail_settings, "settings", new_theme, "ink2", active="accent")
        for button in self.findChildren(QAbstractButton):
            size = 22 if self.rail.isAncestorOf(button) else round(16 * scale)
            button.setIconSize(QSize(size, size))
        self.chat_list.apply_theme(new_theme, scale)
        self.chat_view.apply_theme(new_theme, scale)
        self.models.apply_theme(new_theme, scale)
        self.inside.apply_theme(new_theme, scale)
        self.bench.apply_theme(new_theme, scale)
        if self.settings_view is not None:
            self.settings_view.apply_theme(new_theme, scale)

    def on_setting_changed(self, name: str) -> None:
        """A setting is another now; colours and text size are the application's business."""
        self._apply_settings()
        self.chat_view.context.on_setting_changed(name)
        if self.settings_view is not None and name in ("theme", "text_scale"):
            self.settings_view.load()

    def _apply_settings(self) -> None:
        settings = self._engine.settings
        self.chat_view.composer.set_enter_sends(settings.enter_sends)
        self.chat_view.strip.set_figures_visible(settings.show_status)

    # ---- views

    def show_chat(self) -> None:
        self.show_view(self.chat_page, self.rail_chat)
        self.chat_view.composer.setFocus()

    def show_view(self, view: QWidget, chosen: QToolButton) -> None:
        """Bring a view to the front and mark its button in the rail."""
        # an exclusive button group would take all but one button out of the Tab order
        self.views.setCurrentWidget(view)
        for button in (self.rail_chat, self.rail_models, self.rail_inside, self.rail_bench, self.rail_settings):
            button.setChecked(button is chosen)

    def show_models(self) -> ModelsView:
        view = self.models.made()
        self.show_view(view, self.rail_models)
        view.focus_first()
        return view

    def show_settings(self) -> None:
        if self.settings_view is None:
            self.settings_view = SettingsView(self._engine, self._bridge, self.control, self.actions_, self.updates)
            self.settings_view.failed.connect(self.chat_view.show_error)
            self.views.addWidget(self.settings_view)
            self.apply_theme(self.theme)
        self.settings_view.load()
        self.show_view(self.settings_view, self.rail_settings)
        self.settings_view.system_prompt.setFocus()

    # ---- commands

    def _new_chat(self) -> None:
        self.show_chat()
        self.chat_view.new_chat()

    def _focus_search(self) -> None:
        self.show_chat()
        self.chat_list.focus_search()

    def _pick_model(self) -> None:
        self.show_chat()
        self.chat_view.open_picker()

    # ---- start and end

    def start(self, model: str = "", *, load_model: bool = True) -> None:
        """Fill the window: chats, drafts, the model. To be called after the first paint."""
        self._tasks.run(icons.prepare, lambda _: icons.load(), owner=self)
        self._tasks.run(markdown.prepare, owner=self)
        self.chat_list.reload()
        self.control.look()
        self._tasks.run(self.drafts.read, self._on_drafts, owner=self)
        if self.open_chat.stored:
            self.chat_view.presenter.try_open(self.open_chat.stored)
        if load_model:
            self.models.offer_first_run()
            self.control.load_first(model)
        self._memory.start()
        self.updates.start()
        self.inside.monitor.restore()
        if self.views.currentWidget() is self.chat_page:  # the user may be elsewhere already
            self.chat_view.composer.setFocus()

    def stop(self) -> None:
        """Ask the engine for nothing any more."""
        self.commands.close_chat_settings()  # what was typed there is kept
        self._memory.stop()
        self.updates.stop()
        self.models.stop()
        self.inside.stop()
        self.bench.stop()
        self.chat_list.stop()
        self.chat_view.popup.hide()
        self.chat_view.context.stop()

    def _on_drafts(self, stored: object) -> None:
        if isinstance(stored, dict):
            self.drafts.add(stored)
            draft = self.drafts.get(self.chat_view.presenter.chat_id)
            if draft and not self.chat_view.composer.draft:
                self.chat_view.composer.set_draft(draft)

    def open_files(self, files: list[str]) -> None:
        """Come to the front with what another start was asked to open: load a file as if dropped, show a link."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()
        file = openings.file_of(files)
        if file:
            self.show_chat()
            self.control.load(file)
        openings.show_link(self, files)

    def save_state(self) -> None:
        """Remember the window's place and the open chat."""
        self.state_file.setValue("geometry", self.saveGeometry())
        self.state_file.setValue("last_chat", self.chat_view.presenter.chat_id or 0)
        self.state_file.sync()

    def _restore_geometry(self) -> None:
        geometry = self.state_file.value("geometry")
        if not (isinstance(geometry, QByteArray) and self.restoreGeometry(geometry)):
            self.resize(1180, 780)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._painted:
            self._painted = True
            QTimer.singleShot(0, self.painted.emit)

    def focusNextPrevChild(self, forward: bool) -> bool:
        return focus_order.move(self, QApplication.focusWidget(), forward=forward)

    def closeEvent(self, event: QCloseEvent) -> None:
        event.ignore()  # the application ends the engine first, then itself
        self.close_wanted.emit()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if _dropped_model(event):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        path = _dropped_model(event)
        if path:
            event.acceptProposedAction()
            self.show_chat()
            self.control.load(path)


def _dropped_model(event: QDropEvent) -> str:
    """Path of the first GGUF file that is dragged, empty if there is none."""
    files = [url.toLocalFile() for url in event.mimeData().urls() if url.isLocalFile()]
    return next((file for file in files if Path(file).suffix.lower() == ".gguf"), "")
