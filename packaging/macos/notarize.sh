#!/bin/bash
# notarize.sh FILE: have Apple look at a signed disk image, and staple its answer to it.
#
# INGLENOOK_NOTARY_PROFILE names a profile that `xcrun notarytool store-credentials` has put into the keychain.
set -euo pipefail

file=${1:?usage: notarize.sh FILE}
profile=${INGLENOOK_NOTARY_PROFILE:?set INGLENOOK_NOTARY_PROFILE to a profile of notarytool}
xcrun notarytool submit "$file" --keychain-profile "$profile" --wait
xcrun stapler staple "$file"
xcrun stapler validate "$file"
