"""What the loaded model is made of: its layers, where each lies, and what they weigh."""
