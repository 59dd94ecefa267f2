"""Chats: sessions, prompts made from messages, export."""
