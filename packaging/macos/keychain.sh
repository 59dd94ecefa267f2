#!/bin/bash
# keychain.sh: put the certificate and the notary's key of a build service into a keychain of their own.
#
# Prints what the next steps need in their environment, as NAME=VALUE. Without a certificate (MAC_CERTIFICATE is empty) it
# prints nothing, and the application is signed ad hoc.
set -euo pipefail

if [ -z "${MAC_CERTIFICATE:-}" ]; then
    echo "no certificate: the application is signed ad hoc" >&2
    exit 0
fi
umask 077
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
keychain="${RUNNER_TEMP:?}/inglenook.keychain-db"
password=$(openssl rand -hex 24)
printf '%s' "$MAC_CERTIFICATE" | base64 --decode > "$place/certificate.p12"
security create-keychain -p "$password" "$keychain" >&2
security set-keychain-settings -lut 21600 "$keychain" >&2
security unlock-keychain -p "$password" "$keychain" >&2
security import "$place/certificate.p12" -P "${MAC_CERTIFICATE_PASSWORD:?}" -t cert -f pkcs12 -k "$keychain" \
    -T /usr/bin/codesign >&2
security set-key-partition-list -S apple-tool:,apple: -k "$password" "$keychain" > /dev/null
security list-keychains -d user -s "$keychain" login.keychain-db >&2
identity=$(security find-identity -v -p codesigning "$keychain" | sed -n 's/.*"\(.*\)".*/\1/p' | head -n 1)
echo "INGLENOOK_MAC_IDENTITY=${identity:?the certificate holds no identity for signing}"
if [ -n "${MAC_NOTARY_KEY:-}" ]; then
    printf '%s' "$MAC_NOTARY_KEY" > "$place/key.p8"
    xcrun notarytool store-credentials inglenook --key "$place/key.p8" --key-id "${MAC_NOTARY_KEY_ID:?}" \
        --issuer "${MAC_NOTARY_ISSUER:?}" --keychain "$keychain" >&2
    echo "INGLENOOK_NOTARY_PROFILE=inglenook"
fi
