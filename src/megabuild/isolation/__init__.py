"""Where a build runs: on the host, in a root folder (bubblewrap), or in a container (docker, podman)."""
