"""What happens when you ask: one real request, step by step."""
