; The installer for Windows: for one user, without an administrator. Compiled by door_windows.py, which defines
;   VERSION  0.1.0            VERSION4  0.1.0.0          SIZE_KIB  installed size
;   FROZEN   folder of the program     ICON  inglenook.ico     LICENSE  the licence     OUT  the file to make
; and, to try it elsewhere, CHECK_SYSTEM 0 (any Windows will do) and TARGET amd64-unicode (no 32-bit code).
;
; Silent: inglenook-….exe /S [/D=folder]     uninstall.exe /S [/DELETEDATA]
; Exit codes of the installer: 0 done, 2 refused (the words are in the message, which a silent run does not show).

!ifdef TARGET
  Target ${TARGET}
!else
  Unicode true
!endif
ManifestDPIAware true
ManifestLongPathAware true
ManifestSupportedOS Win10
RequestExecutionLevel user
SetCompressor /SOLID lzma
SetCompressorDictSize 64
SetDateSave off

!include MUI2.nsh
!include LogicLib.nsh
!include WinVer.nsh
!include x64.nsh
!include FileFunc.nsh
!include WordFunc.nsh
!include Sections.nsh

!define NAME "Inglenook"
!define KEY "Software\Inglenook"
!define UNINSTALL "Software\Microsoft\Windows\CurrentVersion\Uninstall\Inglenook"
!define CLASSES "Software\Classes"
!define FILE_TYPE "Inglenook.gguf"
!define SCHEME "inglenook"
!define APP_PATHS "Software\Microsoft\Windows\CurrentVersion\App Paths\inglenook.exe"
!ifndef CHECK_SYSTEM
  !define CHECK_SYSTEM 1
!endif

Name "${NAME}"
OutFile "${OUT}"
InstallDir "$LOCALAPPDATA\Programs\Inglenook"
InstallDirRegKey HKCU "${KEY}" "Folder"
BrandingText "${NAME} ${VERSION}"
ShowInstDetails hide
ShowUninstDetails hide

VIProductVersion "${VERSION4}"
VIAddVersionKey "ProductName" "${NAME}"
VIAddVersionKey "ProductVersion" "${VERSION}"
VIAddVersionKey "FileVersion" "${VERSION}"
VIAddVersionKey "FileDescription" "Installs ${NAME}"
VIAddVersionKey "LegalCopyright" "The Inglenook authors, Apache License 2.0"

!ifdef SIGN
  !uninstfinalize '${SIGN} "%1"'
!endif

!define MUI_ICON "${ICON}"
!define MUI_UNICON "${ICON}"
!define MUI_ABORTWARNING
!define MUI_COMPONENTSPAGE_NODESC
!define MUI_FINISHPAGE_RUN "$INSTDIR\inglenook.exe"
!define MUI_FINISHPAGE_RUN_TEXT "Open Inglenook"
!insertmacro MUI_PAGE_LICENSE "${LICENSE}"
!insertmacro MUI_PAGE_DIRECTORY
!insertmacro MUI_PAGE_INSTFILES
!insertmacro MUI_PAGE_FINISH
!define MUI_PAGE_HEADER_TEXT "Remove Inglenook"
!define MUI_PAGE_HEADER_SUBTEXT "Your chats, settings and models stay unless you choose otherwise."
!insertmacro MUI_UNPAGE_COMPONENTS
!insertmacro MUI_UNPAGE_INSTFILES
!insertmacro MUI_LANGUAGE "English"

Var Newer

; Asks in a normal run; in a silent one the answer is no.
!macro Refuse WORDS
  MessageBox MB_OK|MB_ICONSTOP "${WORDS}" /SD IDOK
  SetErrorLevel 2
  Quit
!macroend

; True in $0 if a program file is in use: then it cannot be replaced.
!macro InUse UN
Function ${UN}InUse
  StrCpy $0 0
  ${If} ${FileExists} "$INSTDIR\inglenook.exe"
    ClearErrors
    FileOpen $1 "$INSTDIR\inglenook.exe" a
    ${If} ${Errors}
      StrCpy $0 1
    ${Else}
      FileClose $1
    ${EndIf}
  ${EndIf}
