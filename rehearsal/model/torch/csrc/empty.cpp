// libtorch has no code: it only links other libraries.
