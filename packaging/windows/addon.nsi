; The add-on for NVIDIA GPUs: puts llama.cpp's CUDA backend into an installed Inglenook. Compiled by door_windows.py with
;   VERSION, VERSION4, ADDON (folder of the add-on), FOLDER (its name, "cuda"), ICON, OUT.

Unicode true
ManifestDPIAware true
ManifestLongPathAware true
ManifestSupportedOS Win10
RequestExecutionLevel user
SetCompressor /SOLID lzma
SetCompressorDictSize 64
SetDateSave off

!include MUI2.nsh
!include LogicLib.nsh

Name "Inglenook for NVIDIA GPUs"
OutFile "${OUT}"
InstallDir "$LOCALAPPDATA\Programs\Inglenook"
InstallDirRegKey HKCU "Software\Inglenook" "Folder"
BrandingText "Inglenook ${VERSION}"

VIProductVersion "${VERSION4}"
VIAddVersionKey "ProductName" "Inglenook for NVIDIA GPUs"
VIAddVersionKey "ProductVersion" "${VERSION}"
VIAddVersionKey "FileVersion" "${VERSION}"
VIAddVersionKey "FileDescription" "Installs the CUDA backend of Inglenook"
VIAddVersionKey "LegalCopyright" "The Inglenook authors, Apache License 2.0; parts of CUDA: NVIDIA"

!define MUI_ICON "${ICON}"
!insertmacro MUI_PAGE_INSTFILES
!insertmacro MUI_LANGUAGE "English"

; It is removed with Inglenook itself.
Section
  ${IfNot} ${FileExists} "$INSTDIR\inglenook.exe"
    MessageBox MB_OK|MB_ICONSTOP "Install Inglenook ${VERSION} first." /SD IDOK
    SetErrorLevel 2
    Quit
  ${EndIf}
  RMDir /r "$INSTDIR\addons\${FOLDER}"
  SetOutPath "$INSTDIR\addons\${FOLDER}"
  ClearErrors
  File /r "${ADDON}/*"
  ${If} ${Errors}
    MessageBox MB_OK|MB_ICONSTOP "Not all files could be written. Close Inglenook, look for room on the disk, try again." /SD IDOK
    SetErrorLevel 2
    Quit
  ${EndIf}
SectionEnd
