# shellcheck shell=bash
# Debian's own kernels: which there are, their images, our modules for them, and what their virtual machines' file
# systems need. Sourced by scripts that boot them. Images are unpacked into $build, not installed.

sources=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Debian's own kernels that apt knows, including backports: of each series the newest whose headers are installed, or
# else the newest. The day that Debian has a new kernel, a machine still has the headers of the last one.
stock_kernels() {
    local folder kernel
    {
        for folder in /usr/src/linux-headers-*-amd64; do
            kernel=${folder#*/linux-headers-}
            [ -d "$folder" ] && [[ $kernel != *-rt-* && $kernel != *-cloud-* ]] || continue
            [ -z "$(apt-cache madison "linux-image-$kernel" 2> /dev/null)" ] || echo "2 $kernel"
        done
        apt-cache show linux-image-amd64 linux-image-6.12-amd64 2> /dev/null |
            sed -n 's/^Depends:.*linux-image-\([0-9][^ ,]*\).*/1 \1/p'
    } | sort -k 1,1n -k 2,2V |
        awk '{ split($2, part, "."); newest[part[1] "." part[2]] = $2 } END { for (series in newest) print newest[series] }' |
        sort -V
}

# of_image KERNEL vmlinuz|config: newer packages have these files beside the modules, not in /boot.
of_image() {
    local image=$build/image-$1 file
    for file in "$image/boot/$2-$1" "$image/usr/lib/modules/$1/$2"; do
        [ ! -e "$file" ] || { echo "$file"; return; }
    done
    return 1
}

unpack_image() {
    local kernel=$1 packages=(linux-image)
    ! of_image "$kernel" vmlinuz > /dev/null || return 0
    # Newer kernels are split into four packages.
    ! apt-cache show "linux-binary-$kernel" > /dev/null 2>&1 || packages=(linux-binary linux-modules linux-base)
    # As root, apt would warn that its sandbox user may not write there.
    (cd "$build" && apt-get download --quiet=2 -o APT::Sandbox::User=root "${packages[@]/%/-$kernel}" &&
        for package in "${packages[@]/%/-$kernel}"; do dpkg --extract "$package"_*.deb "image-$kernel"; done &&
        rm ./linux-*-"$kernel"_*.deb)
}

# Kernels that built.sh has built, and of these the ones of tests/debug. Nothing is measured there, so nothing is judged.
is_built() { [ -e "$build/built/$1/built" ]; }
is_debug() { is_built "$1" && [[ $1 = *-locks || $1 = *-races ]]; }

# has_headers KERNEL: if they can be installed, they are.
has_headers() {
    local folder
    folder=$(headers "$1")
    [ -d "$folder" ] || "$sources/../scripts/setup" "linux-headers-$1"
    [ -d "$folder" ]
}

headers() { if is_built "$1"; then echo "$build/built/$1"; else echo "/usr/src/linux-headers-$1"; fi; }

# has_sparse KERNEL: newer kernels ask a script whether sparse is new enough. Debian's headers lack it.
has_sparse() {
    local sources script
    command -v sparse > /dev/null || return 1
    is_built "$1" && sources=$(headers "$1")/source || sources=/usr/src/linux-headers-${1%-amd64}-common
    script=$sources/scripts/checker-valid.sh
    if [ -e "$script" ]; then [ "$(sh "$script" sparse)" = 1 ]; else ! grep -qs checker-valid "$sources/Makefile"; fi
}

# Where the kernel's own governors are, if scripts/kernel-sources got them; or other files of GOVERNOR_SOURCES.
sources_of_governors() {
    local folder
    folder=$build/../kernel-sources/$(series_of "$1")
    ! is_built "$1" || folder=$build/built/$1/idlewise-source
    folder=${GOVERNOR_SOURCES:-$folder/drivers/cpuidle/governors}
    [ -e "$folder/teo.c" ] && [ -e "$folder/menu.c" ] && echo "$folder"
}

series_of() { cut -d . -f 1,2 <<< "$1"; }

# changed_files PATCH: with or without the b/ before them
changed_files() { sed -n 's/^+++ \(b\/\)\?\([^[:space:]]*\).*/\2/p' "$1" | awk '!seen[$0]++'; }

# apply_patch ARGUMENTS...: of patch. Says why not in one line. patch itself applies what is left of a cut one.
apply_patch() {
    local said status=0
    said=$(patch "$@" 2>&1) || status=1
    [[ $said != *"unexpectedly ends"* ]] || status=1
    [ $status = 0 ] || grep -m 1 'FAILED' <<< "$said" || tail -n 1 <<< "$said"
    return $status
}

# patch_governor FILE PATCH TO: says why not. In place, as only that takes the patches of a series one after the other.
patch_governor() {
    cp "$1" "$3" && apply_patch --no-backup-if-mismatch --reject-file=- "$3" "$2" || { rm -f "$3"; return 1; }
}

# patched_governors PATCH: the names of the governors that it changes. Fails if it changes other files, or none.
patched_governors() {
    local file governors=()
    while read -r file; do
        case $file in
            */governors/teo.c | */governors/menu.c) governors+=("$(basename "$file" .c)") ;;
            *) return 1 ;;
        esac
    done < <(changed_files "$1")
    [ ${#governors[@]} -gt 0 ] || return 1
    echo "${governors[@]}"
}

# add_governors KERNEL FOLDER: the sources of teo as a module, and of what GOVERNOR_PATCH changes. Without a patch, it
# takes the one that tests/rows must refuse.
add_governors() {
    local kernel=$1 folder=$2 from governor governors patch=${GOVERNOR_PATCH:-$sources/tests/first-teo.patch}
    from=$(sources_of_governors "$kernel") || {
        [ -z "${GOVERNOR_PATCH:-}" ] || { echo "$kernel: no teo.c to patch; scripts/kernel-sources gets it" >&2; return 1; }
        return 0
    }
    cp "$from"/gov.h "$folder" 2> /dev/null || true
    cp "$from"/{menu,teo}.c "$folder"
    governors=$(patched_governors "$patch") || return 1
    for governor in $governors; do
        if ! patch_governor "$from/$governor.c" "$patch" "$folder/patched-$governor.c" > "$folder/said"; then
            rm -f "$folder"/patched-*.c
            [ -n "${GOVERNOR_PATCH:-}" ] || return 0
            echo "$patch does not apply to $from/$governor.c: $(cat "$folder/said")" >&2
            return 1
        fi
    done
}

# needs_teo KERNEL FOLDER: whether teo.c is there, and the kernel has none of its own
needs_teo() { [ -e "$2/teo.c" ] && ! grep -qs '^CONFIG_CPU_IDLE_GOV_TEO=y' "$(of_image "$1" config)"; }

# is_tested KERNEL FOLDER: whether idlewise_governor_test knows what the kernel's teo.c and menu.c in the folder do
is_tested() {
    [[ $1 = 6.12[.-]* && $1 != *-patched ]] && [ -z "${GOVERNOR_SOURCES:-}" ] && [ -e "$2/teo.c" ] && [ -e "$2/menu.c" ]
}

# build_modules KERNEL stock|test RESULTS: works in /tmp, because Kbuild takes no path with spaces or colons. Fails if
# the compiler or sparse warns.
build_modules() {
    local kernel=$1 flavour=$2 results=$3 folder is_clean=true
    rm -rf "$results" && mkdir -p "$results"
    folder=$(mktemp --directory --tmpdir=/tmp idlewise-modules-XXXXXX)
    cp "$sources"/*.c "$sources"/*.h "$sources"/Kbuild "$folder"
    if [ "$flavour" = test ]; then
        cp "$sources"/tests/idlewise_*.[ch] "$folder"
        add_governors "$kernel" "$folder" || return 1
    fi
    make --silent -C "$(headers "$kernel")" M="$folder" W=1 "C=$(has_sparse "$kernel" && echo 2 || echo 0)" \
        "IDLEWISE_TEST=$([ "$flavour" = test ] && echo y)" \
        "IDLEWISE_TEO=$(needs_teo "$kernel" "$folder" && echo m)" \
        "IDLEWISE_GOVERNOR_TEST=$(is_tested "$kernel" "$folder" && echo m)" \
        "IDLEWISE_TEO_PATCHED=$([ ! -e "$folder/patched-teo.c" ] || echo m)" \
        "IDLEWISE_MENU_PATCHED=$([ ! -e "$folder/patched-menu.c" ] || echo m)" modules 2>&1 |
        grep -v 'Skipping BTF\|unavailability of vmlinux' | tee "$folder/warnings" >&2 || true
    [ ! -s "$folder/warnings" ] || is_clean=false
    cp "$folder"/*.ko "$results" && rm -r "$folder"
    $is_clean
}

# lost_flags LOG: whether the emulator lost a CPU's flags. About one boot of seventy in counted time ends so (QEMU 7.2): what an
# interrupt saves as EFLAGS right after a CMPXCHG16B is a part of a pointer, and the kernel then traps or returns to nowhere.
# Of a real CPU, bits 3, 5, 15 and those from 22 on are always 0.
lost_flags() {
    local flags
    while read -r flags; do
        (( (16#$flags & 16#ffc08028) == 0 )) || return 0
    done < <(grep -aoE 'EFLAGS: [0-9a-f]{8}' "$1" | cut -d ' ' -f 2)
    return 1
}

# add_program PROGRAM ROOT [NAME]: with the libraries that it is linked to. Those of packages that are only unpacked, in
# $unpacked, go where they would be installed.
add_program() {
    local library from=${unpacked:-}
    strip -o "$2/bin/${3:-$(basename "$1")}" "$1"
    for library in $(LD_LIBRARY_PATH=${from:+$from/usr/lib/x86_64-linux-gnu} ldd "$1" | grep -o '/[^ ]*'); do
        install -D "$library" "$2${library#"$from"}"
    done
}

add_idlewise() { add_program "$1" "$2" idlewise; }

# add_hz KERNEL ROOT: in the file where idlewise looks for it.
add_hz() { grep '^CONFIG_HZ=' "$(of_image "$1" config)" > "$2/boot/config-$1"; }

# add_disk_drivers KERNEL ROOT: of QEMU's virtio disk, where they are modules.
add_disk_drivers() {
    find "$build/image-$1"/{,usr/}lib/modules/"$1" \
        \( -path '*/drivers/virtio/virtio*.ko*' -o -name 'virtio_blk.ko*' \) -exec cp {} "$2/modules/disk/" \; \
        2> /dev/null || true
    xz --decompress --quiet "$2"/modules/disk/*.ko.xz 2> /dev/null || true
}

# for_each_kernel FUNCTION KERNEL...: side by side, because an emulated machine uses one CPU only. Adds to $failures.
for_each_kernel() {
    local each=$1 kernel pid pids=()
    shift
    for kernel in "$@"; do
        (
            failures=0
            "$each" "$kernel"
            [ "$failures" = 0 ]
        ) 2>&1 | sed --unbuffered "/^SKIPPED/! s/^/${kernel%-amd64}: /" &
        pids+=($!)
        [ "$(nproc)" -gt 1 ] || wait "$!" || true
    done
    for pid in ${pids[@]+"${pids[@]}"}; do wait "$pid" || failures=$((failures + 1)); done
}
