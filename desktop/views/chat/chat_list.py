"""The panel beside the chat: search, a new chat, and the list of chats."""

from __future__ import annotations

import datetime as dt
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QModelIndex, QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListView,
    QMenu,
    QSizePolicy,
    QSpacerItem,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from desktop import icons, theme
from desktop.actions import Actions
from desktop.bridge import EngineBridge
from desktop.delegates.chat_list import ChatListDelegate
from desktop.models.chat_list import UNTITLED, ChatListModel, Role, Row, grouped
from desktop.theme import Theme
from desktop.widgets.term import PROPERTY, add_to_menu, explain
from engine.errors import EngineError
from engine.message import Chat

if TYPE_CHECKING:
    from engine.service import Engine
    from engine.store.chats import SearchHit

_SEARCH_DELAY_MS = 180
_RELOAD_DELAY_MS = 60
_ARROW_DELAY_MS = 150
#: of the glossary: what the model sees of a chat
_TERM = "context_window"
_log = logging.getLogger("inglenook.desktop")


def _on_no_chats(error: BaseException) -> None:
    """The list stays as it is. Why the chats cannot be read is told where the conversation would be."""
    if isinstance(error, EngineError):
        _log.warning("the chats cannot be listed: %s", error)
    else:
        sys.excepthook(type(error), error, error.__traceback__)


