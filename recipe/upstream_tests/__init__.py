"""Packs PyTorch's own tests that selection.ini selects (`gather`), and runs them with the installed torch (`run`)."""
