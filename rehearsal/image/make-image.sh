#!/usr/bin/env bash
# Make the container image in which a rehearsal runs, from nothing but this system's own Debian (or Ubuntu) packages.
#
# The image has the release of the system that makes it. The local channel's interpreters come from this system and
# need its C library and the libraries behind the standard library; its compiler packages point at /usr/bin/gcc and
# expect the version that is there.
set -u -o pipefail

usage() {
    cat <<'HELP'
usage: rehearsal/image/make-image.sh [docker|podman] [NAME]

Makes the image NAME (default: megabuild-rehearsal:<codename of this system>) in which
`python3 build-locally.py CONFIG --rehearse --engine docker` (or podman) runs.

Needs mmdebstrap (apt-get install mmdebstrap), an apt that has been updated, and root or user namespaces.
Packages come from the mirrors that this system's apt is set up for.
HELP
}

fail() {
    echo "make-image.sh: $*" >&2
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
[[ -n $codename ]] || fail "this system has no codename in /etc/os-release; is it Debian or Ubuntu?"
image=${2:-megabuild-rehearsal:$codename}

for tool in "$engine" mmdebstrap apt-get; do
    command -v "$tool" >/dev/null || fail "$tool is needed and not installed"
done

# python3 brings every library that CPython's standard library links to.
packages=(bash ca-certificates ccache g++ gcc git libc6-dev make patch python3)

# What apt is set up for here, but only this release's own main component: further repositories have further keys.
sources() {
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        while read -r uri release component; do
            case $release in
            "$codename" | "$codename-updates" | "$codename-security") ;;
            *) continue ;;
            esac
            [[ $component == main ]] && echo "deb $uri $release main"
        done | sort -u
}

list=$(sources)
[[ -n $list ]] || fail "apt knows no source of $codename/main; run apt-get update first"

# Through a file rather than a pipe: the engine would make an image of half a system as readily as of a whole one.
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/megabuild-image.XXXXXX") || fail "no room for a temporary folder"
trap 'rm -rf "$scratch"' EXIT

printf -v include '%s,' "${packages[@]}"
mmdebstrap --quiet --variant=minbase --include="${include%,}" "$codename" "$scratch/root.tar" - <<<"$list" ||
    fail "mmdebstrap could not make a system out of the packages ${packages[*]}"
"$engine" import --change 'CMD ["bash"]' "$scratch/root.tar" "$image" >/dev/null ||
    fail "$engine did not take the image $image; does \`$engine info\` answer?"
echo "$image"
