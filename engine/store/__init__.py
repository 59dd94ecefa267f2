"""What is kept on disk: chats in SQLite."""
