"""Where a message is written. Enter sends; a large paste becomes a block beside the text, not a frozen editor."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QMimeData, QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QInputMethodEvent, QKeyEvent, QKeySequence, QResizeEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QPlainTextEdit,
    QPushButton,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from desktop import fonts, icons
from desktop.actions import Actions
from desktop.drafts import Draft
from desktop.theme import LIGHT, Theme
from desktop.widgets.elided_label import ElidedLabel

#: a paste above this many characters, or one that brings the editor above it, becomes a block
BLOCK_CHARS = 64 * 1024
MAX_LINES = 8
_PREVIEW_CHARS = 20_000


class PastedBlock(QFrame):
    """A large pasted text: its size in words, a preview on demand, a way to remove it.

    Signals:
        removed(PastedBlock)
    """

    removed = Signal(object)

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.text = text
        self.setObjectName("pasted_block")
        n_lines = text.count("\n") + (not text.endswith("\n"))
        words = f"{n_lines:,} lines" if n_lines > 1 else "1 line"
        title = f"Pasted text, {words}, {len(text):,} characters"
        self.setAccessibleName(title)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(10, 2, 2, 2)
        layout.setSpacing(2)
        row = QHBoxLayout()
        row.setSpacing(2)
        label = ElidedLabel(title)
        label.setProperty("role", "secondary")
        row.addWidget(label, 1)
        self.expand = self._button("pasted_expand", "Show the pasted text", row)
        self.remove = self._button("pasted_remove", "Remove the pasted text", row)
        self.expand.clicked.connect(self.toggle)
        self.remove.clicked.connect(lambda: self.removed.emit(self))
        layout.addLayout(row)
        self._preview: QPlainTextEdit | None = None

    def _button(self, name: str, words: str, row: QHBoxLayout) -> QToolButton:
        button = QToolButton()
        button.setObjectName(name)
        button.setProperty("kind", "text")
        button.setAccessibleName(words)
        button.setToolTip(words)
        row.addWidget(button)
        return button

    def apply_theme(self, theme: Theme) -> None:
        icons.set_icon(self.expand, "down" if self._preview is None else "up", theme)
        icons.set_icon(self.remove, "close", theme)

    def toggle(self) -> None:
        """Show or hide the beginning of the text. It is cut: one line of a megabyte takes seconds to lay out."""
        if self._preview is not None:
            self._preview.deleteLater()
            self._preview = None
            return
        shown = self.text[:_PREVIEW_CHARS]
        if len(self.text) > _PREVIEW_CHARS:
            shown += f"\n[the first {_PREVIEW_CHARS:,} of {len(self.text):,} characters are shown; all are sent]"
        preview = QPlainTextEdit(shown)
        preview.setObjectName("pasted_preview")
        preview.setReadOnly(True)
        preview.setFont(fonts.mono_font())
        preview.setFixedHeight(140)
        preview.setAccessibleName("The pasted text")
        preview.setToolTip("The beginning of the pasted text")
        self._preview = preview
        layout = self.layout()
        if layout is not None:
            layout.addWidget(preview)


class ComposerEdit(QPlainTextEdit):
    """The editor itself.

    Signals:
        submitted: the user pressed the sending key. pasted_large(str): a paste too large for an editor.
        focus_changed(bool)
    """

    submitted = Signal()
    pasted_large = Signal(str)
    focus_changed = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.enter_sends = True
        self._composing = False
        self.setObjectName("composer")
        self.setAccessibleName("Message")
        self.setPlaceholderText("Message…")
        self.setTabChangesFocus(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.document().setDocumentMargin(2)
        self.document().clearUndoRedoStacks()  # Ctrl+Z would take the margin back
        self.document().documentLayout().documentSizeChanged.connect(lambda _: self.fit())
        self.fit()

    @property
    def composing(self) -> bool:
        """An input method holds unfinished text: Enter belongs to it."""
        return self._composing

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._composing = bool(event.preeditString())
        super().inputMethodEvent(event)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ShortcutOverride and isinstance(event, QKeyEvent):
            undo = event.matches(QKeySequence.StandardKey.Undo)
            if undo and not self.document().isUndoAvailable():
                event.ignore()  # with nothing typed to take back, the key is the window's: the last deletion
                return False
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and not self._composing:
            modifiers = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
            plain = modifiers == Qt.KeyboardModifier.NoModifier
            control = modifiers == Qt.KeyboardModifier.ControlModifier
            if control or (plain and self.enter_sends):
                self.submitted.emit()
                return
            if plain or modifiers == Qt.KeyboardModifier.ShiftModifier:
                if modifiers and not self.enter_sends:
                    self.submitted.emit()
                else:
                    self.insertPlainText("\n")  # a real line end, not the line separator Qt makes of Shift+Enter
                    self.ensureCursorVisible()
                return
        super().keyPressEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._composing = False
        super().focusOutEvent(event)
        self.focus_changed.emit(False)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit(True)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        # files dropped here belong to the window (it loads models), not into the text
        return source.hasText() and not source.hasUrls()

    def insertFromMimeData(self, source: QMimeData) -> None:
        if source.hasUrls() and not source.hasText():
            return
        text = source.text().replace("\r\n", "\n").replace("\r", "\n").replace("\u2029", "\n")
        if len(text) > BLOCK_CHARS or self.document().characterCount() + len(text) > BLOCK_CHARS:
            self.pasted_large.emit(text)
        else:
            self.textCursor().insertText(text)
            self.ensureCursorVisible()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self.fit()

    def fit(self) -> None:
        """As high as the text, from one line to eight."""
        n_lines = max(1, min(MAX_LINES, round(self.document().size().height())))
        line = self.fontMetrics().lineSpacing()
        self.setFixedHeight(n_lines * line + 2 * round(self.document().documentMargin()) + 2)
        scrolls = self.document().size().height() > MAX_LINES
        policy = Qt.ScrollBarPolicy.ScrollBarAsNeeded if scrolls else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        self.setVerticalScrollBarPolicy(policy)


class Composer(QFrame):
    """Editor, pasted blocks, and one button: Send, or Stop while an answer is written.

    Signals:
        send_requested(str): the whole message. changed: the draft is another.
    """

    send_requested = Signal(str)
    changed = Signal()

    def __init__(self, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._actions = actions
        self._theme = LIGHT
        self._generating = False
        self._blocks: list[PastedBlock] = []
        self.setObjectName("composer_frame")
        self.edit = ComposerEdit()
        self.edit.setToolTip("Write a message. Enter sends, Shift+Enter starts a new line")
        self.edit.submitted.connect(self.submit)
        self.edit.pasted_large.connect(self.add_block)
        self.edit.textChanged.connect(self._on_changed)
        self.edit.focus_changed.connect(self._on_focus)
        self.setFocusProxy(self.edit)
        self._block_box = QVBoxLayout()
        self._block_box.setSpacing(4)
        self.hint = ElidedLabel()
        self.hint.setObjectName("composer_hint")
        self.hint.setProperty("role", "label")
        self.send = QPushButton("Send")
        self.send.setObjectName("send")
        self.send.setProperty("kind", "primary")
        self.send.setAccessibleName("Send")
        self.send.clicked.connect(self.submit)
        self.stop = QPushButton("Stop")
        self.stop.setObjectName("stop")
        self.stop.setAccessibleName("Stop")
        self.stop.setToolTip(actions.tooltip("stop"))
        self.stop.clicked.connect(actions["stop"].trigger)
        self.stop.setText(f"Stop  {actions.keys('stop')}")
        self.stop.hide()
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.hint, 1)
        row.addWidget(self.stop)
        row.addWidget(self.send)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(14, 12, 10, 10)
        layout.setSpacing(8)
        layout.addLayout(self._block_box)
        layout.addWidget(self.edit)
        layout.addLayout(row)
        self.set_enter_sends(True)
        self._update_button()

    # ---- content

    def text(self) -> str:
        """The whole message: what is written, then the pasted blocks, an empty line between them."""
        parts = [self.edit.toPlainText().strip("\n"), *(block.text for block in self._blocks)]
        return "\n\n".join(part for part in parts if part.strip())

    @property
    def draft(self) -> Draft:
        return Draft(self.edit.toPlainText(), tuple(block.text for block in self._blocks))

    def set_draft(self, draft: Draft) -> None:
        """Replace everything; `changed` is not sent."""
        self.edit.blockSignals(True)
        for block in self._blocks:
            block.hide()
            block.deleteLater()
        self._blocks = []
        for text in draft.blocks:
            self._insert_block(text)
        if len(draft.text) > BLOCK_CHARS:
            self._insert_block(draft.text)
            self.edit.setPlainText("")
        else:
            self.edit.setPlainText(draft.text)
        self.edit.moveCursor(self.edit.textCursor().MoveOperation.End)
        self.edit.blockSignals(False)
        self.edit.fit()
        self._update_button()

    def clear(self) -> None:
        self.set_draft(Draft())

    def add_block(self, text: str) -> None:
        """Put a large text beside the editor."""
        self._insert_block(text)
        self._on_changed()

    def _insert_block(self, text: str) -> None:
        block = PastedBlock(text)
        block.apply_theme(self._theme)
        block.removed.connect(self._remove_block)
        self._blocks.append(block)
        self._block_box.addWidget(block)

    def _remove_block(self, block: PastedBlock) -> None:
        if block in self._blocks:
            self._blocks.remove(block)
            block.hide()
            block.deleteLater()
            self._on_changed()
            self.edit.setFocus()

    @property
    def blocks(self) -> tuple[PastedBlock, ...]:
        return tuple(self._blocks)

    # ---- state

    def submit(self) -> None:
        """Send what is there; nothing happens while an answer is written or when it is empty."""
        if self._generating or self.edit.composing:
            return
        text = self.text()
        if text.strip():
            self.send_requested.emit(text)

    def set_generating(self, generating: bool) -> None:
        """Send becomes Stop while an answer is written."""
        had_focus = self.send.hasFocus() or self.stop.hasFocus()
        self._generating = generating
        self.stop.setVisible(generating)
        self.send.setVisible(not generating)
        if had_focus:
            (self.stop if generating else self.edit).setFocus()
        self._update_button()

    def set_hint(self, text: str) -> None:
        """One line under the text: what will happen."""
        self.hint.setText(text)

    def set_enter_sends(self, enter_sends: bool) -> None:
        self.edit.enter_sends = enter_sends
        send, line = ("Enter", "Shift+Enter") if enter_sends else ("Shift+Enter", "Enter")
        self.edit.setToolTip(f"Write a message. {send} sends, {line} starts a new line")
        self.send.setToolTip(f"Send the message ({send})")

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme = theme
        self.edit.setFont(fonts.transcript_font(scale))
        self.edit.fit()
        icons.set_icon(self.stop, "stop", theme, "ink")
        for block in self._blocks:
            block.apply_theme(theme)

    def sizeHint(self) -> QSize:
        return QSize(super().sizeHint().width(), self.minimumSizeHint().height())

    def _on_changed(self) -> None:
        self._update_button()
        self.changed.emit()

    def _update_button(self) -> None:
        self.send.setEnabled(bool(self._blocks) or not self.edit.document().isEmpty())

    def _on_focus(self, focused: bool) -> None:
        self.setProperty("focused", focused)
        self.style().unpolish(self)
        self.style().polish(self)
