"""Where the bytes of an environment, a package, a wheel, a channel or a requirement go."""
