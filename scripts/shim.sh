#!/usr/bin/env bash
# Builds libberth_shim.so for images with an old C library, and fails if it needs a newer one than glibc 2.17.
#
#   shim.sh [OUTPUT]     (default: release/libberth_shim.so in cargo's target directory)
#
# A library gets the symbol versions of the libraries it is linked with. So it is linked with stand-ins for them: empty
# functions under the versions that glibc has had since 2.17 at the latest. What they list is what the library may use: a
# function that is not in scripts/shim-symbols does not link, and one that only newer ones have is looked up at run time
# by Rust's standard library.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

newest=2.17
[ "$(uname -m)" = x86_64 ] || die "only x86_64 is listed in scripts/shim-symbols"
need_build_tools
need objdump "install binutils"
target=$(target_dir)
output=${1:-$target/release/libberth_shim.so}
work=$target/shim-stand-ins
rm -rf "$work"
mkdir -p "$work"

# stand_in LIBRARY: a shared library with the functions that the list gives it.
stand_in() {
    local library=$1 map=$work/$1.map source=$work/$1.c version
    : >"$map"
    while read -r version; do
        awk -v l="$library" -v v="$version" '
            BEGIN { print v " {"; print "global:" }
            $1 == l && $2 == v { print "  " $3 ";" }
            END { print "};" }' "$work/list" >>"$map"
    done < <(awk -v l="$library" '$1 == l { print $2 }' "$work/list" | sort -uV)
    awk -v l="$library" '$1 == l { print "void " $3 "(void) {}" }' "$work/list" >"$source"
    cc -shared -nostdlib -ffreestanding -fno-builtin -w -Wl,-soname,"$library" -Wl,--version-script,"$map" -o "$work/$library" "$source"
}

grep -v '^#' scripts/shim-symbols >"$work/list"
while read -r library; do
    stand_in "$library"
done < <(cut -d' ' -f1 "$work/list" | sort -u)
# The names the linker is asked for.
for name in c:libc.so.6 pthread:libpthread.so.0 dl:libdl.so.2 m:libm.so.6 rt:librt.so.1 util:libutil.so.1; do
    if [ -e "$work/${name#*:}" ]; then
        ln -sf "${name#*:}" "$work/lib${name%%:*}.so"
    else
        printf '!<arch>\n' >"$work/lib${name%%:*}.a"
    fi
done

# The unwinder comes in whole: images need not have libgcc_s.
cp "$(cc -print-file-name=libgcc_eh.a)" "$work/libgcc_s.a"
cc -O2 -fPIC -c -o "$work/compat.o" scripts/shim-compat.c

cargo rustc --locked --release -p berth-shim --lib -- -C link-arg=-L"$work" -C link-arg="$work/compat.o" -C link-arg="$work/ld-linux-x86-64.so.2" -C link-arg=-Wl,--no-undefined
built=$target/release/libberth_shim.so

needs=$(objdump -T "$built" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
[ -n "$needs" ] || die "objdump names no version that $built needs"
[ "$(printf '%s\nGLIBC_%s\n' "$needs" "$newest" | sort -V | tail -n 1)" = "GLIBC_$newest" ] || die "$built needs $needs, newer than $newest"
[ "$built" -ef "$output" ] || install -D -m 755 "$built" "$output"
say "$output needs no C library newer than ${needs#GLIBC_}"
