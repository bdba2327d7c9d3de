# shellcheck shell=bash
# Small kernels that we build from source. Sourced after images.sh. Kernels are kept in $build/built and rebuilt only if
# source, patch or configuration change; of a folder of sources, make decides that.

# tarball_of SERIES: Debian's source, installed or downloaded
tarball_of() {
    local package=linux-source-$1
    if [ ! -r "/usr/src/$package.tar.xz" ] && [ ! -r "$build/built/$package.tar.xz" ]; then
        apt-cache show "$package" > /dev/null 2>&1 || return 1
        echo "downloading $package" >&2
        # The rig takes names as they are (set -f), but here is a pattern.
        (set +f && cd "$build/built" && apt-get download --quiet=2 -o APT::Sandbox::User=root "$package" > /dev/null &&
            dpkg-deb --fsys-tarfile "$package"_*.deb | tar --extract --to-stdout "./usr/src/$package.tar.xz" > "$package.part" &&
            mv "$package.part" "$package.tar.xz" && rm "$package"_*.deb) || return 1
    fi
    if [ -r "/usr/src/$package.tar.xz" ]; then echo "/usr/src/$package.tar.xz"; else echo "$build/built/$package.tar.xz"; fi
}

# unpack_source TARBALL FOLDER: without what a virtual machine does not need
unpack_source() {
    local tarball=$1 folder=$2 version
    version=$(stat --format='%s %Y' "$tarball")
    [ "$(cat "$folder/idlewise-version" 2> /dev/null)" != "$version" ] || return 0
    echo "unpacking $tarball" >&2
    rm -rf "$folder" "$folder.part" && mkdir -p "$folder.part"
    # What was built from another version must look old, so that make builds it again.
    tar --extract --touch --xz --file "$tarball" --directory "$folder.part" --strip-components 1 \
        --exclude='*/drivers/'{gpu,net/*,media}'/*.[ch]' --exclude='*/sound/*.[ch]' --exclude='*.dts*' \
        --exclude='*.rst' --exclude='*.yaml' || { rm -rf "$folder.part"; return 1; }
    echo "$version" > "$folder.part/idlewise-version"
    mv "$folder.part" "$folder"
}

# patch_source FROM PATCH TO: a copy with the patch
patch_source() {
    local from=$1 patch=$2 to=$3 version file before=$3.patch
    version=$({ cat "$from/idlewise-version" "$patch" 2> /dev/null || true; } | sha256sum)
    [ "$(cat "$to/idlewise-version" 2> /dev/null)" != "$version" ] || [ ! -e "$from/idlewise-version" ] || return 0
    rm -rf "$to" "$to.part"
    # A patched file is a new one, so what it shares with the other does not change.
    cp --archive --link "$from" "$to.part" 2> /dev/null || { rm -rf "$to.part" && cp --archive "$from" "$to.part"; }
    rm -f "$to.part/idlewise-version"
    apply_patch --strip 1 --directory "$to.part" --input "$(realpath "$patch")" || return 1
    # A file that the patch before this one changed is older now than what was built from it.
    [ ! -e "$before" ] || while read -r file; do
        [ ! -e "$to.part/$file" ] || { cp "$to.part/$file" "$to.part/$file.new" && mv "$to.part/$file.new" "$to.part/$file"; }
    done < <(changed_files "$before")
    cp "$patch" "$before"
    echo "$version" > "$to.part/idlewise-version"
    mv "$to.part" "$to"
}

# build_kernel NAME SOURCE FRAGMENT...: `built` has the inputs of the last build
build_kernel() {
    local name=$1 source=$2 folder=$build/built/$1 made_of line
    shift 2
    made_of=$(cat "$source/idlewise-version" "$@" 2> /dev/null | sha256sum)
    [ "$(cat "$folder/built" 2> /dev/null)" != "$made_of" ] || [ ! -e "$source/idlewise-version" ] || return 0
    echo "building $name, some minutes" >&2
    mkdir -p "$folder"
    rm -f "$folder/built"
    cat "$@" > "$folder/fragment"
    make --silent -C "$source" O="$folder" KCONFIG_ALLCONFIG="$folder/fragment" allnoconfig || return 1
    # Kconfig silently drops an option whose dependencies are missing.
    while read -r line; do
        grep -qx "$line" "$folder/.config" || { echo "$name does not take $line" >&2; return 1; }
    done < <(grep '^CONFIG' "$folder/fragment")
    nice make --silent -j "$(nproc)" -C "$source" O="$folder" LOCALVERSION= bzImage modules || return 1
    # Where tests/run looks for an image.
    mkdir -p "$build/image-$name/boot"
    ln -sf "$folder/arch/x86/boot/bzImage" "$build/image-$name/boot/vmlinuz-$name"
    ln -sf "$folder/.config" "$build/image-$name/boot/config-$name"
    ln -sfn "$source" "$folder/idlewise-source"
    echo "$made_of" > "$folder/built"
}
