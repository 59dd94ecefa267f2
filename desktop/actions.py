"""Every command of the window, declared once: words, shortcut, and when it is possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction, QKeySequence


@dataclass(frozen=True)
class UiState:
    """What decides which commands are possible now."""

    has_chat: bool = False
    has_answer: bool = False
    has_user_message: bool = False
    generating: bool = False
    model_ready: bool = False
    model_loading: bool = False
    can_undo: bool = False


def _always(_: UiState) -> bool:
    return True


@dataclass(frozen=True)
class ActionSpec:
    """Declaration of one command.

    Attributes:
        text: its name in menus. tip: one sentence for the tooltip. shortcuts: portable key sequences.
        enabled_when: whether it is possible in a state of the window.
    """

    id: str
    text: str
    tip: str
    shortcuts: tuple[str, ...] = ()
    enabled_when: Callable[[UiState], bool] = field(default=_always)


SPECS: tuple[ActionSpec, ...] = (
    ActionSpec("new_chat", "New chat", "Start a new chat", ("Ctrl+N",)),
    ActionSpec("search", "Search chats", "Search the titles and texts of all chats", ("Ctrl+F", "Ctrl+K")),
    ActionSpec("rename_chat", "Rename chat", "Give this chat another title", ("F2",), lambda s: s.has_chat),
    ActionSpec("delete_chat", "Delete chat", "Delete this chat; it can be undone", ("Del",), lambda s: s.has_chat),
    ActionSpec("undo", "Undo", "Take back the last deletion", ("Ctrl+Z",), lambda s: s.can_undo),
    ActionSpec("open_model", "Open a GGUF file…", "Load a model from a GGUF file", ("Ctrl+O",)),
    ActionSpec("pick_model", "Choose a model", "Show the list of models", ("Ctrl+M",)),
    ActionSpec(
        "unload_model",
        "Unload model",
        "End the model process and free its memory",
        (),
        lambda s: s.model_ready and not s.generating,
    ),
    ActionSpec("stop", "Stop", "Stop writing; the text so far is kept", ("Esc",), lambda s: s.generating),
    ActionSpec("focus_composer", "Write a message", "Go to the message field", ("Ctrl+L",)),
    ActionSpec(
        "copy_answer",
        "Copy last answer",
        "Copy the last answer as it was written, in Markdown",
        ("Ctrl+Shift+C",),
        lambda s: s.has_answer,
    ),
    ActionSpec(
        "edit_last",
        "Edit last message",
        "Change your last message and ask again; the old one is kept as a version",
        ("Ctrl+Up",),
        lambda s: s.has_user_message and not s.generating,
    ),
    ActionSpec(
        "regenerate",
        "Write the answer again",
        "Write another version of the last answer; the old one is kept",
        ("Ctrl+R",),
        lambda s: (s.has_answer or s.has_user_message) and not s.generating,
    ),
    ActionSpec("chat_settings", "Settings of this chat", "System prompt and sampling for this chat only", ("Ctrl+I",)),
    ActionSpec("next_chat", "Next chat", "Open the chat below in the list", ("Ctrl+PgDown",)),
    ActionSpec("previous_chat", "Previous chat", "Open the chat above in the list", ("Ctrl+PgUp",)),
    ActionSpec("view_chat", "Chat", "Show the chat", ("Ctrl+1",)),
    ActionSpec("view_models", "Models", "Find, keep and load models", ("Ctrl+2",)),
    ActionSpec("view_inside", "Inside", "See what the model does: speed, KV cache, memory", ("Ctrl+3",)),
    ActionSpec(
        "toggle_monitor",
        "Monitor beside the chat",
        "Show or hide speed, KV cache and memory beside the chat",
        ("Ctrl+Shift+I",),
    ),
    ActionSpec("view_bench", "Benchmark", "Measure how fast models read and write here", ("Ctrl+4",)),
    ActionSpec("view_settings", "Settings", "Show the settings", ("Ctrl+,",)),
    ActionSpec("explain", "What is this?", "Open the glossary at what has the focus or is under the mouse", ("F1",)),
    ActionSpec("larger_text", "Larger text", "Make all text larger", ("Ctrl++", "Ctrl+=")),
    ActionSpec("smaller_text", "Smaller text", "Make all text smaller", ("Ctrl+-",)),
    ActionSpec("quit", "Quit", "Close Inglenook; chats are saved", ("Ctrl+Q",)),
)


class Actions(QObject):
    """The QActions of one window, by id."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._specs = {spec.id: spec for spec in SPECS}
        self._actions: dict[str, QAction] = {}
        self._state = UiState()
        for spec in SPECS:
            action = QAction(spec.text, self)
            action.setObjectName(f"action_{spec.id}")
            action.setShortcuts([QKeySequence(keys) for keys in spec.shortcuts])
            action.setToolTip(self.tooltip(spec.id))
            self._actions[spec.id] = action
        self.update(self._state)

    def __getitem__(self, action_id: str) -> QAction:
        return self._actions[action_id]

    def __iter__(self) -> Iterator[QAction]:
        return iter(self._actions.values())

    @property
    def state(self) -> UiState:
        return self._state

    def update(self, state: UiState) -> None:
        """Enable what is possible in this state."""
        self._state = state
        for action_id, action in self._actions.items():
            action.setEnabled(self._specs[action_id].enabled_when(state))

    def tooltip(self, action_id: str) -> str:
        """The sentence for the tooltip, with the shortcut as this system writes it."""
        spec = self._specs[action_id]
        if not spec.shortcuts:
            return spec.tip
        return f"{spec.tip} ({self.keys(action_id)})"

    def keys(self, action_id: str) -> str:
        """The first shortcut as this system writes it."""
        shortcuts = self._specs[action_id].shortcuts
        return QKeySequence(shortcuts[0]).toString(QKeySequence.SequenceFormat.NativeText) if shortcuts else ""
