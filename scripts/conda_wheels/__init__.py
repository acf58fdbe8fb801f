"""What was built as conda packages, as wheels with an index for pip, uv and poetry."""
