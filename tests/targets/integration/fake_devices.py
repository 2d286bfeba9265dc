"""Programs that behave like adb, ssh, and scp, with a directory as the device."""

from __future__ import annotations

from pathlib import Path
from typing import Final

# Runs a command in a directory that stands for the root of the device.
_ON_DEVICE: Final = r"""
on_device() {
  places="s:$temporary/:$DEVICE/tmp/:g; s:/sys/devices:$DEVICE/sys:g"
  places="$places; s:/proc/device-tree:$DEVICE/proc:g; s:/etc/os-release:$DEVICE/os-release:g"
  command=$(printf '%s\n' "$1" | sed "$places")
  case $command in
    'sh '*) [ "$STATE" != lost ] || { touch "$DEVICE/lost"; exit 255; } ;;
  esac
  PATH=$DEVICE/bin:$PATH sh -c "$command"
}
printf '%s\n' "$*" >>"$DEVICE/calls"
"""

_ADB: Final = (
    "#!/bin/sh\ntemporary=/data/local/tmp"
    + _ON_DEVICE
    + r"""
refuse() {
  printf 'error: %s\n' "$1" >&2
  exit 1
}
[ ! -e "$DEVICE/lost" ] || refuse "device 'R58M' not found"
[ "$1" != start-server ] || exit 0
case $STATE in
  none) refuse "no devices/emulators found" ;;
  unauthorized) refuse "device unauthorized.
This adb server's \$ADB_VENDOR_KEYS is not set
Try 'adb kill-server' if that seems wrong.
Otherwise check for a confirmation dialog on your device." ;;
  offline) refuse "device offline" ;;
  two)
    case ${ANDROID_SERIAL:-} in
      '') refuse "more than one device/emulator" ;;
      R58M) ;;
      *) refuse "device '$ANDROID_SERIAL' not found" ;;
    esac
    ;;
esac
inside=$DEVICE/tmp${3#/data/local/tmp}
case $1 in
  get-state) [ "$STATE" = recovery ] && echo recovery || echo device ;;
  push)
    if [ "$STATE" = full ] && [ "${3##*/}" != run.sh ]; then
      printf '%s: 1 file pushed, 0 skipped.\n' "$2"
      reason="remote write failed: No space left on device"
      printf "adb: error: failed to copy '%s' to '%s': %s\n" "$2" "$3" "$reason" >&2
      exit 1
    fi
    mkdir -p "${inside%/*}"
    cp -- "$2" "$inside"
    ;;
  pull) cp -- "$DEVICE/tmp${2#/data/local/tmp}" "$3" ;;
  shell)
    if [ "$STATE" = old ]; then  # no exit codes, and line ends of terminals
      on_device "$2" | sed 's/$/\r/'
    else
      on_device "$2"
    fi
    ;;
esac
"""
)

_SSH: Final = (
    "#!/bin/sh\ntemporary=/tmp"
    + _ON_DEVICE
    + r"""
[ "$1" = -- ] || exit 9
if [ "$STATE" = unreachable ] || [ -e "$DEVICE/lost" ]; then
  printf 'ssh: connect to host %s port 22: No route to host\n' "$2" >&2
  exit 255
fi
on_device "$3"
"""
)

_SCP: Final = r"""#!/bin/sh
[ "$1 $2" = '-q --' ] || exit 9
printf 'scp %s\n' "$*" >>"$DEVICE/calls"
located() {
  case $1 in
    pi@board:/tmp/*) printf '%s/tmp/%s' "$DEVICE" "${1#pi@board:/tmp/}" ;;
    *) printf '%s' "$1" ;;
  esac
}
if [ "$STATE" = full ] && [ "${4##*/}" = benchmark_model ]; then
  printf 'scp: write remote "%s": No space left on device\n' "$4" >&2
  exit 1
fi
cp -- "$(located "$3")" "$(located "$4")"
"""

_GETPROP: Final = r"""#!/bin/sh
case $1 in
  ro.product.cpu.abilist) [ "$STATE" = old ] || echo arm64-v8a,armeabi-v7a,armeabi ;;
  ro.product.cpu.abi) echo armeabi-v7a ;;
  ro.product.manufacturer) echo Google ;;
  ro.product.model) echo 'Pixel 4a' ;;
  ro.build.fingerprint) echo google/sunfish/sunfish:13/TQ3A.230805.001/1:user/release-keys ;;
esac
"""

BENCHMARK: Final = r"""#!/bin/sh
# Prints its arguments, and behaves as STATE says.
case $STATE in
  killed) kill -9 $$ ;;
  failing) echo 'ERROR: Failed to apply the default TensorFlow Lite delegate'; exit 1 ;;
esac
for argument in "$@"; do
  printf '[%s]\n' "$argument"
done
echo 'Inference timings in us: Init: 10, First inference: 9, Inference (avg): 7'
"""


def write_program(path: Path, text: str) -> Path:
    """Write an executable script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def fake_device(folder: Path) -> Path:
    """Write the programs to ``host``, and return the directory of a device."""
    for name, text in {"adb": _ADB, "ssh": _SSH, "scp": _SCP}.items():
        write_program(folder / "host" / name, text)
    device = folder / "device"
    write_program(device / "bin" / "getprop", _GETPROP)
    write_program(device / "bin" / "uname", "#!/bin/sh\necho aarch64\n")
    for number, governor in enumerate(("schedutil", "schedutil", "performance")):
        path = device / f"sys/system/cpu/cpu{number}/cpufreq/scaling_governor"
        path.parent.mkdir(parents=True)
        path.write_text(f"{governor}\n")
    (device / "proc").mkdir()
    (device / "proc/model").write_bytes(b"Raspberry Pi 4 Model B Rev 1.4\0")
    (device / "os-release").write_text('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')
    (device / "tmp").mkdir()
    return device