FunctionEnd
!macroend
!insertmacro InUse ""
!insertmacro InUse "un."

; Only what an installation has put there: somebody may have chosen a folder with other things in it.
!macro RemoveProgram
  ${If} ${FileExists} "$INSTDIR\_internal\*.*"
  ${AndIf} ${FileExists} "$INSTDIR\inglenook-cli.exe"
    RMDir /r "$INSTDIR\_internal"
  ${EndIf}
  Delete "$INSTDIR\inglenook.exe"
  Delete "$INSTDIR\inglenook-cli.exe"
  Delete "$INSTDIR\inglenook.ico"
  Delete "$INSTDIR\LICENSE.txt"
!macroend

Function .onInit
  !if ${CHECK_SYSTEM} == 1
    ${IfNot} ${AtLeastWin10}
      !insertmacro Refuse "Inglenook needs Windows 10 or newer."
    ${EndIf}
    ${IfNot} ${RunningX64}
      !insertmacro Refuse "Inglenook needs a 64-bit Windows."
    ${EndIf}
  !endif
  ; An older version cannot open the chats of a newer one.
  ReadRegStr $Newer HKCU "${KEY}" "Version"
  ${If} $Newer != ""
    ${VersionCompare} "$Newer" "${VERSION}" $0
    ${If} $0 == 1
      MessageBox MB_YESNO|MB_ICONEXCLAMATION|MB_DEFBUTTON2 "Inglenook $Newer is installed, which is newer than ${VERSION}. The older version may not be able to open its chats; they would stay as they are.$\r$\n$\r$\nInstall ${VERSION} in its place?" /SD IDNO IDYES go_on
      SetErrorLevel 2
      Quit
      go_on:
    ${EndIf}
  ${EndIf}
FunctionEnd

Section "Inglenook"
  SectionIn RO
  again:
  Call InUse
  ${If} $0 == 1
    MessageBox MB_RETRYCANCEL|MB_ICONEXCLAMATION "Inglenook is open. Close it, then try again." /SD IDCANCEL IDRETRY again
    SetErrorLevel 2
    Quit
  ${EndIf}
  !insertmacro RemoveProgram
  SetOutPath "$INSTDIR"
  ClearErrors
  File /r "${FROZEN}/*"
  File "/oname=inglenook.ico" "${ICON}"
  File "/oname=LICENSE.txt" "${LICENSE}"
  ${If} ${Errors}
    !insertmacro Refuse "Not all files could be written. Is there enough room on the disk?"
  ${EndIf}
  WriteUninstaller "$INSTDIR\uninstall.exe"
  CreateShortcut "$SMPROGRAMS\Inglenook.lnk" "$INSTDIR\inglenook.exe" "" "$INSTDIR\inglenook.ico"

  WriteRegStr HKCU "${KEY}" "Folder" "$INSTDIR"
  WriteRegStr HKCU "${KEY}" "Version" "${VERSION}"
  WriteRegStr HKCU "${APP_PATHS}" "" "$INSTDIR\inglenook.exe"

  WriteRegStr HKCU "${UNINSTALL}" "DisplayName" "${NAME}"
  WriteRegStr HKCU "${UNINSTALL}" "DisplayVersion" "${VERSION}"
  WriteRegStr HKCU "${UNINSTALL}" "DisplayIcon" "$INSTDIR\inglenook.ico"
  WriteRegStr HKCU "${UNINSTALL}" "Publisher" "The Inglenook authors"
  WriteRegStr HKCU "${UNINSTALL}" "InstallLocation" "$INSTDIR"
  WriteRegStr HKCU "${UNINSTALL}" "UninstallString" '"$INSTDIR\uninstall.exe"'
  WriteRegStr HKCU "${UNINSTALL}" "QuietUninstallString" '"$INSTDIR\uninstall.exe" /S'
  WriteRegDWORD HKCU "${UNINSTALL}" "EstimatedSize" ${SIZE_KIB}
  WriteRegDWORD HKCU "${UNINSTALL}" "NoModify" 1
  WriteRegDWORD HKCU "${UNINSTALL}" "NoRepair" 1

  ; GGUF files: offered with "Open with"; by a double click only where no other program has them.
  WriteRegStr HKCU "${CLASSES}\${FILE_TYPE}" "" "GGUF language model"
  WriteRegStr HKCU "${CLASSES}\${FILE_TYPE}\DefaultIcon" "" "$INSTDIR\inglenook.ico"
  WriteRegStr HKCU "${CLASSES}\${FILE_TYPE}\shell\open\command" "" '"$INSTDIR\inglenook.exe" "%1"'
  WriteRegStr HKCU "${CLASSES}\.gguf\OpenWithProgids" "${FILE_TYPE}" ""
  ReadRegStr $0 HKCR ".gguf" ""
  ${If} $0 == ""
    WriteRegStr HKCU "${CLASSES}\.gguf" "" "${FILE_TYPE}"
  ${EndIf}
  WriteRegStr HKCU "${CLASSES}\Applications\inglenook.exe\shell\open\command" "" '"$INSTDIR\inglenook.exe" "%1"'
  WriteRegStr HKCU "${CLASSES}\Applications\inglenook.exe\SupportedTypes" ".gguf" ""

  ; inglenook:// links
  WriteRegStr HKCU "${CLASSES}\${SCHEME}" "" "URL:Inglenook"
  WriteRegStr HKCU "${CLASSES}\${SCHEME}" "URL Protocol" ""
  WriteRegStr HKCU "${CLASSES}\${SCHEME}\DefaultIcon" "" "$INSTDIR\inglenook.ico"
  WriteRegStr HKCU "${CLASSES}\${SCHEME}\shell\open\command" "" '"$INSTDIR\inglenook.exe" "%1"'
  ${RefreshShellIcons}
