#!/bin/bash
# sign.sh APP: sign the application from the inside out, as notarization wants it.
#
# INGLENOOK_MAC_IDENTITY names the certificate ("Developer ID Application: ..."). Without it the signature is ad hoc: the
# application runs on the machine that made it, and elsewhere only after the user has allowed it.
set -euo pipefail

app=${1:?usage: sign.sh APP}
here=$(cd "$(dirname "$0")" && pwd)
identity=${INGLENOOK_MAC_IDENTITY:--}
stamp=--timestamp
if [ "$identity" = - ]; then
    stamp=--timestamp=none
fi

sign() {
    codesign --force --options runtime "$stamp" --sign "$identity" "$@"
}

# Libraries and modules first; what lies in a framework is signed with it.
find "$app/Contents/Frameworks" -type f -not -path '*.framework/*' -print0 | while IFS= read -r -d '' path; do
    case $(file -b "$path") in
        *Mach-O*) sign "$path" ;;
    esac
done
find "$app/Contents/Frameworks" -type d -name '*.framework' -print0 | while IFS= read -r -d '' path; do
    sign "$path"
done
sign --entitlements "$here/entitlements.plist" "$app/Contents/MacOS/inglenook"
sign --entitlements "$here/entitlements.plist" "$app"
codesign --verify --deep --strict "$app"
