"""A child that writes chats until it is killed, and says on stdout what has been acknowledged.

`store_writer.py DATABASE`: the lines are "user ID TEXT" and "part ID LENGTH", written after the call returned.
"""

import sys
from pathlib import Path

from engine.message import TextPart
from engine.store.chats import ChatStore


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main() -> None:
    store = ChatStore(Path(sys.argv[1]))
    store.mark_interrupted()
    chat = store.create_chat()
    say("ready")
    parent = None
    for number in range(1_000_000):
        question = store.add_message(chat.id, parent, "user", (TextPart(f"question-{number}"),))
        say("user", question.id, f"question-{number}")
        answer = store.add_message(chat.id, question.id, "assistant", (TextPart(""),), status="streaming")
        for length in range(1, 6):
            store.update_message(answer.id, parts=(TextPart("word " * length),))
            say("part", answer.id, length)
        store.update_message(answer.id, status="complete")
        parent = answer.id


main()