SectionEnd

; ---------------------------------------------------------------- removing

Section "un.Inglenook (the program)"
  SectionIn RO
  again:
  Call un.InUse
  ${If} $0 == 1
    MessageBox MB_RETRYCANCEL|MB_ICONEXCLAMATION "Inglenook is open. Close it, then try again." /SD IDCANCEL IDRETRY again
    SetErrorLevel 2
    Quit
  ${EndIf}
  !insertmacro RemoveProgram
  RMDir /r "$INSTDIR\addons"
  Delete "$INSTDIR\uninstall.exe"
  RMDir "$INSTDIR"
  Delete "$SMPROGRAMS\Inglenook.lnk"

  DeleteRegKey HKCU "${UNINSTALL}"
  DeleteRegKey HKCU "${APP_PATHS}"
  DeleteRegKey HKCU "${CLASSES}\${FILE_TYPE}"
  DeleteRegKey HKCU "${CLASSES}\Applications\inglenook.exe"
  DeleteRegValue HKCU "${CLASSES}\.gguf\OpenWithProgids" "${FILE_TYPE}"
  ReadRegStr $0 HKCU "${CLASSES}\.gguf" ""
  ${If} $0 == "${FILE_TYPE}"
    DeleteRegValue HKCU "${CLASSES}\.gguf" ""
  ${EndIf}
  DeleteRegKey /ifempty HKCU "${CLASSES}\.gguf\OpenWithProgids"
  DeleteRegKey /ifempty HKCU "${CLASSES}\.gguf"
  DeleteRegKey HKCU "${CLASSES}\${SCHEME}"
  DeleteRegKey HKCU "${KEY}"
  ${RefreshShellIcons}
SectionEnd

; Not chosen unless the user does so. A models folder elsewhere is never touched.
Section /o "un.Also delete my chats, settings and downloaded models" DATA
  RMDir /r "$LOCALAPPDATA\inglenook"
SectionEnd

Function un.onInit
  ${GetParameters} $0
  ClearErrors
  ${GetOptions} $0 "/DELETEDATA" $1
  ${IfNot} ${Errors}
    !insertmacro SelectSection ${DATA}
  ${EndIf}
FunctionEnd
