# Debian packages that a script cannot do without: sourced by scripts/setup, scripts/test and scripts/ci/*.
# Who sources this defines `say` (a progress line) and `fail` (one line, then exit 1).

# packages_missing PACKAGE…: those of them that are not installed, one a line.
packages_missing() {
    local package
    for package in "$@"; do
        if [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
            echo "$package"
        fi
    done
}

# packages_known PACKAGE…: whether apt could install all of them, as far as its lists tell.
packages_known() {
    local package
    for package in "$@"; do
        apt-cache show --no-all-versions "$package" >/dev/null 2>&1 || return 1
    done
}

# packages_refresh: fetch apt's lists, once a run. A failure shows when something is then installed.
packages_refresh() {
    [[ -z ${packages_fresh-} ]] || return 0
    packages_fresh=yes
    say "fetching the lists of packages"
    packages_as_root apt-get -qq update >/dev/null 2>&1 || true
}

# packages_need PACKAGE…: install those that are missing, or fail in one line that names them.
packages_need() {
    local missing said
    mapfile -t missing < <(packages_missing "$@")
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null || fail "there is no apt-get here: install what corresponds to ${missing[*]}"
    packages_as_root true 2>/dev/null ||
        fail "neither root nor able to use sudo: have an administrator run apt-get install ${missing[*]}"
    packages_known "${missing[@]}" || packages_refresh
    say "installing ${missing[*]}"
    if ! said=$(packages_install "${missing[@]}"); then
        packages_refresh # an old list names versions that are no longer there
        said=$(packages_install "${missing[@]}") ||
            fail "apt-get install ${missing[*]}: $(grep -m 1 '^E: ' <<<"$said" || echo failed)"
    fi
}

packages_install() {
    packages_as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
        -o DPkg::Lock::Timeout=300 install "$@" 2>&1 </dev/null
}

# packages_as_root COMMAND…: sudo may ask for a password only where somebody can answer.
packages_as_root() {
    if ((EUID == 0)); then
        "$@"
    elif ! command -v sudo >/dev/null; then
        return 1
    elif [[ -t 0 ]]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}
