#!/usr/bin/env bash
# Make the container image for rehearsals from this system's own Debian (or Ubuntu) packages.
#
# The image has the same release as this system, because the local channel's packages come from this system: its Pythons
# need this system's C library and the libraries of the standard library, and its compiler packages expect the version of
# /usr/bin/gcc.
set -u -o pipefail

usage() {
    cat <<'HELP'
usage: rehearsal/image/make-image.sh [docker|podman] [NAME]

Makes the image NAME (default: megabuild-rehearsal:<codename of this system>) for
`python3 build-locally.py CONFIG --rehearse --engine docker` (or podman).

Needs mmdebstrap (apt-get install mmdebstrap), package lists (apt-get update), and root or user namespaces.
Packages come from the mirrors of this system's apt.
HELP
}

fail() {
    echo "make-image.sh: error: $*" >&2
    exit 1
}

case ${1:-} in
-h | --help) usage; exit 0 ;;
esac
(($# <= 2)) || { usage >&2; exit 2; }

engine=${1:-docker}
case $engine in
docker | podman) ;;
*) usage >&2; exit 2 ;;
esac

# shellcheck disable=SC1091
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[[ -n $codename ]] || fail "/etc/os-release has no codename: is this system Debian or Ubuntu?"
image=${2:-megabuild-rehearsal:$codename}

for tool in "$engine" mmdebstrap apt-get; do
    command -v "$tool" >/dev/null || fail "$tool is not installed"
done

# python3 requires all libraries that CPython's standard library links to.
packages=(bash ca-certificates ccache g++ gcc git libc6-dev make patch python3)

# Print apt's sources of this release's main component only: other repositories need other keys.
sources() {
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        while read -r uri release component; do
            case $release in
            "$codename" | "$codename-updates" | "$codename-security") ;;
            *) continue ;;
            esac
            [[ $component != main ]] || echo "deb $uri $release main"
        done | sort -u
}

list=$(sources) || fail "cannot list apt's sources"
[[ -n $list ]] || fail "apt has no source of $codename/main: run apt-get update first"

# Through a file instead of a pipe: from a pipe, the engine would also import an incomplete system.
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/megabuild-image.XXXXXX") || fail "cannot create a temporary folder"
trap 'rm -rf "$scratch"' EXIT

printf -v include '%s,' "${packages[@]}"
mmdebstrap --quiet --variant=minbase --include="${include%,}" "$codename" "$scratch/root.tar" - <<<"$list" ||
    fail "mmdebstrap failed with the packages ${packages[*]}"
"$engine" import --change 'CMD ["bash"]' "$scratch/root.tar" "$image" >/dev/null ||
    fail "$engine cannot import the image $image: check that \`$engine info\` works"
echo "$image"
