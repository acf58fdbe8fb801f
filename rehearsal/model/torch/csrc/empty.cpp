// libtorch has no code of its own: it exists for what it links to.
