#!/bin/sh
# Remove what install.sh put there. Chats, settings and models stay.
set -eu

prefix="${HOME:?HOME is not set}/.local"
quiet=""
while [ $# -gt 0 ]; do
    case "$1" in
        --prefix) prefix="${2:?--prefix needs a folder}"; shift 2 ;;
        --quiet) quiet=1; shift ;;
        *) echo "usage: $0 [--prefix DIR]" >&2; exit 2 ;;
    esac
done

lib="$prefix/lib/inglenook"
list="$lib/installed-files.txt"
if [ ! -f "$list" ]; then
    echo "uninstall.sh: $lib was not made by install.sh" >&2
    exit 1
fi

while IFS= read -r file; do
    case "$file" in
        share/*.. | share/*../* | /*) continue ;;
    esac
    rm -f "$prefix/$file"
    folder=$(dirname -- "$file")
    while [ "$folder" != . ] && [ "$folder" != share ] && [ "$folder" != bin ]; do
        rmdir "$prefix/$folder" 2> /dev/null || break
        folder=$(dirname -- "$folder")
    done
done < "$list"
rm -rf "$lib"

renew() {
    if command -v "$1" > /dev/null 2>&1; then "$@" > /dev/null 2>&1 || true; fi
}
if [ -d "$prefix/share/applications" ]; then renew update-desktop-database "$prefix/share/applications"; fi
if [ -d "$prefix/share/mime" ]; then renew update-mime-database "$prefix/share/mime"; fi
if [ -d "$prefix/share/icons/hicolor" ]; then renew gtk-update-icon-cache -q -t -f "$prefix/share/icons/hicolor"; fi

if [ -z "$quiet" ]; then
    echo "Inglenook is removed. Chats, settings and models are kept in the folders of this user."
fi
