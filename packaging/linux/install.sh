#!/bin/sh
# Install Inglenook for this user, or for all with --prefix /usr/local (as root). Nothing is downloaded.
set -eu

prefix="${HOME:?HOME is not set}/.local"
case "${1-}" in
    "") ;;
    --prefix) prefix="${2:?--prefix needs a folder}" ;;
    *) echo "usage: $0 [--prefix DIR]" >&2; exit 2 ;;
esac
case "$prefix" in
    /*) ;;
    *) echo "install.sh: $prefix is not a whole path" >&2; exit 2 ;;
esac

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
lib="$prefix/lib/inglenook"
list="$lib/installed-files.txt"

if [ ! -x "$here/inglenook/inglenook" ]; then
    echo "install.sh: the program is not beside this script; unpack the whole archive" >&2
    exit 1
fi
if [ -e "$lib" ] && [ ! -f "$list" ]; then
    echo "install.sh: $lib is there and was not made by this script; move it away first" >&2
    exit 1
fi

# An older version goes first; what belongs to the user lies elsewhere.
if [ -f "$list" ]; then
    sh "$lib/uninstall.sh" --prefix "$prefix" --quiet
fi

mkdir -p "$prefix/lib" "$prefix/bin" "$prefix/share"
fresh="$prefix/lib/.inglenook.$$"
trap 'rm -rf "$fresh"' EXIT INT TERM
cp -R "$here/inglenook" "$fresh"
cp "$here/uninstall.sh" "$here/LICENSE" "$fresh/"
(cd "$here/share" && find . -type f | LC_ALL=C sort | sed 's|^\./|share/|') > "$fresh/installed-files.txt"
echo "bin/inglenook" >> "$fresh/installed-files.txt"
mv "$fresh" "$lib"
trap - EXIT INT TERM

ln -sf "../lib/inglenook/inglenook" "$prefix/bin/inglenook"
(cd "$here/share" && find . -type f) | while IFS= read -r file; do
    mkdir -p "$prefix/share/$(dirname -- "$file")"
    cp "$here/share/$file" "$prefix/share/$file"
done

# The menu finds the program also where $prefix/bin is not in PATH. Quoting as the desktop entry format has it: first
# of a string of its own, then of the file; sed needs its own besides.
entry="$prefix/share/applications/inglenook.desktop"
# shellcheck disable=SC2016
quoted=$(printf '%s' "$prefix/bin/inglenook" | sed 's/\\/\\\\\\\\/g; s/"/\\\\"/g; s/`/\\\\`/g; s/\$/\\\\$/g; s/%/%%/g')
plain=$(printf '%s' "$prefix/bin/inglenook" | sed 's/\\/\\\\/g')
awk -v exec="$(printf '%s' "$quoted" | sed 's/\\/\\\\/g')" -v try="$(printf '%s' "$plain" | sed 's/\\/\\\\/g')" '
    /^Exec=inglenook / { print "Exec=\"" exec "\" %U"; next }
    /^TryExec=/ { print "TryExec=" try; next }
    { print }' "$here/share/applications/inglenook.desktop" > "$entry"

renew() {
    if command -v "$1" > /dev/null 2>&1; then "$@" > /dev/null 2>&1 || true; fi
}
renew update-desktop-database "$prefix/share/applications"
renew update-mime-database "$prefix/share/mime"
renew gtk-update-icon-cache -q -t -f "$prefix/share/icons/hicolor"

echo "Inglenook is installed in $lib"
case ":${PATH-}:" in
    *":$prefix/bin:"*) ;;
    *) echo "It is in the menu; for the terminal, add $prefix/bin to PATH." ;;
esac
echo "To remove it: sh $lib/uninstall.sh"