class _SearchBox(QLineEdit):
    """Esc empties it, Down goes to the list.

    Signals:
        leave_down: the user wants to go into the list.
    """

    leave_down = Signal()

    def event(self, event: QEvent) -> bool:
        if (
            event.type() == QEvent.Type.ShortcutOverride
            and isinstance(event, QKeyEvent)
            and event.key() == Qt.Key.Key_Escape
            and self.text()
        ):
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self.text():
            self.clear()
        elif event.key() in (Qt.Key.Key_Down, Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.leave_down.emit()
        else:
            super().keyPressEvent(event)


class _ChatListView(QListView):
    """Signals:
    activated_by_key: Enter was pressed on the list. escaped: Esc was pressed on hits of a search.
    """

    entered = Signal()
    escaped = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._shows_hits = False

    def set_shows_hits(self, on: bool) -> None:
        """Whether it is the result of a search; Esc ends that before it does anything else."""
        self._shows_hits = on

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ShortcutOverride and isinstance(event, QKeyEvent) and self._ends_search(event):
            event.accept()
            return True
        return super().event(event)

    def _ends_search(self, event: QKeyEvent) -> bool:
        editing = self.state() == QAbstractItemView.State.EditingState
        return self._shows_hits and not editing and event.key() == Qt.Key.Key_Escape

    def keyPressEvent(self, event: QKeyEvent) -> None:
        editing = self.state() == QAbstractItemView.State.EditingState
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and not editing:
            self.entered.emit()
            return
        if self._ends_search(event):
            self.escaped.emit()
            return
        super().keyPressEvent(event)


class ChatListPanel(QWidget):
    """Signals:
    chat_chosen(int): open this chat. message_chosen(int, int): open this chat at this message.
    delete_requested(int, str): delete this chat (id, title).
    """

    chat_chosen = Signal(int)
    message_chosen = Signal(int, int)
    delete_requested = Signal(int, str)

    def __init__(self, engine: Engine, bridge: EngineBridge, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._bridge = bridge
        self._actions = actions
        self._chats: list[Chat] = []
        self._hits: list[SearchHit] | None = None
        self._writing: frozenset[int] = frozenset()
        self._current = 0
        self._query_number = 0
        self._setting_current = False
        self.setObjectName("chat_list_panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.model = ChatListModel(self)
        self.model.rename_requested.connect(self._rename)
        self._delegate = ChatListDelegate(self)
        self._build()
        self._search_timer = self._timer(_SEARCH_DELAY_MS, self._run_search)
        self._reload_timer = self._timer(_RELOAD_DELAY_MS, self.reload)
        self._arrow_timer = self._timer(_ARROW_DELAY_MS, self._open_current)
        bridge.chat_list_changed.connect(lambda _: self._reload_timer.start())
        bridge.generation_started.connect(lambda e: self._set_writing(self._writing | {e.chat_id}))
        bridge.generation_finished.connect(lambda e: self._set_writing(self._writing - {e.chat_id}))

    def _timer(self, interval_ms: int, slot: Callable[[], None]) -> QTimer:
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.setInterval(interval_ms)
        timer.timeout.connect(slot)
        return timer

    def _build(self) -> None:
        self.search = _SearchBox()
        self.search.setObjectName("search")
        self.search.setPlaceholderText("Search chats")
        self.search.setAccessibleName("Search chats")
        self.search.setToolTip(self._actions.tooltip("search"))
        self.search.setClearButtonEnabled(False)
        self.search.textChanged.connect(lambda _: self._search_timer.start())
        self.search.leave_down.connect(self.focus_list)
        self.new_chat = QToolButton()
        self.new_chat.setObjectName("new_chat")
        self.new_chat.setProperty("kind", "icon")
        self.new_chat.setAccessibleName("New chat")
        self.new_chat.setToolTip(self._actions.tooltip("new_chat"))
        self.new_chat.clicked.connect(self._actions["new_chat"].trigger)
        explain(self.new_chat, _TERM, self.new_chat.toolTip())
        top = QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(self.search, 1)
        top.addWidget(self.new_chat)

        self.view = _ChatListView()
        self.view.setObjectName("chat_list")
        self.view.setAccessibleName("Chats")
        self.view.setToolTip("Your chats. Enter opens, F2 renames, Del deletes, F1 tells what the model sees of a chat")
        self.view.setProperty(PROPERTY, _TERM)  # its menu is its own
        self.view.setModel(self.model)
        self.view.setItemDelegate(self._delegate)
        self.view.setMouseTracking(True)
        self.view.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.view.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.view.customContextMenuRequested.connect(self._context_menu)
        self.view.clicked.connect(self._on_clicked)
        self.view.entered.connect(self._open_current)
        self.search.textChanged.connect(lambda text: self.view.set_shows_hits(bool(text)))
        self.view.escaped.connect(self.search.clear)
        self.view.selectionModel().currentChanged.connect(self._on_current_changed)
        delete = self._actions["delete_chat"]
        delete.setShortcutContext(Qt.ShortcutContext.WidgetShortcut)
        self.view.addAction(delete)  # Del deletes a chat only while the list has the focus
        self.empty = QLabel("No chats yet")
        self.empty.setProperty("role", "label")
        self.empty.setContentsMargins(10, 12, 8, 0)
        explain(self.empty, _TERM, "")  # the glossary is not read at the start
        self.empty.hide()

        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 12, 12, 8)
        layout.setSpacing(8)
        layout.addLayout(top)
        layout.addWidget(self.empty)
        layout.addWidget(self.view, 1)
        self._wide = QSpacerItem(0, 0)
        layout.addSpacerItem(self._wide)

    def stop(self) -> None:
        """Ask the engine for nothing any more."""
        for timer in (self._search_timer, self._reload_timer, self._arrow_timer):
            timer.stop()

    # ---- look

    def apply_theme(self, new_theme: Theme, scale: float) -> None:
        self._delegate.apply_theme(new_theme, scale)
        self.view.scheduleDelayedItemsLayout()
        self.view.viewport().update()
        icons.set_icon(self.new_chat, "new", new_theme, "ink")
        wide = round(theme.LIST_WIDTH * max(1.0, min(scale, 1.4)))
        # with large text it gives some of its width to the chat where the window is narrow
        self._wide.changeSize(wide, 0, QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.setMinimumWidth(min(wide, theme.LIST_WIDTH))
        self.setMaximumWidth(wide)

    # ---- content

    def reload(self) -> None:
        """Ask the engine for the chats, and for the hits of a running search."""
        self._bridge.run(self._engine.chats.list(), self._on_chats, _on_no_chats, owner=self)
        if self.search.text().strip():
            self._run_search()

    def _on_chats(self, chats: list[Chat]) -> None:
        self._chats = chats
        self._writing = frozenset(self._engine.chats.generating())
        self._show()

    def _show(self) -> None:
        if self._hits is None:
            self.model.set_rows(grouped(self._chats, self._writing, dt.datetime.now()))
            self.empty.setText("No chats yet")
        else:
            n_hits = len(self._hits)
            title = "No chat holds these words" if not n_hits else f"{n_hits} found"
            rows = [Row(title)] if n_hits else []
            rows += [
                Row(
                    hit.chat_title or UNTITLED,
                    hit.chat_id,
                    hit.chat_id in self._writing,
                    hit.snippet,
                    hit.message_id or 0,
                )
                for hit in self._hits
            ]
            self.model.set_rows(rows)
            self.empty.setText(title)
        self.empty.setVisible(self.model.rowCount() == 0)
        self._select_current()

    def set_current(self, chat_id: int | None) -> None:
        """Mark the chat that is open; None for a new one that is not stored yet."""
        self._current = chat_id or 0
        self._select_current()

    @property
    def current_chat(self) -> Chat | None:
        return next((chat for chat in self._chats if chat.id == self._current), None)

    def title_of(self, chat_id: int) -> str:
        return next((chat.title for chat in self._chats if chat.id == chat_id), "") or "New chat"

    def _select_current(self) -> None:
        selection = self.view.selectionModel()
        index = self.model.index_of(self._current) if self._current else QModelIndex()
        shown = self.view.currentIndex()
        if index.isValid() and shown.isValid() and shown.data(Role.CHAT_ID) == self._current:
            index = shown  # several hits of one chat: stay on the one that was chosen
        self._setting_current = True
        if index.isValid():
            flag = selection.SelectionFlag.ClearAndSelect
            selection.setCurrentIndex(index, flag)
            self.view.scrollTo(index)
        else:
            selection.clear()
        self._setting_current = False

    def _set_writing(self, writing: frozenset[int]) -> None:
        self._writing = writing
        self.model.set_writing(writing)

    # ---- search

    def focus_search(self) -> None:
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()

    def focus_list(self) -> None:
        """Put the keyboard into the list, on the current or the first chat."""
        if not self.view.currentIndex().isValid():
            first = next((r for r in range(self.model.rowCount()) if self.model.index(r).data(Role.CHAT_ID)), None)
            if first is None:
                return
            self.view.setCurrentIndex(self.model.index(first))
        self.view.setFocus(Qt.FocusReason.TabFocusReason)

    def _run_search(self) -> None:
        query = self.search.text().strip()
        self._query_number += 1
        number = self._query_number
        if not query:
            self._hits = None
            self._show()
            return

        def show(hits: list[SearchHit]) -> None:
            if number == self._query_number:  # a slower answer to an older question is no answer
                self._hits = hits
                self._show()

        self._bridge.run(self._engine.chats.search(query), show, _on_no_chats, owner=self)

    # ---- choosing

    def _on_clicked(self, index: QModelIndex) -> None:
        self._arrow_timer.stop()
        self._open(index)

    def _on_current_changed(self, current: QModelIndex, _: QModelIndex) -> None:
        if not self._setting_current and current.isValid() and self.view.hasFocus():
            self._arrow_timer.start()

    def _open_current(self) -> None:
        self._open(self.view.currentIndex())

    def _open(self, index: QModelIndex) -> None:
        row = self.model.row_at(index)
        if row is None or not row.chat_id:
            return
        if row.message_id:
            self._current = row.chat_id
            self.message_chosen.emit(row.chat_id, row.message_id)
        elif row.chat_id != self._current:
            self._current = row.chat_id
            self.chat_chosen.emit(row.chat_id)

    def step(self, step: int) -> None:
        """Open the next or previous chat of the list."""
        chat_id = self.model.neighbour(self._current, step)
        if chat_id:
            self.chat_chosen.emit(chat_id)

    # ---- changing

    def rename_current(self) -> None:
        """Edit a title in place: of the row with the focus, else of the open chat."""
        focused = self.view.currentIndex()
        index = focused if self.view.hasFocus() and focused.isValid() else self.model.index_of(self._current)
        if index.isValid():
            self.view.setCurrentIndex(index)
            self.view.edit(index)

    def delete_current(self) -> None:
        """Ask for the deletion of the row with the focus, else of the open chat."""
        row = self.model.row_at(self.view.currentIndex()) or self.model.row_at(self.model.index_of(self._current))
        if row is not None and row.chat_id:
            self.delete_requested.emit(row.chat_id, row.title)

    def _rename(self, chat_id: int, title: str) -> None:
        self._bridge.run(self._engine.chats.rename(chat_id, title), owner=self)

    def _context_menu(self, point: QPoint) -> None:
        index = self.view.indexAt(point)
        row = self.model.row_at(index)
        if row is None or not row.chat_id:
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        rename = menu.addAction("Rename")
        rename.triggered.connect(lambda: self.view.edit(self.model.index_of(row.chat_id)))
        delete = menu.addAction("Delete")
        delete.triggered.connect(lambda: self.delete_requested.emit(row.chat_id, row.title))
        add_to_menu(menu, self.view, _TERM)
        menu.popup(self.view.viewport().mapToGlobal(point))
