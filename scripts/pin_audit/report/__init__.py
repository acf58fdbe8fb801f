"""The table on paper: what stands in its cells, as Markdown and as JSON."""
