"""Pure data that every other part passes around; imports nothing of ours but errors."""
